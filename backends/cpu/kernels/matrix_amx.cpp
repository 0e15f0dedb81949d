// SPDX-License-Identifier: Apache-2.0
//
// Compiled for AMX and AVX-512. As in kernels/tile.cpp, only the table may have external linkage.
//
// Tiles 0 to 3 hold sums, 4 and 5 terms, 6 and 7 operands. Up to 15 of a tile's 16 rows are terms:
// three for each of five queries, or fewer for each of more queries.

#include <cstring>

#include "kernels/fetcher.hpp"
#include "kernels/lanes_avx512.hpp"
#include "kernels/matrix.hpp"
#include "kernels/matrix_instructions.hpp"
#include "kernels/operands_avx512.hpp"

namespace quire::cpu::QUIRE_CPU_TARGET {

namespace {

constexpr size_t kQueriesAtOnce = 5;  // of kTerms each
constexpr size_t kRows = kQueriesAtOnce * kTerms;
constexpr float kMostDigits = 8355000.0f;  // 127.5 * 65536 minus what rounding may add

// Costs in steps of a fetcher, one of which is the time to interleave four rows: of four products
// of tiles, of processing a query's sums, and of splitting its weights.
constexpr size_t kProductWeight = 3;
constexpr size_t kSumsWeight = 1;
constexpr size_t kSplitWeight = 2;

constexpr size_t groups_of(size_t queries, size_t at_once) {
    return (queries + at_once - 1) / at_once;
}

// sums kSums += terms * operand, all in tiles.
template <Format format, int kSums, int kTermsTile, int kOperandTile>
inline void multiply() {
    if constexpr (is_integer(format)) {
        multiply_bytes<kSums, kTermsTile, kOperandTile>();
    } else {
        multiply_halves<kSums, kTermsTile, kOperandTile>();
    }
}

inline void clear_sums() {
    order_memory();
    clear_tile<0>();
    clear_tile<1>();
    clear_tile<2>();
    clear_tile<3>();
}

// Multiplies the terms of up to four groups of queries, kGroups of them and `group` bytes apart, by
// sixteen keys: each 64 bytes of the terms meet a tile of each part. sums: [kGroups][kRows][16].
template <Format format, size_t kGroups>
inline void multiply_queries(const std::byte *terms, size_t terms_stride, size_t group,
                             const std::byte *tiles, std::byte *sums) {
    clear_sums();
    for (size_t at = 0; at < terms_stride; at += kLine, terms += kLine) {
#pragma GCC unroll 2
        for (size_t part = 0; part < kParts<format>; ++part, tiles += kTileBytes) {
            load_tile<6>(tiles, kLine);
            load_tile<4>(terms, terms_stride);
            multiply<format, 0, 4, 6>();
            if constexpr (kGroups > 1) {
                load_tile<5>(terms + group, terms_stride);
                multiply<format, 1, 5, 6>();
            }
            if constexpr (kGroups > 2) {
                load_tile<4>(terms + 2 * group, terms_stride);
                multiply<format, 2, 4, 6>();
            }
            if constexpr (kGroups > 3) {
                load_tile<5>(terms + 3 * group, terms_stride);
                multiply<format, 3, 5, 6>();
            }
        }
    }
    store_tile<0>(sums, kLine);
    if constexpr (kGroups > 1) store_tile<1>(sums + kRows * kLine, kLine);
    if constexpr (kGroups > 2) store_tile<2>(sums + 2 * kRows * kLine, kLine);
    if constexpr (kGroups > 3) store_tile<3>(sums + 3 * kRows * kLine, kLine);
    order_memory();
}

// Multiplies the terms of five queries' weights by a slab. sums: [5][kTerms][64], sums_stride bytes
// per term.
template <Format format>
inline void multiply_slab(const std::byte *terms, size_t terms_stride, const std::byte *slab,
                          std::byte *sums, size_t sums_stride) {
    clear_sums();
    for (size_t at = 0; at < terms_stride; at += kLine) {
        load_tile<4>(terms + at, terms_stride);
#pragma GCC unroll 2
        for (size_t part = 0; part < kParts<format>; ++part, slab += 4 * kTileBytes) {
            load_tile<6>(slab, kLine);
            multiply<format, 0, 4, 6>();
            load_tile<7>(slab + kTileBytes, kLine);
            multiply<format, 1, 4, 7>();
            load_tile<6>(slab + 2 * kTileBytes, kLine);
            multiply<format, 2, 4, 6>();
            load_tile<7>(slab + 3 * kTileBytes, kLine);
            multiply<format, 3, 4, 7>();
        }
    }
    store_tile<0>(sums, sums_stride);
    store_tile<1>(sums + kLine, sums_stride);
    store_tile<2>(sums + 2 * kLine, sums_stride);
    store_tile<3>(sums + 3 * kLine, sums_stride);
    order_memory();
}

// Combines the sums of a query's terms into one, for sixteen columns from `at` on.
template <Format format, size_t kCount>
inline Lanes sum_of_terms(const std::byte *at, size_t stride) {
    if constexpr (is_integer(format)) {
        static_assert(kCount == kTerms);
        Lanes a = _mm512_cvtepi32_ps(_mm512_load_si512(at));
        Lanes b = _mm512_cvtepi32_ps(_mm512_load_si512(at + stride));
        Lanes c = _mm512_cvtepi32_ps(_mm512_load_si512(at + 2 * stride));
        return fma(a, all(65536.0f), fma(b, all(256.0f), c));
    } else {
        Lanes a = _mm512_load_ps(at);
        if constexpr (kCount == 1) return a;
        Lanes b = _mm512_load_ps(at + stride);
        if constexpr (kCount == 2) return add(a, b);
        Lanes c = _mm512_load_ps(at + 2 * stride);
        return add(a, add(b, c));
    }
}

// Terms.
// ------------------------------------------------------------------------------------------

// The largest magnitude; NaN or an infinity if there is one.
inline float magnitude(const float *values, size_t count) {
    Bytes most = _mm512_setzero_si512();
    for (size_t at = 0; at < count; at += 16) {
        Bytes bits = _mm512_castps_si512(part(values, at, count));
        most = _mm512_max_epi32(most, _mm512_and_epi32(bits, _mm512_set1_epi32(0x7FFFFFFF)));
    }
    return std::bit_cast<float>(_mm512_reduce_max_epi32(most));
}

template <size_t kGroup>
void split_digits(const float *values, size_t count, size_t bytes, std::byte *terms,
                  float *factor) {
    float most = magnitude(values, count);
    bool is_finite = most < __builtin_inff();
    // Below this the quotient could overflow; the loss is negligible.
    bool is_tiny = most < 0x1p-100f;
    float by = is_tiny || !is_finite ? 0.0f : kMostDigits / most;
    *factor = is_finite ? most / kMostDigits : __builtin_nanf("");
    const Bytes half = _mm512_set1_epi32(0x00808080);
    for (size_t at = 0; at < bytes; at += 16) {
        Lanes scaled = mul(arranged<kGroup>(values, at, count), all(by));
        // Adding half of the base to each digit makes every digit non-negative; flipping that bit
        // subtracts it again.
        Bytes digits = _mm512_xor_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(scaled), half), half);
        auto *to = reinterpret_cast<__m128i *>(terms + at);
        auto *second = reinterpret_cast<__m128i *>(terms + bytes + at);
        auto *third = reinterpret_cast<__m128i *>(terms + 2 * bytes + at);
        _mm_store_si128(to, _mm512_cvtepi32_epi8(_mm512_srli_epi32(digits, 16)));
        _mm_store_si128(second, _mm512_cvtepi32_epi8(_mm512_srli_epi32(digits, 8)));
        _mm_store_si128(third, _mm512_cvtepi32_epi8(digits));
    }
}

