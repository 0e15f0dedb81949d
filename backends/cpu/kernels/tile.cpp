// SPDX-License-Identifier: Apache-2.0
//
// Compiled once per instruction set, which QUIRE_CPU_TARGET names. Only the table may have external
// linkage: an inline function compiled for one instruction set must not be the copy that the linker
// keeps for all. The namespace is the target's, so that a disassembly shows which instruction set
// each function needs.

#include "kernels/tile.hpp"

#include "kernels/fetcher.hpp"
#include "kernels/lanes.hpp"
#include "kernels/lanes_math.hpp"

namespace quire::cpu::QUIRE_CPU_TARGET {

namespace {

constexpr float kInfinity = __builtin_inff();

// Rows of a format, sixteen elements at a time.
template <Format>
struct Reader;
template <>
struct Reader<Format::f32> {
    static Lanes load(const std::byte *row, size_t v) {
        return QUIRE_CPU_TARGET::load(reinterpret_cast<const float *>(row) + 16 * v);
    }
};
template <>
struct Reader<Format::f16> {
    static Lanes load(const std::byte *row, size_t v) { return load_f16(row + 32 * v); }
};
template <>
struct Reader<Format::bf16> {
    static Lanes load(const std::byte *row, size_t v) { return load_bf16(row + 32 * v); }
};
template <>
struct Reader<Format::i8> {
    static Lanes load(const std::byte *row, size_t v) { return load_i8(row + 16 * v); }
};
template <>
struct Reader<Format::i4> {
    static Lanes load(const std::byte *row, size_t v) { return load_i4(row + 8 * v); }
};
template <>
struct Reader<Format::e4m3> {
    static Lanes load(const std::byte *row, size_t v) { return load_e4m3(row + 16 * v); }
};
template <>
struct Reader<Format::e5m2> {
    static Lanes load(const std::byte *row, size_t v) { return load_e5m2(row + 16 * v); }
};

// Offsets are size_t: with a narrower type the compiler must compute each address separately.
using Offset = size_t;

// Scores.
// ------------------------------------------------------------------------------------------

// kQueries queries by kKeys keys: each load is used for every operand that it meets.
template <Format format, uint32_t kQueries, uint32_t kKeys>
inline void score_block(const float *q, Offset q_stride, Rows k, Offset vectors, float *scores) {
    Lanes partial[kQueries * kKeys];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kQueries * kKeys; ++i) partial[i] = all(0.0f);
#pragma GCC unroll 2
    for (Offset v = 0; v < vectors; ++v) {
        Lanes keys[kKeys];
#pragma GCC unroll 16
        for (uint32_t j = 0; j < kKeys; ++j) keys[j] = Reader<format>::load(k[j], v);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < kQueries; ++i) {
            Lanes one = load(q + i * q_stride + 16 * v);
#pragma GCC unroll 16
            for (uint32_t j = 0; j < kKeys; ++j) {
                partial[i * kKeys + j] = fma(one, keys[j], partial[i * kKeys + j]);
            }
        }
    }
    float total[kQueries * kKeys];
    sums(partial, total);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kQueries; ++i) {
        __builtin_memcpy(scores + i * kTileTokens, total + i * kKeys, kKeys * sizeof(float));
    }
}

template <Format format, uint32_t kQueries>
void score_queries(const ScoreTile &t, uint32_t query, Fetcher *fetcher) {
    constexpr uint32_t kKeys = kAccumulators / kQueries;
    const float *q = t.q + Offset{query} * t.q_stride;
    float *scores = t.scores + Offset{query} * kTileTokens;
    for (Offset key = 0; key < t.keys; key += kKeys) {
        fetcher->step();
        score_block<format, kQueries, kKeys>(q, t.q_stride, t.k + key, t.vectors, scores + key);
    }
}

template <Format format>
void score_format(const ScoreTile &t) {
    Fetcher fetcher(t.ahead, size_t{t.keys} * t.queries / kAccumulators);
    uint32_t query = 0;
    if constexpr (kAccumulators >= 4) {
        for (; query + 4 <= t.queries; query += 4) score_queries<format, 4>(t, query, &fetcher);
    }
    for (; query + 2 <= t.queries; query += 2) score_queries<format, 2>(t, query, &fetcher);
    for (; query < t.queries; ++query) score_queries<format, 1>(t, query, &fetcher);
}

// Groups of sixteen keys scored together: each broadcast element of q is used for all of them.
constexpr uint32_t kGroups = 2;

