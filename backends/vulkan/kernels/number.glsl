// SPDX-License-Identifier: Apache-2.0
//
// number: converts the number formats of q, K and V to f32 and back.
//
// Conversions use integers: devices may flush subnormals and divide by an approximation, and stored
// bits must not depend on either. A value is passed as the bits of its f32 if it will be stored,
// and as a float if it will be computed with.

const uint kF32 = 0;
const uint kF16 = 1;
const uint kBf16 = 2;
const uint kI8 = 3;
const uint kI4 = 4;
const uint kE4m3 = 5;
const uint kE5m2 = 6;

const uint kInfinityBits = 0x7F800000u;
const uint kNanBits = 0x7FC00000u;

bool is_nan_bits(uint bits) { return (bits & 0x7FFFFFFFu) > kInfinityBits; }

// From a format of `fraction` fraction bits, at most 5 exponent bits and a bias; not for codes of
// infinity or NaN. Subnormals are units of 2^(1 - bias - fraction).
uint small_to_f32(uint magnitude, uint fraction, uint bias) {
    if ((magnitude >> fraction) == 0) {
        float unit = uintBitsToFloat((128 - bias - fraction) << 23);
        return floatBitsToUint(float(magnitude) * unit);
    }
    return (magnitude << (23 - fraction)) + ((127 - bias) << 23);
}

uint f16_to_f32(uint half_bits) {
    uint sign_bit = (half_bits & 0x8000u) << 16;
    uint magnitude = half_bits & 0x7FFFu;
    if (magnitude >= 0x7C00u) return sign_bit | kInfinityBits | (magnitude & 0x3FFu) << 13;
    return sign_bit | small_to_f32(magnitude, 10, 15);
}

uint f8_to_f32(uint code, uint fraction, uint bias, uint first_special, bool has_infinity) {
    uint sign_bit = (code & 0x80u) << 24;
    uint magnitude = code & 0x7Fu;
    if (magnitude >= first_special) {
        bool is_infinity = has_infinity && magnitude == first_special;
        return sign_bit | (is_infinity ? kInfinityBits : kNanBits);
    }
    return sign_bit | small_to_f32(magnitude, fraction, bias);
}

// value / 2^shift, rounded to nearest, ties to even. shift > 0.
uint round_shift(uint value, uint shift) {
    if (shift > 31) return 0;
    uint is_odd = value >> shift & 1u;
    return uint((uint64_t(value) + (1ul << (shift - 1)) - 1 + is_odd) >> shift);
}

// To such a format; larger values become `largest`. Not for NaN.
uint f32_to_small(uint magnitude, uint fraction, uint bias, uint largest) {
    uint exponent = magnitude >> 23;
    uint code;
    if (exponent + bias < 128) {  // below the smallest normal number
        uint mantissa = (magnitude & 0x7FFFFFu) | (exponent != 0 ? 0x800000u : 0u);
        code = round_shift(mantissa, 151 - fraction - bias - max(exponent, 1u));
    } else {
        code = round_shift(magnitude - ((127 - bias) << 23), 23 - fraction);
    }
    return min(code, largest);
}

uint f32_to_f16(uint bits) {
    uint sign_bit = bits >> 16 & 0x8000u;
    uint magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > kInfinityBits) return sign_bit | 0x7E00u | (magnitude >> 13 & 0x3FFu);
    return sign_bit | f32_to_small(magnitude, 10, 15, 0x7C00u);
}

uint f32_to_bf16(uint bits) {
    if (is_nan_bits(bits)) return bits >> 16 | 0x40u;
    return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}

uint f32_to_f8(uint bits, uint fraction, uint bias, uint largest) {
    uint sign_bit = bits >> 24 & 0x80u;
    uint magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > kInfinityBits) return sign_bit | 0x7Fu;
    return sign_bit | f32_to_small(magnitude, fraction, bias, largest);
}

uint f32_to_int(uint bits, float most) {
    if (is_nan_bits(bits)) return 0;
    return uint(int(roundEven(clamp(uintBitsToFloat(bits), -most, most))));
}

uint bytes_of(uint format, uint count) {
    if (format == kF32) return count * 4;
    if (format == kF16 || format == kBf16) return count * 2;
    return format == kI4 ? count / 2 : count;
}

bool holds_codes(uint format) { return format >= kI8; }

uint byte_to_f32(uint format, uint code) {
    if (format == kI8) return floatBitsToUint(float(int(code << 24) >> 24));
    return format == kE4m3 ? f8_to_f32(code, 3, 7, 0x7Fu, false)
                           : f8_to_f32(code, 2, 15, 0x7Cu, true);
}

