// SPDX-License-Identifier: Apache-2.0

#include "matrix_unit.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace fakegpu {

namespace {

constexpr uint32_t kTerms = 16;
constexpr int32_t kAccumulatorBits = 23;  // fractional, of an f32
constexpr int32_t kNone = std::numeric_limits<int32_t>::min() / 2;

int32_t fraction_bits(bool is_bf16) { return is_bf16 ? 7 : 10; }

// value * 2^shift, cut off towards 0 or rounded down.
int64_t cut_off(int64_t value, int32_t shift) {
    if (shift >= 0) return value << shift;
    if (shift <= -63) return 0;
    return value < 0 ? -(-value >> -shift) : value >> -shift;
}
int64_t rounded_down(int64_t value, int32_t shift) {
    if (shift >= 0) return value << shift;
    return value >> std::min(-shift, 63);
}

// An f32 in the same form as a Term.
struct Accumulator {
    int64_t integer;
    int32_t exponent;
};
Accumulator split(float sum) {
    auto bits = __builtin_bit_cast(uint32_t, sum);
    auto field = static_cast<int32_t>(bits >> 23 & 0xFF);
    auto integer = static_cast<int64_t>(bits & 0x7FFFFF) | (field != 0 ? 0x800000 : 0);
    return {bits >> 31 != 0 ? -integer : integer, std::max(field, 1) - 127};
}

// The f32 next to an exact value, towards 0.
float towards_zero(double value) {
    if (std::fabs(value) >= 0x1p128) return std::copysign(INFINITY, static_cast<float>(value));
    auto near = static_cast<float>(value);
    return std::fabs(double{near}) > std::fabs(value) ? std::nextafter(near, 0.0f) : near;
}

struct Products {
    int64_t of[kTerms];
    int32_t exponents[kTerms];
    int32_t largest = kNone;

    Products(const Term *a, const Term *b, uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) {
            of[i] = int64_t{a[i].integer} * b[i].integer;
            exponents[i] = a[i].exponent + b[i].exponent;
            if (of[i] != 0) largest = std::max(largest, exponents[i]);
        }
    }
    // The products' sum, in units of 2^(exponent - bits).
    int64_t aligned_sum(uint32_t count, int32_t exponent, int32_t bits, bool is_bf16) const {
        int64_t sum = 0;
        int32_t shift = bits - 2 * fraction_bits(is_bf16) - exponent;
        for (uint32_t i = 0; i < count; ++i) {
            if (of[i] != 0) sum += cut_off(of[i], shift + exponents[i]);
        }
        return sum;
    }
};

// Infinities and NaN take no part in alignment.
bool are_finite(const Term *a, const Term *b, uint32_t count, float sum) {
    bool are = std::isfinite(sum);
    for (uint32_t i = 0; i < count; ++i) {
        are = are && std::isfinite(a[i].value) && std::isfinite(b[i].value);
    }
    return are;
}
float sum_of_infinities(const Term *a, const Term *b, uint32_t count, float sum) {
    for (uint32_t i = 0; i < count; ++i) sum += a[i].value * b[i].value;
    return sum;
}

// The smallest exponent to which a tensor core aligns.
constexpr int32_t kLeastExponent = -132;

float nvidia_block(const Term *a, const Term *b, uint32_t count, int32_t bits, bool is_bf16,
                   float sum) {
    Products products(a, b, count);
    Accumulator before = split(sum);
    int32_t exponent = std::max(products.largest, kLeastExponent);
    if (before.integer != 0) exponent = std::max(exponent, before.exponent);
    int64_t total = products.aligned_sum(count, exponent, bits, is_bf16);
    total += cut_off(before.integer, bits - kAccumulatorBits + before.exponent - exponent);
    return towards_zero(std::ldexp(static_cast<double>(total), exponent - bits));
}