// Sums lanes i and i + 8 of each key; a lane is q . k over every sixteenth dim. q and k begin at i.
template <uint32_t kQueries>
inline void add_lane_pair(const float *q, const float *k, Offset vectors,
                          Lanes (&sums)[kQueries][kGroups]) {
    Lanes lanes[2][kQueries][kGroups];
    for (auto &half : lanes) {
        for (auto &query : half) {
            for (Lanes &one : query) one = all(0.0f);
        }
    }
    for (Offset v = 0; v < vectors; ++v) {
#pragma GCC unroll 2
        for (Offset half = 0; half < 2; ++half) {
            Lanes keys[kGroups];
#pragma GCC unroll 2
            for (Offset g = 0; g < kGroups; ++g)
                keys[g] = load(k + 8 * half * kTileTokens + 16 * g);
#pragma GCC unroll 8
            for (Offset i = 0; i < kQueries; ++i) {
                Lanes one = all(q[8 * half * kPack + i]);
#pragma GCC unroll 2
                for (Offset g = 0; g < kGroups; ++g) {
                    lanes[half][i][g] = fma(one, keys[g], lanes[half][i][g]);
                }
            }
        }
        q += 16 * kPack;
        k += 16 * kTileTokens;
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
        for (uint32_t g = 0; g < kGroups; ++g) sums[i][g] = add(lanes[0][i][g], lanes[1][i][g]);
    }
}

// The tree of sum() by columns: adds lanes [first, first + 8) in steps of 8 / kPairs, each with the
// lane 8 after it.
template <uint32_t kQueries, uint32_t kPairs>
inline void add_lanes(const float *q, const float *k, Offset vectors, uint32_t first,
                      Lanes (&sums)[kQueries][kGroups]) {
    if constexpr (kPairs == 1) {
        add_lane_pair(q + first * kPack, k + first * kTileTokens, vectors, sums);
    } else {
        Lanes others[kQueries][kGroups];
        add_lanes<kQueries, kPairs / 2>(q, k, vectors, first, sums);
        add_lanes<kQueries, kPairs / 2>(q, k, vectors, first + 8 / kPairs, others);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
            for (uint32_t g = 0; g < kGroups; ++g) sums[i][g] = add(sums[i][g], others[i][g]);
        }
    }
}

void score_columns(const ScoreColumns &t) {
    constexpr Offset kQueries = kAccumulators >= 16 ? 4 : 1;
    constexpr Offset kKeys = 16 * kGroups;
    Fetcher fetcher(t.ahead, Offset{t.packs} * t.keys / kKeys * (kPack / kQueries));
    for (Offset pack = 0; pack < t.packs; ++pack) {
        const float *q = t.q + pack * 16 * t.vectors * kPack;
        float *scores = t.scores + pack * kPack * kTileTokens;
        for (Offset first = 0; first < kPack; first += kQueries) {
            for (Offset key = 0; key < t.keys; key += kKeys) {
                fetcher.step();
                Lanes sums[kQueries][kGroups];
                add_lanes<kQueries, 8>(q + first, t.k + key, t.vectors, 0, sums);
#pragma GCC unroll 8
                for (Offset i = 0; i < kQueries; ++i) {
                    float *row = scores + (first + i) * kTileTokens + key;
                    for (Offset g = 0; g < kGroups; ++g) store(row + 16 * g, sums[i][g]);
                }
            }
        }
    }
}

// Weights.
// -----------------------------------------------------------------------------------------

inline float exponential_of(float a) {
    float lanes[16];
    store(lanes, exponential(all(a)));
    return lanes[0];
}

// The factor that turns sums relative to `before` into sums relative to `after`.
inline float kept_of(float before, float after) {
    if (before == after) return 1.0f;
    return before == -kInfinity ? 0.0f : exponential_of(before - after);
}

inline Lanes changed(const WeighTile &t, Lanes score, uint32_t first) {
    if (t.k_scales != nullptr) score = mul(score, load(t.k_scales + first));
    if (t.soft_cap != 0.0f) {
        score = mul(all(t.soft_cap), tangent(div(score, all(t.soft_cap))));
    }
    if (t.distances != nullptr) {
        score = sub(score, mul(all(t.slope), load(t.distances + first)));
    }
    return score;
}