// Element `index` of the row at `row`, as f32 bits.
uint load_bits(uint format, uint64_t row, uint index) {
    switch (format) {
        case kF32:
            return load_word(row + index * 4);
        case kF16:
            return f16_to_f32(load_half(row + index * 2));
        case kBf16:
            return load_half(row + index * 2) << 16;
        case kI4: {
            uint pair = load_byte(row + index / 2);
            return floatBitsToUint(float(int(pair << (index % 2 == 0 ? 28 : 24)) >> 28));
        }
        default:
            return byte_to_f32(format, load_byte(row + index));
    }
}

float load_number(uint format, uint64_t row, uint index) {
    return uintBitsToFloat(load_bits(format, row, index));
}

uint f16_or_bf16(uint format, uint half_bits) {
    return format == kF16 ? f16_to_f32(half_bits) : half_bits << 16;
}

// Elements `index` to index + 3 in one load; the same numbers as load_number() gives.
// REQUIRES: the row is aligned to 16 bytes, index is a multiple of 4.
vec4 load_four(uint format, uint64_t row, uint index) {
    if (format == kF32) return uintBitsToFloat(FourWords(real(row + index * 4)).v);
    uvec4 bits;
    if (format == kF16 || format == kBf16) {
        uvec2 pairs = TwoWords(real(row + index * 2)).v;
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            bits[i] = f16_or_bf16(format, pairs[i / 2] >> (i % 2 * 16) & 0xFFFFu);
        }
    } else if (format == kI4) {
        uint halves = load_half(row + index / 2);
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            bits[i] = floatBitsToUint(float(int(halves << (28 - i * 4)) >> 28));
        }
    } else {
        uint codes = load_word(row + index);
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            bits[i] = byte_to_f32(format, codes >> (i * 8) & 0xFFu);
        }
    }
    return uintBitsToFloat(bits);
}

// For formats that hold values.
void store_value(uint format, uint64_t row, uint index, uint bits) {
    if (format == kF32) store_word(row + index * 4, bits);
    if (format == kF16) store_half(row + index * 2, f32_to_f16(bits));
    if (format == kBf16) store_half(row + index * 2, f32_to_bf16(bits));
}

// The code of a value already divided by its scale; int4 in the low 4 bits.
uint code_of(uint format, uint bits) {
    switch (format) {
        case kI8:
            return f32_to_int(bits, 127.0) & 0xFFu;
        case kI4:
            return f32_to_int(bits, 7.0) & 0xFu;
        case kE4m3:
            return f32_to_f8(bits, 3, 7, 0x7Eu);
        default:
            return f32_to_f8(bits, 2, 15, 0x7Bu);
    }
}

// The bits of the code value that a row's largest value is scaled to.
uint largest_code_bits(uint format) {
    if (format == kI8) return floatBitsToUint(127.0);
    if (format == kI4) return floatBitsToUint(7.0);
    return format == kE4m3 ? floatBitsToUint(448.0) : floatBitsToUint(57344.0);
}

// The mantissa, at least 2^23, and the exponent of a number that is not 0.
uint normal_mantissa(uint magnitude, out int exponent) {
    exponent = int(magnitude >> 23);
    uint mantissa = magnitude & 0x7FFFFFu;
    if (exponent != 0) return mantissa | 0x800000u;
    int shift = 23 - findMSB(mantissa);
    exponent = 1 - shift;
    return mantissa << shift;
}

// a / b in f32, correctly rounded, from bits to bits. With q = mantissa / mantissa in units of
// 2^-26, its last bit set if there is a remainder, the first 24 bits and those that decide the
// rounding are exact.
uint divide(uint a, uint b) {
    uint sign_bit = (a ^ b) & 0x80000000u;
    uint above = a & 0x7FFFFFFFu;
    uint below = b & 0x7FFFFFFFu;
    if (is_nan_bits(a) || is_nan_bits(b) || (above == 0 && below == 0) ||
        (above == kInfinityBits && below == kInfinityBits)) {
        return kNanBits;
    }
    if (above == kInfinityBits || below == 0) return sign_bit | kInfinityBits;
    if (below == kInfinityBits || above == 0) return sign_bit;
    int a_exponent, b_exponent;
    uint64_t numerator = uint64_t(normal_mantissa(above, a_exponent)) << 26;
    uint64_t denominator = normal_mantissa(below, b_exponent);
    uint quotient = uint(numerator / denominator);
    if (numerator % denominator != 0) quotient |= 1u;
    int top = findMSB(quotient);  // 25 or 26
    int exponent = top + a_exponent - b_exponent - 26 + 127;
    if (exponent >= 255) return sign_bit | kInfinityBits;
    if (exponent >= 1) {
        return sign_bit | ((uint(exponent - 1) << 23) + round_shift(quotient, uint(top - 23)));
    }
    return sign_bit | round_shift(quotient, uint(top - 23 + 1 - exponent));
}