inline void store_upper(std::byte *to, Lanes a) {
    _mm256_store_si256(reinterpret_cast<__m256i *>(to), upper_halves(a));
}

// Stores the first `count` of three terms; the values' type guarantees that the others are 0.
template <size_t kGroup>
void split_halves(const float *values, size_t value_count, size_t bytes, uint32_t count,
                  std::byte *terms) {
    for (size_t at = 0; at < bytes; at += 32) {
        Lanes value = arranged<kGroup>(values, at / 2, value_count);
        Lanes rest = rest_of(value);
        store_upper(terms + at, value);
        if (count > 1) store_upper(terms + bytes + at, rest);
        if (count > 2) store_upper(terms + 2 * bytes + at, sub(rest, upper_half(rest)));
    }
}

void split(Format format, const float *values, uint32_t value_count, uint32_t count,
           std::byte *terms, float *factor) {
    size_t bytes = term_bytes(format, value_count);
    *factor = 1.0f;
    switch (format) {
        case Format::i4:
            return split_digits<128>(values, value_count, bytes, terms, factor);
        case Format::i8:
            return split_digits<0>(values, value_count, bytes, terms, factor);
        case Format::f16:
        case Format::bf16:
            return split_halves<0>(values, value_count, bytes, count, terms);
        default:
            return split_halves<64>(values, value_count, bytes, count, terms);
    }
}

// Scores.
// ------------------------------------------------------------------------------------------