template <bool kChanges>
float weigh_tile(const WeighTile &t, float *scores, Softmax *softmax) {
    Lanes all_scores[kTileTokens / 16];
    Lanes most = all(-kInfinity);
#pragma GCC unroll 4
    for (uint32_t v = 0; v < kTileTokens / 16; ++v) {
        Lanes score = mul(load(scores + 16 * v), all(t.scale));
        if constexpr (kChanges) score = changed(t, score, 16 * v);
        auto visible = static_cast<LaneMask>(t.visible >> (16 * v));
        all_scores[v] = select(visible, score, all(-kInfinity));
        most = larger(all_scores[v], most);
    }
    float tile_top = top(most);
    float after = tile_top > softmax->top ? tile_top : softmax->top;
    // Scores that are all -inf get weight 0; -inf - -inf would be NaN.
    float shift = after == -kInfinity ? 0.0f : after;
    Lanes total = all(0.0f);
#pragma GCC unroll 4
    for (uint32_t v = 0; v < kTileTokens / 16; ++v) {
        auto visible = static_cast<LaneMask>(t.visible >> (16 * v));
        Lanes weight = exponential(sub(all_scores[v], all(shift)));
        weight = select(visible, weight, all(0.0f));
        total = add(total, weight);
        if constexpr (kChanges) {
            weight = mul(weight, all(t.v_scale));
            if (t.v_scales != nullptr) {  // may be NaN for a key that is not seen
                weight = select(visible, mul(weight, load(t.v_scales + 16 * v)), all(0.0f));
            }
        }
        store(scores + 16 * v, weight);
    }
    float kept = kept_of(softmax->top, after);
    softmax->top = after;
    softmax->sum = softmax->sum * kept + sum(total);
    return kept;
}

float weigh(const WeighTile &t, float *scores, Softmax *softmax) {
    bool changes = t.k_scales != nullptr || t.v_scales != nullptr || t.v_scale != 1.0f ||
                   t.soft_cap != 0.0f || t.distances != nullptr;
    return changes ? weigh_tile<true>(t, scores, softmax) : weigh_tile<false>(t, scores, softmax);
}

// Values.
// ------------------------------------------------------------------------------------------

constexpr size_t kKeysPerStep = 4;

// Adds to vectors [first, first + kVectors) of kQueries results.
template <Format format, uint32_t kQueries, uint32_t kVectors>
void absorb_block(const AbsorbTile &t, Offset query, Offset first, Fetcher *fetcher) {
    Lanes result[kQueries * kVectors];
    const Offset stride = t.out_stride;
    float *out = t.out + query * stride + 16 * first;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kQueries; ++i) {
        Lanes kept = all(t.kept[query + i]);
#pragma GCC unroll 16
        for (uint32_t v = 0; v < kVectors; ++v) {
            result[i * kVectors + v] = mul(kept, load(out + i * stride + 16 * v));
        }
    }
    const float *weights = t.weights + query * kTileTokens;
    const Rows rows = t.v;
    const Offset end = t.end;
    auto take = [&](Offset key) {
        const std::byte *row = rows[key];
        Lanes values[kVectors];
#pragma GCC unroll 16
        for (uint32_t v = 0; v < kVectors; ++v) values[v] = Reader<format>::load(row, first + v);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < kQueries; ++i) {
            Lanes weight = all(weights[i * kTileTokens + key]);
#pragma GCC unroll 16
            for (uint32_t v = 0; v < kVectors; ++v) {
                result[i * kVectors + v] = fma(weight, values[v], result[i * kVectors + v]);
            }
        }
    };
    Fetcher own = *fetcher;  // a copy stays in registers
    Offset key = t.begin;
    for (; key + kKeysPerStep <= end; key += kKeysPerStep) {
        own.step();
#pragma GCC unroll 4
        for (Offset j = 0; j < kKeysPerStep; ++j) take(key + j);
    }
    for (; key < end; ++key) take(key);
    *fetcher = own;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
        for (uint32_t v = 0; v < kVectors; ++v) {
            store(out + i * stride + 16 * v, result[i * kVectors + v]);
        }
    }
}

template <uint32_t kQueries>
constexpr uint32_t kAbsorbVectors = kAccumulators / kQueries > 8 ? 8 : kAccumulators / kQueries;

template <Format format, uint32_t kQueries>
void absorb_queries(const AbsorbTile &t, uint32_t query, Fetcher *fetcher) {
    constexpr uint32_t kVectors = kAbsorbVectors<kQueries>;
    Offset first = 0;
    for (; first + kVectors <= t.vectors; first += kVectors) {
        absorb_block<format, kQueries, kVectors>(t, query, first, fetcher);
    }
    for (; first < t.vectors; ++first) {
        absorb_block<format, kQueries, 1>(t, query, first, fetcher);
    }
}

template <Format format>
void absorb_format(const AbsorbTile &t) {
    // A single query leaves half of the registers unused.
    size_t queries = t.queries == 1 && kAccumulators >= 16 ? 2 : t.queries;
    size_t steps = size_t{t.end - t.begin} / kKeysPerStep * t.vectors * queries / kAccumulators;
    Fetcher fetcher(t.ahead, steps);
    uint32_t query = 0;
    if constexpr (kAccumulators >= 16) {
        for (; query + 8 <= t.queries; query += 8) absorb_queries<format, 8>(t, query, &fetcher);
    }
    if constexpr (kAccumulators >= 4) {
        for (; query + 4 <= t.queries; query += 4) absorb_queries<format, 4>(t, query, &fetcher);
    }
    for (; query + 2 <= t.queries; query += 2) absorb_queries<format, 2>(t, query, &fetcher);
    for (; query < t.queries; ++query) absorb_queries<format, 1>(t, query, &fetcher);
}

