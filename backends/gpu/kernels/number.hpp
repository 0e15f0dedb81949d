// SPDX-License-Identifier: Apache-2.0
//
// number: converts the number formats of q, K and V to f32 and back.
//
// Conversions use integers and are the same on every device, so that stored bits do not depend on
// one. A value is passed as the bits of its f32 if it will be stored, and as a float if it will be
// computed with. Divisions are the device's: both compilers round them correctly unless told not to
// (nvcc -prec-div, clang -fhip-fp32-correctly-rounded-divide-sqrt), and keep subnormals.
//
// Threads: any; stateless.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"

namespace quire::gpu {

constexpr uint32_t kInfinityBits = 0x7F800000u;
constexpr uint32_t kNanBits = 0x7FC00000u;
constexpr uint32_t kMagnitude = 0x7FFFFFFFu;

QUIRE_DEVICE inline bool is_nan_bits(uint32_t bits) { return (bits & kMagnitude) > kInfinityBits; }

// From a format of `fraction` fraction bits, at most 5 exponent bits and a bias; not for codes of
// infinity or NaN. Subnormals are units of 2^(1 - bias - fraction).
QUIRE_DEVICE inline uint32_t small_to_f32(uint32_t magnitude, uint32_t fraction, uint32_t bias) {
    if ((magnitude >> fraction) == 0) {
        float unit = float_of((128 - bias - fraction) << 23);
        return bits_of(static_cast<float>(magnitude) * unit);
    }
    return (magnitude << (23 - fraction)) + ((127 - bias) << 23);
}

QUIRE_DEVICE inline uint32_t f16_to_f32(uint32_t half_bits) {
    uint32_t sign = (half_bits & 0x8000u) << 16;
    uint32_t magnitude = half_bits & 0x7FFFu;
    if (magnitude >= 0x7C00u) return sign | kInfinityBits | (magnitude & 0x3FFu) << 13;
    return sign | small_to_f32(magnitude, 10, 15);
}

QUIRE_DEVICE inline uint32_t e4m3_to_f32(uint32_t code) {
    uint32_t sign = (code & 0x80u) << 24;
    uint32_t magnitude = code & 0x7Fu;
    return sign | (magnitude == 0x7Fu ? kNanBits : small_to_f32(magnitude, 3, 7));
}

QUIRE_DEVICE inline uint32_t e5m2_to_f32(uint32_t code) {
    uint32_t sign = (code & 0x80u) << 24;
    uint32_t magnitude = code & 0x7Fu;
    if (magnitude >= 0x7Cu) return sign | (magnitude == 0x7Cu ? kInfinityBits : kNanBits);
    return sign | small_to_f32(magnitude, 2, 15);
}

// value / 2^shift, rounded to nearest, ties to even. shift > 0.
QUIRE_DEVICE inline uint32_t round_shift(uint32_t value, uint32_t shift) {
    if (shift > 31) return 0;
    uint32_t is_odd = value >> shift & 1u;
    return static_cast<uint32_t>((uint64_t{value} + (1u << (shift - 1)) - 1 + is_odd) >> shift);
}

// To such a format; larger values become `largest`. Not for NaN.
QUIRE_DEVICE inline uint32_t f32_to_small(uint32_t magnitude, uint32_t fraction, uint32_t bias,
                                          uint32_t largest) {
    uint32_t exponent = magnitude >> 23;
    uint32_t code = 0;
    if (exponent + bias < 128) {  // below the smallest normal number
        uint32_t mantissa = (magnitude & 0x7FFFFFu) | (exponent != 0 ? 0x800000u : 0u);
        code = round_shift(mantissa, 151 - fraction - bias - (exponent != 0 ? exponent : 1u));
    } else {
        code = round_shift(magnitude - ((127 - bias) << 23), 23 - fraction);
    }
    return code < largest ? code : largest;
}

QUIRE_DEVICE inline uint32_t f32_to_f16(uint32_t bits) {
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & kMagnitude;
    if (magnitude > kInfinityBits) return sign | 0x7E00u | (magnitude >> 13 & 0x3FFu);
    return sign | f32_to_small(magnitude, 10, 15, 0x7C00u);
}

QUIRE_DEVICE inline uint32_t f32_to_bf16(uint32_t bits) {
    if (is_nan_bits(bits)) return bits >> 16 | 0x40u;
    return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}

QUIRE_DEVICE inline uint32_t f32_to_f8(uint32_t bits, uint32_t fraction, uint32_t bias,
                                       uint32_t largest) {
    uint32_t sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & kMagnitude;
    if (magnitude > kInfinityBits) return sign | 0x7Fu;
    return sign | f32_to_small(magnitude, fraction, bias, largest);
}

QUIRE_DEVICE inline uint32_t f32_to_int(uint32_t bits, float most) {
    if (is_nan_bits(bits)) return 0;
    float value = fminf(fmaxf(float_of(bits), -most), most);
    return static_cast<uint32_t>(static_cast<int32_t>(rintf(value)));
}

QUIRE_DEVICE inline uint32_t bytes_of(uint32_t format, uint32_t count) {
    if (format == kF32) return count * 4;
    if (format == kF16 || format == kBf16) return count * 2;
    return format == kI4 ? count / 2 : count;
}

QUIRE_DEVICE inline bool holds_codes(uint32_t format) { return format >= kI8; }

// The number in the highest `bits` bits of `shifted`, in two's complement.
QUIRE_DEVICE inline uint32_t top_bits_to_f32(uint32_t shifted, uint32_t bits) {
    return bits_of(static_cast<float>(static_cast<int32_t>(shifted) >> (32 - bits)));
}

QUIRE_DEVICE inline uint32_t byte_to_f32(uint32_t format, uint32_t code) {
    if (format == kI8) return top_bits_to_f32(code << 24, 8);
    return format == kE4m3 ? e4m3_to_f32(code) : e5m2_to_f32(code);
}

// Like byte_to_f32, in fewer instructions: the code's exponent and fraction are moved to an f32's,
// and a multiplication corrects the exponent's bias, for subnormals too.
QUIRE_DEVICE inline float byte_to_float(uint32_t format, uint32_t code) {
    if (format == kI8) {
        // 2^23 + (code + 128), minus 2^23 + 128: an f32 of this exponent counts ones.
        return float_of(0x4B000000u | (code ^ 0x80u)) - 8388736.0f;
    }
    uint32_t sign = (code & 0x80u) << 24;
    uint32_t magnitude = code & 0x7Fu;
    bool is_e4m3 = format == kE4m3;
    float value =
        is_e4m3 ? float_of(magnitude << 20) * 0x1p120f : float_of(magnitude << 21) * 0x1p112f;
    if (is_e4m3 ? magnitude == 0x7Fu : magnitude >= 0x7Cu) {
        return float_of(is_e4m3 ? e4m3_to_f32(code) : e5m2_to_f32(code));
    }
    return float_of(bits_of(value) | sign);
}

// Four codes, the lowest byte first, as pairs of `half_format`, which represents each exactly.
struct TwoPairs {
    uint32_t v[2];
};

// Converts one by one: for any format, and for codes that are not finite numbers.
QUIRE_DEVICE inline TwoPairs each_code_to_half(uint32_t format, uint32_t half_format,
                                               uint32_t codes) {
    TwoPairs pairs;
    for (uint32_t i = 0; i < 2; ++i) {
        float low = byte_to_float(format, codes >> (16 * i) & 0xFFu);
        float high = byte_to_float(format, codes >> (16 * i + 8) & 0xFFu);
        pairs.v[i] = half_format == kF16 ? pack_f16(low, high)
                                         : bits_of(low) >> 16 | (bits_of(high) & 0xFFFF0000u);
    }
    return pairs;
}

// Conversion must keep up with multiplication: at the bandwidth of an H100 a multiprocessor has to
// convert 21 8-bit elements per clock, but can make only 16 bf16 from f32. So codes are moved in
// pairs to the exponent and fraction of the 16-bit type, and one multiplication per pair corrects
// the exponent's bias, for subnormals too.
QUIRE_DEVICE inline TwoPairs codes_to_halves(uint32_t format, uint32_t half_format,
                                             uint32_t codes) {
    bool is_f16 = half_format == kF16;
    uint32_t tops[2] = {bytes_as_tops(codes, 0), bytes_as_tops(codes, 1)};
    if (format == kE5m2 && is_f16) return {{tops[0], tops[1]}};  // the code is f16's upper byte
    TwoPairs pairs;
    if (format == kE4m3 && is_f16 && has_e4m3_to_f16()) {
        for (uint32_t i = 0; i < 2; ++i) pairs.v[i] = e4m3_to_f16(codes >> (16 * i) & 0xFFFFu);
        return pairs;
    }
    if (format == kI8) {
        if (!is_f16) return each_code_to_half(format, half_format, codes);
        // 1,024 + (code + 128), minus 1,152: an f16 of this exponent counts ones.
        for (uint32_t i = 0; i < 2; ++i) {
            uint32_t counted = (tops[i] ^ 0x80008000u) >> 8 | 0x64006400u;
            pairs.v[i] = add_f16_pairs(counted, 0xE480E480u);
        }
        return pairs;
    }
    // A carry into a byte's highest bit: its exponent (for e4m3 also its fraction) is all ones.
    bool is_e4m3 = format == kE4m3;
    uint32_t ones = is_e4m3 ? 0x7F7F7F7Fu : 0x7C7C7C7Cu;
    uint32_t least = is_e4m3 ? 0x01010101u : 0x04040404u;
    if ((((codes & ones) + least) & 0x80808080u) != 0) {
        return each_code_to_half(format, half_format, codes);
    }
    for (uint32_t i = 0; i < 2; ++i) {
        uint32_t sign = tops[i] & 0x80008000u;
        uint32_t magnitude = tops[i] & 0x7F007F00u;
        if (is_f16) {
            pairs.v[i] = multiply_f16_pairs(sign | magnitude >> 1, 0x5C005C00u);  // 2^8
        } else if (is_e4m3) {
            pairs.v[i] = multiply_bf16_pairs(sign | magnitude >> 4, 0x7B807B80u);  // 2^120
        } else {
            pairs.v[i] = multiply_bf16_pairs(sign | magnitude >> 3, 0x77807780u);  // 2^112
        }
    }
    return pairs;
}

QUIRE_DEVICE inline uint32_t half_to_f32(uint32_t format, uint32_t half_bits) {
    return format == kF16 ? f16_to_f32(half_bits) : half_bits << 16;
}

// Element `index` of the row at `row`, as f32 bits; of a format that holds values, or of any.
QUIRE_DEVICE inline uint32_t load_value_bits(uint32_t format, uint64_t row, uint32_t index) {
    if (format == kF32) return load<uint32_t>(row + uint64_t{index} * 4);
    return half_to_f32(format, load<uint16_t>(row + uint64_t{index} * 2));
}
QUIRE_DEVICE inline uint32_t load_bits(uint32_t format, uint64_t row, uint32_t index) {
    switch (format) {
        case kF32:
        case kF16:
        case kBf16:
            return load_value_bits(format, row, index);
        case kI4: {
            uint32_t pair = load<uint8_t>(row + index / 2);
            return top_bits_to_f32(pair << (index % 2 == 0 ? 28 : 24), 4);
        }
        default:
            return byte_to_f32(format, load<uint8_t>(row + index));
    }
}

QUIRE_DEVICE inline float load_number(uint32_t format, uint64_t row, uint32_t index) {
    return float_of(load_bits(format, row, index));
}

struct FourNumbers {
    float v[4];
};

// Elements `index` to index + 3 in one load; the same numbers as load_number() gives.
// REQUIRES: the row is aligned to 16 bytes, index is a multiple of 4.
QUIRE_DEVICE inline FourNumbers load_four(uint32_t format, uint64_t row, uint32_t index) {
    FourNumbers four;
    if (format == kF32) {
        FourWords words = load<FourWords>(row + uint64_t{index} * 4);
        for (uint32_t i = 0; i < 4; ++i) four.v[i] = float_of(words.v[i]);
    } else if (format == kF16 || format == kBf16) {
        auto halves = load<uint64_t>(row + uint64_t{index} * 2);
        for (uint32_t i = 0; i < 4; ++i) {
            auto half_bits = static_cast<uint32_t>(halves >> (i * 16)) & 0xFFFFu;
            four.v[i] = float_of(half_to_f32(format, half_bits));
        }
    } else if (format == kI4) {
        uint32_t nibbles = load<uint16_t>(row + index / 2);
        for (uint32_t i = 0; i < 4; ++i) {
            four.v[i] = float_of(top_bits_to_f32(nibbles << (28 - i * 4), 4));
        }
    } else {
        auto codes = load<uint32_t>(row + index);
        for (uint32_t i = 0; i < 4; ++i) {
            four.v[i] = float_of(byte_to_f32(format, codes >> (i * 8) & 0xFFu));
        }
    }
    return four;
}

// For formats that hold values.
QUIRE_DEVICE inline void store_value(uint32_t format, uint64_t row, uint32_t index, uint32_t bits) {
    if (format == kF32) {
        store<uint32_t>(row + uint64_t{index} * 4, bits);
    } else {
        uint32_t half_bits = format == kF16 ? f32_to_f16(bits) : f32_to_bf16(bits);
        store<uint16_t>(row + uint64_t{index} * 2, static_cast<uint16_t>(half_bits));
    }
}

// Eight elements, as f32 bits.
struct Eight {
    uint32_t bits[8];
};

// Elements `index` to index + 7 of a format that holds values, in vectors of 16 bytes; the same
// bits as load_bits() gives. REQUIRES: the row is aligned to 16 bytes, index is a multiple of 8.
QUIRE_DEVICE inline Eight load_eight(uint32_t format, uint64_t row, uint32_t index) {
    Eight eight;
    if (format == kF32) {
        uint64_t at = row + uint64_t{index} * 4;
        auto low = load<FourWords>(at);
        auto high = load<FourWords>(at + 16);
        for (uint32_t i = 0; i < 8; ++i) eight.bits[i] = i < 4 ? low.v[i] : high.v[i - 4];
        return eight;
    }
    auto words = load<FourWords>(row + uint64_t{index} * 2);
    if (format == kF16) {
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 8; ++i) {
            eight.bits[i] = f16_to_f32(words.v[i / 2] >> (i % 2 * 16) & 0xFFFFu);
        }
    } else {
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 8; ++i) {
            uint32_t word = words.v[i / 2];
            eight.bits[i] = i % 2 == 0 ? word << 16 : word & 0xFFFF0000u;
        }
    }
    return eight;
}

