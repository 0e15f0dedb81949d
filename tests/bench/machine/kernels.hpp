// SPDX-License-Identifier: Apache-2.0
//
// kernels: loops that do nothing but read memory, and one that does nothing but multiply and add.
//
// They are compiled once for each vector width that the architecture may have (meson.build), for a
// floor that the compiler's default width limits would be no floor. The widest one that this
// processor runs is chosen when the program starts.
//
// Threads: any; a kernel touches nothing but what it is given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::bench {

// Contiguous bytes. Kernels read 64 at a time; what is left at the end of a run is not read.
struct Run {
    const std::byte *at;
    uint64_t size_bytes;
};

// What a kernel returns depends on everything that it read or computed, so nothing is left out.
struct Kernels {
    uint32_t lanes;  // f32 numbers in a vector
    // One stream, front to back; the hardware alone looks ahead.
    uint64_t (*read_forward)(Run run);
    // Four streams, a quarter of the run each, in turns.
    uint64_t (*read_four_streams)(Run run);
    // Runs in the order given, twelve parts of the list in turns, and ahead of each a software
    // prefetch that goes on from the end of a run into the next one.
    uint64_t (*read_runs)(const Run *runs, uint64_t run_count);
    // kFmaChains independent chains of `length` multiply-and-adds of vectors, in registers.
    float (*multiply_add)(uint64_t length);
};

// Two units of four cycles need eight chains; with two operands they fit into sixteen registers.
constexpr uint32_t kFmaChains = 12;

// For the widest vectors of this processor.
const Kernels &kernels();

}  // namespace quire::bench