// States.
// ------------------------------------------------------------------------------------------

void fold(Softmax *earlier, float *out, const Softmax &later, const float *later_out,
          uint32_t vectors) {
    if (later.top == -kInfinity && later.sum == 0.0f) return;
    float after = later.top > earlier->top ? later.top : earlier->top;
    float kept = kept_of(earlier->top, after);
    float added = kept_of(later.top, after);
    earlier->top = after;
    earlier->sum = earlier->sum * kept + later.sum * added;
    for (uint32_t v = 0; v < vectors; ++v) {
        Lanes before = mul(all(kept), load(out + 16 * v));
        store(out + 16 * v, fma(all(added), load(later_out + 16 * v), before));
    }
}

void divide(float *values, float by, uint32_t vectors) {
    for (uint32_t v = 0; v < vectors; ++v) {
        store(values + 16 * v, div(load(values + 16 * v), all(by)));
    }
}

// Copies.
// ------------------------------------------------------------------------------------------

float factor(Format format) { return format == Format::e4m3 ? kE4m3Factor : 1.0f; }

// Sixteen elements from `first` on, with zeros past the last.
template <Format format>
inline Lanes load_part(const std::byte *row, uint32_t first, uint32_t dim) {
    if (first + 16 <= dim) return Reader<format>::load(row, first / 16);
    alignas(64) std::byte rest[64] = {};
    __builtin_memcpy(rest, row + bytes_of(format, first), bytes_of(format, dim - first));
    return Reader<format>::load(rest, 0);
}

template <Format format>
void stage_format(Rows rows, uint32_t keys, uint32_t dim, float *copies) {
    uint32_t stride = (dim + 15) / 16 * 16;
    for (uint32_t key = 0; key < keys; ++key) {
        float *copy = copies + Offset{key} * stride;
        for (uint32_t d = 0; d < dim; d += 16)
            store(copy + d, load_part<format>(rows[key], d, dim));
    }
}

template <Format format>
void stage_columns_format(Rows rows, uint32_t keys, uint32_t dim, float *columns) {
    for (uint32_t key = 0; key < keys; key += 16) {
        for (uint32_t d = 0; d < dim; d += 16) {
            Lanes square[16];
#pragma GCC unroll 16
            for (uint32_t j = 0; j < 16; ++j) square[j] = load_part<format>(rows[key + j], d, dim);
            transpose(square);
            float *to = columns + Offset{d} * kTileTokens + key;
#pragma GCC unroll 16
            for (Offset i = 0; i < 16; ++i) store(to + i * kTileTokens, square[i]);
        }
    }
}

// Calls body.template operator()<format>() for the tile's format.
template <typename Body>
inline void for_format(Format format, Body body) {
    switch (format) {
        case Format::f32:
            return body.template operator()<Format::f32>();
        case Format::f16:
            return body.template operator()<Format::f16>();
        case Format::bf16:
            return body.template operator()<Format::bf16>();
        case Format::i8:
            return body.template operator()<Format::i8>();
        case Format::i4:
            return body.template operator()<Format::i4>();
        case Format::e4m3:
            return body.template operator()<Format::e4m3>();
        case Format::e5m2:
            return body.template operator()<Format::e5m2>();
    }
}

void score(const ScoreTile &t) {
    for_format(t.format, [&]<Format format>() { score_format<format>(t); });
}

void absorb(const AbsorbTile &t) {
    for_format(t.format, [&]<Format format>() { absorb_format<format>(t); });
}

void stage(Format from, Rows rows, uint32_t keys, uint32_t dim, float *copies) {
    for_format(from, [&]<Format format>() { stage_format<format>(rows, keys, dim, copies); });
}

void stage_columns(Format from, Rows rows, uint32_t keys, uint32_t dim, float *columns) {
    for_format(from,
               [&]<Format format>() { stage_columns_format<format>(rows, keys, dim, columns); });
}

}  // namespace

#define QUIRE_CPU_NAME_OF(target) #target
#define QUIRE_CPU_NAME(target) QUIRE_CPU_NAME_OF(target)

extern const TileKernels kernels;
const TileKernels kernels = {
    QUIRE_CPU_NAME(QUIRE_CPU_TARGET),
    factor,
    stage,
    stage_columns,
    score,
    score_columns,
    weigh,
    absorb,
    fold,
    divide,
};
}  // namespace quire::cpu::QUIRE_CPU_TARGET
