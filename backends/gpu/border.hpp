// SPDX-License-Identifier: Apache-2.0
//
// border: from which size on a copy is the driver's, and no kernel's.
//
// A kernel reads and writes pinned memory in place, many small copies at once; the driver's copies
// have engines of their own, and a price each. Which is the faster one depends on the GPU, on how
// it is attached and on the driver, so it is measured (profile.hpp); here is what follows from the
// times.
//
// Threads: any; nothing is kept.  Units: sizes and borders are bytes, times milliseconds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire::gpu {

// A copy of at least the border is the driver's.
constexpr uint64_t kAllByKernel = UINT64_MAX;
// Where nothing was measured: a guess.
constexpr uint64_t kGuessedBorder = 256 << 10;

// How long as many bytes took in copies of one size.
struct Timing {
    uint64_t size_bytes;
    double kernel_ms;
    double driver_ms;
};

// One of the sizes, or kAllByKernel: what loses the least time over all sizes, in parts of what the
// faster one takes, so that one where the slower way seems a little faster does not decide for all;
// of two that lose alike the larger one. Timings come in any order; one with a time that is none
// (0, less, NaN or infinite) does not count, and without any it is kGuessedBorder.
uint64_t border_of(const Timing *timings, size_t count);

// Of each kind of copy; between memories of the host all are the kernel's, for CUDA's own copy
// then waits until it has run.
struct Borders {
    uint64_t size_bytes[QUIRE_BE_COPY_H2D + 1] = {kGuessedBorder, kGuessedBorder, kGuessedBorder};

    bool is_for_driver(const quire_be_copy &one) const {
        return one.kind != QUIRE_BE_COPY_H2H && one.size_bytes >= size_bytes[one.kind];
    }
};
static_assert(QUIRE_BE_COPY_D2D == 0 && QUIRE_BE_COPY_D2H == 1 && QUIRE_BE_COPY_H2D == 2);

// A number of bytes in decimal digits and nothing else; false: it is none, or 2^64 or more.
bool parse_border(const char *text, uint64_t *border);

}  // namespace quire::gpu