// Scores of kGroups groups of queries, from `query` on, over sixteen keys, from `key` on, with
// kCount terms each.
template <Format format, size_t kCount, size_t kGroups>
void score_queries(const MatrixScore &t, size_t query, size_t key, Fetcher *fetcher) {
    constexpr size_t kAtOnce = kRows / kCount;
    const size_t terms_stride = term_bytes(format, t.dim);
    MatrixScratch &s = *t.scratch;
    fetcher->step(kProductWeight * kGroups);
    multiply_queries<format, kGroups>(t.q + query * kCount * terms_stride, terms_stride,
                                      kAtOnce * kCount * terms_stride, s.operand, s.sums);
    for (size_t group = 0; group < kGroups; ++group) {
        const std::byte *at = s.sums + group * kRows * kLine;
        for (size_t i = 0; i < kAtOnce && query < t.queries; ++i, ++query, at += kCount * kLine) {
            Lanes score = sum_of_terms<format, kCount>(at, kLine);
            store(t.scores + query * kTileTokens + key, mul(score, all(t.factors[query])));
        }
    }
}

template <Format format, size_t kCount>
void score_format(const MatrixScore &t) {
    constexpr size_t kAtOnce = kRows / kCount;
    const size_t row_bytes = bytes_of(format, t.dim);
    const size_t lines = (row_bytes + kLine - 1) / kLine;
    const size_t groups = groups_of(t.queries, kAtOnce);
    Fetcher fetcher(t.ahead, t.keys / 16 * (4 * lines + kProductWeight * groups));
    for (size_t key = 0; key < t.keys; key += 16) {
        interleave_keys<format>(t.k + key, row_bytes, t.scratch->operand, &fetcher);
        size_t query = 0;
        for (; query + 3 * kAtOnce < t.queries; query += 4 * kAtOnce) {
            score_queries<format, kCount, 4>(t, query, key, &fetcher);
        }
        if (query >= t.queries) continue;
        size_t left = groups_of(t.queries - query, kAtOnce);
        if (left == 3) score_queries<format, kCount, 3>(t, query, key, &fetcher);
        if (left == 2) score_queries<format, kCount, 2>(t, query, key, &fetcher);
        if (left == 1) score_queries<format, kCount, 1>(t, query, key, &fetcher);
    }
}

// Values.
// ------------------------------------------------------------------------------------------

// Weights are contracted with whole rows, so those for int4 are not rearranged.
constexpr Format weights_format(Format format) {
    return format == Format::i4 ? Format::i8 : format;
}

inline void take(float kept, Lanes sum, float factor, float *out) {
    store(out, fma(sum, all(factor), mul(all(kept), load(out))));
}

// Adds the sums of kSlabs slabs to one query's result so far: `vectors` of sixteen elements.
template <Format format>
inline void take_slabs(const std::byte *sums, size_t stride, float kept, float factor, float *out,
                       size_t vectors) {
    Lanes slabs[kSlabs<format>][4];
#pragma GCC unroll 2
    for (size_t s = 0; s < kSlabs<format>; ++s) {
#pragma GCC unroll 4
        for (size_t t = 0; t < 4; ++t) {
            slabs[s][t] = sum_of_terms<format, kTerms>(sums + (4 * s + t) * kLine, stride);
        }
        if constexpr (is_half(format)) {
            order_half_slab(slabs[s]);
        } else {
            order_slab(slabs[s]);
        }
    }
    if constexpr (kSlabs<format> == 2) {
#pragma GCC unroll 4
        for (size_t t = 0; t < 4; ++t) {
            Lanes first, second;
            order_pair(slabs[0][t], slabs[1][t], &first, &second);
            if (2 * t < vectors) take(kept, first, factor, out + 32 * t);
            if (2 * t + 1 < vectors) take(kept, second, factor, out + 32 * t + 16);
        }
    } else {
#pragma GCC unroll 4
        for (size_t t = 0; t < 4; ++t) {
            if (t < vectors) take(kept, slabs[0][t], factor, out + 16 * t);
        }
    }
}

