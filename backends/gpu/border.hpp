// SPDX-License-Identifier: Apache-2.0
//
// border: the size from which copies use the driver instead of a kernel.
//
// A kernel reads and writes pinned memory in place, many small copies at once; driver copies use
// dedicated engines but have a cost per copy. Which is faster depends on the GPU, on how it is
// attached and on the driver, so it is measured (profile.hpp); this file picks the border.
//
// Threads: any; stateless.  Units: sizes and borders are bytes, times milliseconds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire::gpu {

// A copy of at least the border uses the driver.
constexpr uint64_t kAllByKernel = UINT64_MAX;
// A guess, used when nothing was measured.
constexpr uint64_t kGuessedBorder = 256 << 10;

// The time to copy the same number of bytes in copies of one size.
struct Timing {
    uint64_t size_bytes;
    double kernel_ms;
    double driver_ms;
};

// One of the sizes, or kAllByKernel: the border that loses the least time summed over all sizes,
// each loss relative to the faster way's time, so that one size where the slower way appears
// slightly faster does not decide for all. Of two borders with equal loss, the larger. Timings come
// in any order; one with an invalid time (0, negative, NaN or infinite) is ignored, and with no
// valid timing the result is kGuessedBorder.
uint64_t border_of(const Timing *timings, size_t count);

// One border per kind of copy. Host-to-host copies always use the kernel, because CUDA's own copy
// blocks until it has run.
struct Borders {
    uint64_t size_bytes[QUIRE_BE_COPY_H2D + 1] = {kGuessedBorder, kGuessedBorder, kGuessedBorder};

    bool is_for_driver(const quire_be_copy &one) const {
        return one.kind != QUIRE_BE_COPY_H2H && one.size_bytes >= size_bytes[one.kind];
    }
};
static_assert(QUIRE_BE_COPY_D2D == 0 && QUIRE_BE_COPY_D2H == 1 && QUIRE_BE_COPY_H2D == 2);

// Parses decimal digits only; false if `text` is anything else, or 2^64 or more.
bool parse_border(const char *text, uint64_t *border);

}  // namespace quire::gpu
