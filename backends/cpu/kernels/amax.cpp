// SPDX-License-Identifier: Apache-2.0

#include "kernels/amax.hpp"

#include <algorithm>
#include <atomic>
#include <bit>

namespace quire::cpu {

uint32_t largest_magnitude(const float *values, uint32_t count) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < count; ++i) {
        largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFu);
    }
    return largest;
}

void raise_amax(uint32_t *to, const float *values, uint32_t count) {
    uint32_t largest = largest_magnitude(values, count);
    std::atomic_ref<uint32_t> number(*to);
    uint32_t seen = number.load(std::memory_order_relaxed);
    while (seen < largest &&
           !number.compare_exchange_weak(seen, largest, std::memory_order_relaxed)) {
    }
}

}  // namespace quire::cpu
