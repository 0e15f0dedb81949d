// SPDX-License-Identifier: Apache-2.0
//
// kernels: loops that only read memory, and one that only multiplies and adds.
//
// They are compiled once for each vector width that the architecture may have (meson.build),
// because the compiler's default width would limit the floor. The widest one that this processor
// runs is chosen when the program starts.
//
// Threads: any; a kernel touches only what it is given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::bench {

// Contiguous bytes. Kernels read 64 at a time; a remainder at the end of a run is not read.
struct Run {
    const std::byte *at;
    uint64_t size_bytes;
};

// A kernel's result depends on everything that it read or computed, so nothing is optimised away.
struct Kernels {
    uint32_t lanes;  // f32 numbers in a vector
    // One stream, front to back; only the hardware prefetches.
    uint64_t (*read_forward)(Run run);
    // Four streams, a quarter of the run each, interleaved.
    uint64_t (*read_four_streams)(Run run);
    // Runs in the order given, twelve parts of the list interleaved, each with a software prefetch
    // that goes on from the end of a run into the next one.
    uint64_t (*read_runs)(const Run *runs, uint64_t run_count);
    // kFmaChains independent chains of `length` multiply-and-adds of vectors, in registers.
    float (*multiply_add)(uint64_t length);
};

// Two units with a latency of four cycles need eight chains; with two operands, twelve fit into
// sixteen registers.
constexpr uint32_t kFmaChains = 12;

// For the widest vectors of this processor.
const Kernels &kernels();

}  // namespace quire::bench
