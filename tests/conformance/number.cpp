// SPDX-License-Identifier: Apache-2.0

#include "number.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#include "quire/base.h"

namespace quire::conformance {

namespace {

struct Format {
    int fraction_bits;  // stored ones
    int exponent_bits;

    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    uint32_t sign() const { return 1u << (fraction_bits + exponent_bits); }
    uint32_t infinity() const { return ((1u << exponent_bits) - 1) << fraction_bits; }
};

Format format_of(uint32_t dtype) {
    if (dtype == QUIRE_DTYPE_F16) return {10, 5};
    if (dtype == QUIRE_DTYPE_BF16) return {7, 8};
    return {23, 8};
}

}  // namespace

uint32_t size_of(uint32_t dtype) { return dtype == QUIRE_DTYPE_F32 ? 4 : 2; }

const char *name_of(uint32_t dtype) {
    if (dtype == QUIRE_DTYPE_F16) return "f16";
    return dtype == QUIRE_DTYPE_BF16 ? "bf16" : "f32";
}

uint32_t encode(double value, uint32_t dtype) {
    Format format = format_of(dtype);
    uint32_t sign = std::signbit(value) ? format.sign() : 0;
    if (std::isnan(value)) return sign | format.infinity() | 1u << (format.fraction_bits - 1);
    double magnitude = std::fabs(value);
    if (std::isinf(magnitude)) return sign | format.infinity();
    // Below the smallest normal number the unit stays what it is there.
    int exponent = magnitude == 0.0 ? 1 - format.bias() : std::ilogb(magnitude);
    if (exponent < 1 - format.bias()) exponent = 1 - format.bias();
    double units = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
    // A unit count of 2^fraction_bits or more carries into the exponent field by itself.
    auto bits = static_cast<uint64_t>(units) +
                (static_cast<uint64_t>(exponent + format.bias() - 1) << format.fraction_bits);
    return sign | (bits >= format.infinity() ? format.infinity() : static_cast<uint32_t>(bits));
}

namespace {

double decode_slowly(uint32_t bits, Format format) {
    double sign = (bits & format.sign()) != 0 ? -1.0 : 1.0;
    uint32_t magnitude = bits & (format.sign() - 1);
    if (magnitude > format.infinity()) return std::numeric_limits<double>::quiet_NaN();
    if (magnitude == format.infinity()) return sign * std::numeric_limits<double>::infinity();
    int exponent = static_cast<int>(magnitude >> format.fraction_bits);
    uint32_t fraction = magnitude & ((1u << format.fraction_bits) - 1);
    if (exponent == 0)
        exponent = 1;
    else
        fraction |= 1u << format.fraction_bits;
    return sign * std::ldexp(fraction, exponent - format.bias() - format.fraction_bits);
}

std::vector<double> decode_all(Format format) {
    std::vector<double> values;
    for (uint32_t bits = 0; bits <= UINT16_MAX; ++bits) {
        values.push_back(decode_slowly(bits, format));
    }
    return values;
}

}  // namespace

double decode(uint32_t bits, uint32_t dtype) {
    static const std::vector<double> f16 = decode_all(format_of(QUIRE_DTYPE_F16));
    static const std::vector<double> bf16 = decode_all(format_of(QUIRE_DTYPE_BF16));
    if (dtype == QUIRE_DTYPE_F32) return std::bit_cast<float>(bits);
    return dtype == QUIRE_DTYPE_F16 ? f16[bits] : bf16[bits];
}

void store(double value, uint32_t dtype, void *to) {
    uint32_t bits = encode(value, dtype);
    auto half = static_cast<uint16_t>(bits);
    if (size_of(dtype) == 4)
        std::memcpy(to, &bits, sizeof bits);
    else
        std::memcpy(to, &half, sizeof half);
}

double load(const void *from, uint32_t dtype) {
    uint32_t bits = 0;
    uint16_t half = 0;
    if (size_of(dtype) == 4) {
        std::memcpy(&bits, from, sizeof bits);
    } else {
        std::memcpy(&half, from, sizeof half);
        bits = half;
    }
    return decode(bits, dtype);
}

double rounding_of(uint32_t dtype) { return std::ldexp(1.0, -format_of(dtype).fraction_bits - 1); }

double smallest_of(uint32_t dtype) {
    Format format = format_of(dtype);
    return std::ldexp(1.0, -format.bias() - format.fraction_bits);
}

uint64_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    uint64_t state = 0x9E3779B97F4A7C15u;
    for (uint64_t part : {a, b, c, d, e}) {  // splitmix64's finisher, after each part
        state = (state ^ part) + 0x9E3779B97F4A7C15u;
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
        state = (state ^ state >> 27) * 0x94D049BB133111EBu;
        state ^= state >> 31;
    }
    return state;
}

double chance(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    return std::ldexp(static_cast<double>(mix(a, b, c, d, e) >> 11), -52) - 1.0;
}

}  // namespace quire::conformance
