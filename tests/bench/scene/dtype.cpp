// SPDX-License-Identifier: Apache-2.0

#include "dtype.hpp"

#include <quire/base.h>

#include <cstring>

#include "tests/bench/machine/failure.hpp"

namespace quire::bench {

const std::vector<Dtype> &dtypes() {
    static const std::vector<Dtype> table = {
        {"f32", QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, 32, 0},
        {"f16", QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, 16, 0},
        {"bf16", QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, 16, 0},
        {"fp8", QUIRE_DTYPE_F8_E4M3FN, QUIRE_DTYPE_F32, QUIRE_DTYPE_BF16, 8, 4},
        {"fp8-e5m2", QUIRE_DTYPE_F8_E5M2, QUIRE_DTYPE_F32, QUIRE_DTYPE_BF16, 8, 4},
        {"int8", QUIRE_DTYPE_I8, QUIRE_DTYPE_F32, QUIRE_DTYPE_BF16, 8, 4},
        {"int4", QUIRE_DTYPE_I4, QUIRE_DTYPE_F32, QUIRE_DTYPE_BF16, 4, 4},
    };
    return table;
}

const Dtype &find_dtype(const std::string &name) {
    for (const Dtype &dtype : dtypes()) {
        if (name == dtype.name) return dtype;
    }
    throw Failure("no dtype is called '" + name + "'");
}

const char *name_of_dtype(uint32_t id) {
    for (const Dtype &dtype : dtypes()) {
        if (id == dtype.id) return dtype.name;
    }
    throw Failure("no dtype has the number " + std::to_string(id));
}

uint64_t token_bytes(const Dtype &dtype, uint32_t kv_heads, uint32_t dim) {
    return uint64_t{2} * kv_heads * (uint64_t{dim} * dtype.bits / 8 + dtype.scale_bytes);
}

uint64_t written_bytes(uint32_t written_as) { return (written_as >> 8 & 0xFF) / 8; }

void fill_numbers(uint32_t written_as, std::byte *to, uint64_t count) {
    // Exponents of 2^-5 to 2^-1 in the format's encoding, and the remaining bits for the mantissa.
    uint32_t bias = written_as == QUIRE_DTYPE_F16 ? 15 : 127;
    uint32_t mantissa_bits = written_as == QUIRE_DTYPE_F16    ? 10
                             : written_as == QUIRE_DTYPE_BF16 ? 7
                                                              : 23;
    uint64_t size = written_bytes(written_as);
    uint64_t state = 0x853C49E6748FEA9B;
    for (uint64_t i = 0; i < count; ++i) {
        // xorshift64* (Vigna, arXiv 1402.6246).
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        uint64_t random = state * 0x2545F4914F6CDD1D >> 24;
        uint32_t sign = random & 1;
        uint32_t exponent = bias - 5 + static_cast<uint32_t>((random >> 1 & 0xFF) % 5);
        uint32_t mantissa = static_cast<uint32_t>(random >> 9) & ((1u << mantissa_bits) - 1);
        uint32_t bits = (sign << (size * 8 - 1)) | (exponent << mantissa_bits) | mantissa;
        // Little-endian, like everything here.
        std::memcpy(to + i * size, &bits, size);
    }
}

}  // namespace quire::bench
