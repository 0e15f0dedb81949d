// SPDX-License-Identifier: Apache-2.0
//
// Compiled for AVX-512 with AVX512-BF16: scores of bf16 queries over bf16 K, both unconverted. As
// in kernels/tile.cpp, only the table may have external linkage.
//
// Why only these: the instruction adds two products where an f32 one adds one, so it pays off only
// if each operand is one term. An f16 query has two terms, and weights have three.
//
// Order of arithmetic: sixteen partial sums, each of every sixteenth pair of dims in rising order,
// added as kernels/lanes says.

#include <cstddef>
#include <cstdint>

#include "kernels/fetcher.hpp"
#include "kernels/lanes_avx512.hpp"
#include "kernels/matrix.hpp"
#include "kernels/matrix_instructions.hpp"

namespace quire::cpu::QUIRE_CPU_TARGET {

namespace {

constexpr size_t kLine = 64;

// The first `count` bytes of a line, followed by zeros.
inline __m512i line_of(const std::byte *from, size_t count) {
    __mmask64 mask = count >= kLine ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
    return _mm512_maskz_loadu_epi8(mask, from);
}

// kQueries queries by kKeys keys: each load is used for every operand that it meets.
template <size_t kQueries, size_t kKeys>
void score_block(const std::byte *q, size_t q_stride, Rows k, size_t row_bytes, float *scores) {
    Lanes partial[kQueries * kKeys];
#pragma GCC unroll 16
    for (size_t i = 0; i < kQueries * kKeys; ++i) partial[i] = all(0.0f);
    for (size_t at = 0; at < row_bytes; at += kLine) {
        __m512i keys[kKeys];
#pragma GCC unroll 16
        for (size_t j = 0; j < kKeys; ++j) keys[j] = line_of(k[j] + at, row_bytes - at);
#pragma GCC unroll 4
        for (size_t i = 0; i < kQueries; ++i) {
            __m512i one = _mm512_loadu_si512(q + i * q_stride + at);
#pragma GCC unroll 16
            for (size_t j = 0; j < kKeys; ++j) {
                Lanes &sum = partial[i * kKeys + j];
                sum = add_pairs_of_halves(sum, one, keys[j]);
            }
        }
    }
    float total[kQueries * kKeys];
    sums(partial, total);
#pragma GCC unroll 4
    for (size_t i = 0; i < kQueries; ++i) {
        __builtin_memcpy(scores + i * kTileTokens, total + i * kKeys, kKeys * sizeof(float));
    }
}

template <size_t kQueries>
void score_queries(const MatrixScore &t, size_t query, Fetcher *fetcher) {
    constexpr size_t kKeys = kAccumulators / kQueries;
    const size_t q_stride = term_bytes(Format::bf16, t.dim);
    const size_t row_bytes = bytes_of(Format::bf16, t.dim);
    for (size_t key = 0; key < t.keys; key += kKeys) {
        fetcher->step();
        score_block<kQueries, kKeys>(t.q + query * q_stride, q_stride, t.k + key, row_bytes,
                                     t.scores + query * kTileTokens + key);
    }
}

void score(const MatrixScore &t) {
    Fetcher fetcher(t.ahead, size_t{t.keys} * t.queries / kAccumulators);
    size_t query = 0;
    for (; query + 4 <= t.queries; query += 4) score_queries<4>(t, query, &fetcher);
    for (; query + 2 <= t.queries; query += 2) score_queries<2>(t, query, &fetcher);
    for (; query < t.queries; ++query) score_queries<1>(t, query, &fetcher);
}

// A single term, which is the number itself.
void split(Format, const float *values, uint32_t value_count, uint32_t, std::byte *terms,
           float *factor) {
    *factor = 1.0f;
    size_t bytes = term_bytes(Format::bf16, value_count);
    for (size_t at = 0; at < bytes / 2; at += 16) {
        size_t left = at < value_count ? value_count - at : 0;
        auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1u << left) - 1);
        __m512i bits = _mm512_maskz_loadu_epi32(mask, values + at);
        __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(terms + 2 * at), halves);
    }
}

void begin(uint32_t) {}
void end() {}

}  // namespace

extern const MatrixKernels kernels;
const MatrixKernels kernels = {
    "avx512_bf16", begin, end, split, score, nullptr, nullptr,
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
