// SPDX-License-Identifier: Apache-2.0

#include "kernels/scale.hpp"

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/amax.hpp"

namespace quire::cpu {

float scale_of_row(const Element &kept, const float *values, uint32_t count) {
    constexpr uint32_t kInfinity = 0x7F800000u;
    uint32_t largest = largest_magnitude(values, count);
    if (largest >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
    return std::bit_cast<float>(largest) / kept.largest_code;
}

void store_codes(const Element &kept, float *values, uint32_t count, float scale, void *to) {
    for (uint32_t i = 0; i < count; ++i) values[i] /= scale;
    kept.store(values, to, count);
}

void store_scaled_row(const Element &kept, float *values, uint32_t count, float scale, void *to) {
    if (scale > 0.0f) {
        store_codes(kept, values, count, scale, to);
    } else {
        std::memset(to, 0, kept.row_bytes(count));  // 0 in every format
    }
}

}  // namespace quire::cpu