float mi300_block(const Term *a, const Term *b, uint32_t count, bool is_bf16, float sum) {
    constexpr int32_t kProductBits = 24, kSumBits = 31, kOfAccumulator = 24;
    Products products(a, b, count);
    Accumulator before = split(sum);
    int32_t of_products = std::max(products.largest, 2 * kLeastExponent);
    int32_t exponent = of_products;
    // A zero accumulator has the exponent of the smallest number.
    exponent = std::max(exponent, before.exponent);
    int64_t total = products.aligned_sum(count, of_products, kProductBits, is_bf16);
    total = rounded_down(total, kSumBits - kProductBits + of_products - exponent);
    int64_t added = rounded_down(before.integer,
                                 kOfAccumulator - kAccumulatorBits + before.exponent - exponent);
    total += added << (kSumBits - kOfAccumulator);
    return static_cast<float>(std::ldexp(static_cast<double>(total), exponent - kSumBits));
}

float flushed(float value) {
    return std::fabs(value) < FLT_MIN ? std::copysign(0.0f, value) : value;
}

float mi200_block(const Term *a, const Term *b, float sum) {
    float products[4];
    for (uint32_t i = 0; i < 4; ++i) products[i] = flushed(a[i].value * b[i].value);
    float low = flushed(products[0] + products[1]);
    float high = flushed(products[2] + products[3]);
    return flushed(flushed(sum) + flushed(low + high));
}

}  // namespace

MatrixUnit chosen_unit(uint32_t warp_width) {
    static const char *const name = std::getenv("FAKEGPU_MATRIX");
    constexpr struct {
        const char *name;
        MatrixUnit unit;
    } kUnits[] = {{"v100", MatrixUnit::v100},
                  {"a100", MatrixUnit::a100},
                  {"h100", MatrixUnit::h100},
                  {"mi200", MatrixUnit::mi200},
                  {"mi300", MatrixUnit::mi300}};
    if (name != nullptr) {
        for (const auto &known : kUnits) {
            if (std::strcmp(name, known.name) == 0) return known.unit;
        }
        std::abort();  // a test's mistake
    }
    return warp_width == 64 ? MatrixUnit::mi200 : MatrixUnit::a100;
}

Term term_of(MatrixUnit unit, bool is_bf16, uint16_t bits) {
    int32_t fraction = fraction_bits(is_bf16);
    int32_t field = (bits & 0x7FFF) >> fraction;
    // MI200's MFMA treats subnormal inputs as 0.
    if (unit == MatrixUnit::mi200 && field == 0) bits &= 0x8000;
    int32_t integer = bits & ((1 << fraction) - 1);
    if (field != 0) integer |= 1 << fraction;
    float value = is_bf16 ? __builtin_bit_cast(float, uint32_t{bits} << 16)
                          : static_cast<float>(__builtin_bit_cast(_Float16, bits));
    int32_t bias = is_bf16 ? 127 : 15;
    return {bits >> 15 != 0 ? -integer : integer, std::max(field, 1) - bias, value};
}

float multiply_row(MatrixUnit unit, bool is_bf16, const Term *a, const Term *b, float sum) {
    uint32_t block = 16;
    if (unit == MatrixUnit::v100 || unit == MatrixUnit::mi200) block = 4;
    if (unit == MatrixUnit::a100 || unit == MatrixUnit::mi300) block = 8;
    for (uint32_t i = 0; i < kTerms; i += block) {
        if (unit == MatrixUnit::mi200) {
            sum = mi200_block(a + i, b + i, sum);
        } else if (!are_finite(a + i, b + i, block, sum)) {
            sum = sum_of_infinities(a + i, b + i, block, sum);
        } else if (unit == MatrixUnit::mi300) {
            sum = mi300_block(a + i, b + i, block, is_bf16, sum);
        } else {
            int32_t bits = unit == MatrixUnit::v100 ? 23 : unit == MatrixUnit::a100 ? 24 : 25;
            sum = nvidia_block(a + i, b + i, block, bits, is_bf16, sum);
        }
    }
    return sum;
}

}  // namespace fakegpu
