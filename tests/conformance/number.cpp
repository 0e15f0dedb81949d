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
    uint32_t overflow;  // result for too large a number
    uint32_t nan;       // one of them

    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    uint32_t sign() const { return 1u << (fraction_bits + exponent_bits); }
};

// E4M3 has no infinity and uses its exponent for numbers; one pattern per sign is a NaN.
Format format_of(uint32_t dtype) {
    if (dtype == QUIRE_DTYPE_F16) return {10, 5, 0x7C00, 0x7E00};
    if (dtype == QUIRE_DTYPE_BF16) return {7, 8, 0x7F80, 0x7FC0};
    if (dtype == QUIRE_DTYPE_F8_E4M3FN) return {3, 4, 0x7E, 0x7F};
    if (dtype == QUIRE_DTYPE_F8_E5M2) return {2, 5, 0x7B, 0x7E};
    return {23, 8, 0x7F800000, 0x7FC00000};
}

bool is_integer(uint32_t dtype) { return dtype == QUIRE_DTYPE_I8 || dtype == QUIRE_DTYPE_I4; }

uint32_t bits_of(uint32_t dtype) { return dtype >> 8 & 0xFF; }  // DLPack's bits

uint32_t encode_integer(double value, uint32_t dtype) {
    if (std::isnan(value)) return 0;
    double most = largest_code_of(dtype);
    double rounded = std::nearbyint(value < -most ? -most : value > most ? most : value);
    return static_cast<uint32_t>(static_cast<int32_t>(rounded)) & ((1u << bits_of(dtype)) - 1);
}

double decode_integer(uint32_t bits, uint32_t dtype) {
    uint32_t half = 1u << (bits_of(dtype) - 1);
    return bits < half ? static_cast<double>(bits) : static_cast<double>(bits) - 2.0 * half;
}

}  // namespace

bool holds_codes(uint32_t dtype) { return largest_code_of(dtype) != 0.0; }

double largest_code_of(uint32_t dtype) {
    if (dtype == QUIRE_DTYPE_I8) return 127.0;
    if (dtype == QUIRE_DTYPE_I4) return 7.0;
    if (dtype == QUIRE_DTYPE_F8_E4M3FN) return 448.0;
    return dtype == QUIRE_DTYPE_F8_E5M2 ? 57344.0 : 0.0;
}

uint32_t size_of(uint32_t dtype) { return bits_of(dtype) / 8; }

int64_t row_bytes(uint32_t count, uint32_t dtype) { return int64_t{count} * bits_of(dtype) / 8; }

const char *name_of(uint32_t dtype) {
    if (dtype == QUIRE_DTYPE_F16) return "f16";
    if (dtype == QUIRE_DTYPE_I8) return "int8";
    if (dtype == QUIRE_DTYPE_I4) return "int4";
    if (dtype == QUIRE_DTYPE_F8_E4M3FN) return "fp8_e4m3";
    if (dtype == QUIRE_DTYPE_F8_E5M2) return "fp8_e5m2";
    return dtype == QUIRE_DTYPE_BF16 ? "bf16" : "f32";
}

uint32_t encode(double value, uint32_t dtype) {
    if (is_integer(dtype)) return encode_integer(value, dtype);
    Format format = format_of(dtype);
    uint32_t sign = std::signbit(value) ? format.sign() : 0;
    if (std::isnan(value)) return sign | format.nan;
    double magnitude = std::fabs(value);
    if (std::isinf(magnitude)) return sign | format.overflow;
    // Below the smallest normal number the unit stays constant.
    int exponent = magnitude == 0.0 ? 1 - format.bias() : std::ilogb(magnitude);
    if (exponent < 1 - format.bias()) exponent = 1 - format.bias();
    double units = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
    // A unit count of 2^fraction_bits or more carries into the exponent field by itself.
    auto bits = static_cast<uint64_t>(units) +
                (static_cast<uint64_t>(exponent + format.bias() - 1) << format.fraction_bits);
    return sign | (bits >= format.overflow ? format.overflow : static_cast<uint32_t>(bits));
}

namespace {

double decode_slowly(uint32_t bits, uint32_t dtype) {
    Format format = format_of(dtype);
    double sign = (bits & format.sign()) != 0 ? -1.0 : 1.0;
    uint32_t magnitude = bits & (format.sign() - 1);
    bool has_infinity = dtype != QUIRE_DTYPE_F8_E4M3FN;
    uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.fraction_bits;
    if (has_infinity ? magnitude > infinity : magnitude == format.nan) {
        return std::numeric_limits<double>::quiet_NaN();
    }
    if (has_infinity && magnitude == infinity) {
        return sign * std::numeric_limits<double>::infinity();
    }
    int exponent = static_cast<int>(magnitude >> format.fraction_bits);
    uint32_t fraction = magnitude & ((1u << format.fraction_bits) - 1);
    if (exponent == 0)
        exponent = 1;
    else
        fraction |= 1u << format.fraction_bits;
    return sign * std::ldexp(fraction, exponent - format.bias() - format.fraction_bits);
}

std::vector<double> decode_all(uint32_t dtype) {
    std::vector<double> values;
    for (uint32_t bits = 0; bits < 1u << bits_of(dtype); ++bits) {
        values.push_back(decode_slowly(bits, dtype));
    }
    return values;
}

}  // namespace

double decode(uint32_t bits, uint32_t dtype) {
    static const std::vector<double> f16 = decode_all(QUIRE_DTYPE_F16);
    static const std::vector<double> bf16 = decode_all(QUIRE_DTYPE_BF16);
    if (dtype == QUIRE_DTYPE_F32) return std::bit_cast<float>(bits);
    if (is_integer(dtype)) return decode_integer(bits, dtype);
    if (holds_codes(dtype)) return decode_slowly(bits, dtype);
    return dtype == QUIRE_DTYPE_F16 ? f16[bits] : bf16[bits];
}

void store(double value, uint32_t dtype, void *to) {
    uint32_t bits = encode(value, dtype);
    std::memcpy(to, &bits, size_of(dtype));  // little endian, like every machine that this runs on
}

double load(const void *from, uint32_t dtype) {
    uint32_t bits = 0;
    std::memcpy(&bits, from, size_of(dtype));
    return decode(bits, dtype);
}

void store_in_row(double value, uint32_t dtype, unsigned char *row, uint32_t index) {
    if (dtype != QUIRE_DTYPE_I4) return store(value, dtype, row + index * size_of(dtype));
    unsigned char *pair = row + index / 2;
    uint32_t code = encode(value, dtype);
    *pair = static_cast<unsigned char>(index % 2 == 0 ? (*pair & 0xF0u) | code
                                                      : (*pair & 0x0Fu) | code << 4);
}

uint32_t bits_in_row(const unsigned char *row, uint32_t dtype, uint32_t index) {
    uint32_t bits = 0;
    if (dtype == QUIRE_DTYPE_I4) return row[index / 2] >> (index % 2 * 4) & 0xFu;
    std::memcpy(&bits, row + index * size_of(dtype), size_of(dtype));
    return bits;
}

double load_in_row(const unsigned char *row, uint32_t dtype, uint32_t index) {
    return decode(bits_in_row(row, dtype, index), dtype);
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