template <Format format>
void absorb_format(const MatrixAbsorb &t) {
    constexpr Format kTermsOf = weights_format(format);
    constexpr size_t kWeightBytes = term_bytes(kTermsOf, kTileTokens);
    constexpr size_t kVectors = 4 * kSlabs<format>;
    constexpr size_t kSumsStride = kVectors * kLine;
    MatrixScratch &s = *t.scratch;
    size_t row_bytes = bytes_of(format, t.dim);
    size_t slabs = (row_bytes + kSlabBytes<format> - 1) / kSlabBytes<format>;
    size_t products = groups_of(t.queries, kQueriesAtOnce) * kSlabs<format>;
    Fetcher fetcher(
        t.ahead, slabs * (kTileTokens / 4 + products * kProductWeight + t.queries * kSumsWeight) +
                     t.queries * kSplitWeight);
    for (size_t i = 0; i < t.queries; ++i) {
        fetcher.step(kSplitWeight);
        split(kTermsOf, t.weights + i * kTileTokens, kTileTokens, kTerms,
              s.weights + i * kTerms * kWeightBytes, &s.factors[i]);
    }
    size_t vectors = (t.dim + 15) / 16;
    for (size_t first = 0, at = 0; first < vectors; first += kVectors) {
        interleave_values<format>(t.v, at, row_bytes - at, s.operand, &fetcher);
        at += kSlabBytes<format>;
        for (size_t query = 0; query < t.queries; query += kQueriesAtOnce) {
            for (size_t i = 0; i < kSlabs<format>; ++i) {
                fetcher.step(kProductWeight);
                multiply_slab<format>(s.weights + query * kTerms * kWeightBytes, kWeightBytes,
                                      s.operand + i * kSteps<format> * 4 * kTileBytes,
                                      s.sums + 4 * i * kLine, kSumsStride);
            }
            for (size_t i = query; i < query + kQueriesAtOnce && i < t.queries; ++i) {
                fetcher.step(kSumsWeight);
                if (t.kept[i] < 0.0f) continue;
                take_slabs<format>(s.sums + (i - query) * kTerms * kSumsStride, kSumsStride,
                                   t.kept[i], s.factors[i], t.out + i * t.out_stride + 16 * first,
                                   vectors - first);
            }
        }
    }
}

// Rows.
// --------------------------------------------------------------------------------------------

// True if `same` holds for no line of these rows. An element whose bits under the mask are all ones
// is infinite or a NaN.
template <typename Same>
bool no_line(Rows rows, uint64_t which, size_t row_bytes, Same same) {
    for (; which != 0; which &= which - 1) {
        const std::byte *row = rows[std::countr_zero(which)];
        for (size_t at = 0; at < row_bytes; at += kLine) {
            if (same(_mm512_maskz_loadu_epi8(line_mask(row_bytes - at), row + at))) return false;
        }
    }
    return true;
}

bool are_finite(Format format, Rows rows, uint64_t which, uint32_t dim) {
    auto has_bytes = [](Bytes line, int bits) {
        Bytes mask = _mm512_set1_epi8(static_cast<char>(bits));
        return _mm512_cmpeq_epi8_mask(_mm512_and_si512(line, mask), mask) != 0;
    };
    auto has_halves = [](Bytes line, int bits) {
        Bytes mask = _mm512_set1_epi16(static_cast<short>(bits));
        return _mm512_cmpeq_epi16_mask(_mm512_and_si512(line, mask), mask) != 0;
    };
    switch (format) {
        case Format::f16:
            return no_line(rows, which, bytes_of(format, dim),
                           [&](Bytes line) { return has_halves(line, 0x7C00); });
        case Format::bf16:
            return no_line(rows, which, bytes_of(format, dim),
                           [&](Bytes line) { return has_halves(line, 0x7F80); });
        case Format::e4m3:
            return no_line(rows, which, bytes_of(format, dim),
                           [&](Bytes line) { return has_bytes(line, 0x7F); });
        case Format::e5m2:
            return no_line(rows, which, bytes_of(format, dim),
                           [&](Bytes line) { return has_bytes(line, 0x7C); });
        default:
            return true;
    }
}

// The unit.
// ----------------------------------------------------------------------------------------

struct alignas(64) TileConfig {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// Configures rows for the terms of weights; queries with fewer terms need no more rows.
void begin(uint32_t queries) {
    size_t most = queries < kQueriesAtOnce ? queries : kQueriesAtOnce;
    TileConfig config = {};
    config.palette = 1;
    for (size_t tile = 0; tile < 8; ++tile) {
        config.row_bytes[tile] = kLine;
        config.rows[tile] = static_cast<uint8_t>(tile < 6 ? most * kTerms : kTileRows);
    }
    order_memory();
    load_tile_config(&config);
}

void end() { release_tiles(); }

template <typename Body>
inline void for_format(Format format, Body body) {
    switch (format) {
        case Format::i8:
            return body.template operator()<Format::i8>();
        case Format::i4:
            return body.template operator()<Format::i4>();
        case Format::e4m3:
            return body.template operator()<Format::e4m3>();
        case Format::e5m2:
            return body.template operator()<Format::e5m2>();
        case Format::f16:
            return body.template operator()<Format::f16>();
        default:
            return body.template operator()<Format::bf16>();
    }
}

void score(const MatrixScore &t) {
    for_format(t.format, [&]<Format format>() {
        if constexpr (is_half(format)) {
            if (t.terms == 1) return score_format<format, 1>(t);
            if (t.terms == 2) return score_format<format, 2>(t);
        }
        score_format<format, kTerms>(t);
    });
}

void absorb(const MatrixAbsorb &t) {
    for_format(t.format, [&]<Format format>() { absorb_format<format>(t); });
}

}  // namespace

extern const MatrixKernels kernels;
const MatrixKernels kernels = {
    "amx", begin, end, split, score, absorb, are_finite,
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