// As store_value(), in vectors of 16 bytes. REQUIRES: as for load_eight().
QUIRE_DEVICE inline void store_eight_values(uint32_t format, uint64_t row, uint32_t index,
                                            const Eight &eight) {
    const uint32_t *bits = eight.bits;
    if (format == kF32) {
        uint64_t at = row + uint64_t{index} * 4;
        store<FourWords>(at, {{bits[0], bits[1], bits[2], bits[3]}});
        store<FourWords>(at + 16, {{bits[4], bits[5], bits[6], bits[7]}});
        return;
    }
    FourWords words;
    if (format == kF16) {
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            words.v[i] = f32_to_f16(bits[2 * i]) | f32_to_f16(bits[2 * i + 1]) << 16;
        }
    } else {
        QUIRE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            words.v[i] = f32_to_bf16(bits[2 * i]) | f32_to_bf16(bits[2 * i + 1]) << 16;
        }
    }
    store<FourWords>(row + uint64_t{index} * 2, words);
}

// The code of a value already divided by its scale; int4 in the low 4 bits.
QUIRE_DEVICE inline uint32_t code_of(uint32_t format, uint32_t bits) {
    if (format == kI8 || format == kI4) {
        bool is_byte = format == kI8;
        return f32_to_int(bits, is_byte ? 127.0f : 7.0f) & (is_byte ? 0xFFu : 0xFu);
    }
    bool is_e4m3 = format == kE4m3;
    return f32_to_f8(bits, is_e4m3 ? 3 : 2, is_e4m3 ? 7 : 15, is_e4m3 ? 0x7Eu : 0x7Bu);
}

// The code value that a row's largest value is scaled to.
QUIRE_DEVICE inline float largest_code(uint32_t format) {
    if (format == kI8) return 127.0f;
    if (format == kI4) return 7.0f;
    return format == kE4m3 ? 448.0f : 57344.0f;
}

}  // namespace quire::gpu
