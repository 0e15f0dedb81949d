// SPDX-License-Identifier: Apache-2.0
//
// calls: the arguments of kernels, as host and device see them.
//
// A launch's arguments, at most 4,096 bytes, hold everything it needs: nothing of ours has to
// outlive the call, and a captured launch holds everything it reads except the engine's own memory.
// Long lists of copies or fills, which are never captured, lie elsewhere (piece_ring.hpp).
//
// Invariants
//   (1) each struct begins with a Head, has no padding that matters, and has at most kMostBytes
//
// Threads: none; plain data.
#pragma once

#include <stdint.h>

#include "shared/fence_value.hpp"
#include "shared/kernel_enums.hpp"

namespace quire::gpu {

constexpr uint32_t kMostBytes = 4096;

// The beginning of every kernel's arguments.
struct Head {
    uint64_t fault;        // address of a uint32: nonzero once the queue has failed
    uint64_t record;       // address of the queue's QueueRecord
    uint64_t group_count;  // groups from this index on have nothing to do
};

// In pinned memory: what a queue reports to the host. `code` is written last.
struct QueueRecord {
    uint64_t reached;  // all places up to this one have been passed
    uint32_t code;     // FaultCode; 0: no failure
    uint32_t index;
    int32_t values[4];
};

enum FaultCode : uint32_t {
    kFaultSlot = 1,
    kFaultCounts = 2,
    kFaultSharedPrefix = 3,
    kFaultMaskWord = 4,
    kFaultMaskPosition = 5,
    kFaultMaskFirst = 6,
    kFaultTableTooShort = 7,
    kFaultBlock = 8,
    kFaultFence = 9,  // the queue waited for a fence that failed
    kFaultGraph = 10  // the step has more query tokens than the graph
};

// In pinned memory: a fence. Each word has one writer, the host or the device's kernels.
struct FenceWords {
    uint64_t value;    // as raised by kernels
    uint64_t by_host;  // as raised by the host
};

struct FenceCall {
    Head head;
    uint64_t fence;  // address of FenceWords
    uint64_t value;
    uint64_t place;  // on the queue; reached after this kernel
};

// A piece of a copy or a fill.
struct BytePiece {
    uint64_t dst;
    uint64_t src;  // for a fill, the byte
    uint64_t size_bytes;
};
constexpr uint32_t kPieceBytes = 16 << 10;
constexpr uint32_t kMostPieces = 160;
struct PieceCall {
    Head head;
    uint64_t list;  // address of the pieces; 0: they are in `pieces`
    BytePiece pieces[kMostPieces];
};

enum ScaleKind : uint32_t { kScaleTokenHead = 3 };  // QUIRE_SCALE_TOKEN_HEAD

constexpr uint32_t kMostElements = 576;  // of a row of K
constexpr uint32_t kMostValues = 512;    // of a row of V
constexpr uint32_t kMostPairs = 288;     // of a rope

// The sides of a token that kv_write divides over blocks of kWriteThreads; latent rows have no V.
enum WriteSide : uint32_t { kWriteQ, kWriteK, kWriteV, kWriteSides };
constexpr uint32_t kWriteThreads = 64;

struct KvWriteCall {
    Head head;
    uint64_t k, v, slots, positions, q;
    uint64_t pool, scales, amax;  // at the layer
    int64_t slot_count;
    int64_t block_stride, v_offset;
    int64_t k_head_stride, k_token_stride, v_head_stride, v_token_stride;
    int64_t k_scale_offset, v_scale_offset, scale_head_stride;
    int64_t k_given_stride, v_given_stride, q_stride;  // elements
    uint32_t block_tokens, kv_heads, k_dim, v_dim;
    uint32_t k_format, v_format, k_scale, v_scale;
    uint32_t given_format, q_format, q_heads, rotated_dim;
    uint32_t is_in_pairs, is_latent;
    float magnitude;
    uint32_t reserved0;
    uint32_t blocks[kWriteSides];     // per token
    uint32_t lane_bits[kWriteSides];  // 2^this lanes share a row, at most 32
    // Per pair, the angle of one position in units of 2^-64 turns, so that an angle is one integer
    // product, which wraps as turns do.
    uint64_t turns[kMostPairs];
};

struct Move {
    int64_t src, dst;
};
constexpr uint32_t kMostMoves = 224;
struct MoveCall {
    Head head;
    uint64_t pool;
    int64_t block_stride, layer_stride, v_offset;
    int64_t k_head_stride, k_token_stride, v_head_stride, v_token_stride;
    int64_t k_scale_offset, v_scale_offset, scale_head_stride;
    uint32_t block_tokens, kv_heads, move_count;
    uint32_t k_bytes, v_bytes, k_scale_bytes, v_scale_bytes;
    uint32_t reserved0;
    Move moves[kMostMoves];
};

struct MergeCall {
    Head head;
    uint64_t parts, lses, out, lse;
    uint64_t row_count;
    uint32_t part_count, head_dim, format, reserved0;
};

enum WidthOption : uint32_t {
    kWideK = kFirstOwnOption,           // rows of K: 16-byte aligned, a multiple of 4 elements
    kWideRows = kFirstOwnOption * 2,    // rows of K and V are aligned to 16 bytes
    kDecodes = kFirstOwnOption * 4,     // the plan's shape is served by the kernels of decode.cu
    kWideScales = kFirstOwnOption * 8,  // scales of rows, if any, are aligned to 16 bytes
};

// Places per chunk; one state covers one chunk. Every query's chunks begin at multiples of it, so
// bits do not depend on the batch.
constexpr int32_t kChunkPlaces = 512;
// Chunks of the decode kernels are longer for tokens that have more keys, since each costs as much
// to begin and to join, however long it is. A token's own keys decide, up to itself, and nothing
// else of its row: of up to 2,048 keys, 512 places, of up to 8,192, 1,024, and else 2,048.
constexpr uint32_t kShortLog2 = 9, kMiddleLog2 = 10, kLongLog2 = 11;
constexpr int32_t kMostKeysOfShort = 2048, kMostKeysOfMiddle = 8192;
constexpr int32_t kMostChunkPlaces = 1 << kLongLog2;
// Limit on a row's keys: the end of its last chunk must fit an int32.
constexpr int32_t kMostKeys = 0x7FFFFFFF - kMostChunkPlaces;
constexpr uint32_t kQueriesPerUnit = 8;    // of attend
constexpr uint32_t kFragmentQueries = 16;  // of kernels with matrix instructions
// Queries of a unit of the decode kernels, narrow and wide.
constexpr uint32_t kNarrowQueries = 8, kWideQueries = 16;
// Units of sixteen queries that a block of attend_prefill processes at once, 128 threads each. Four
// take 73 KiB of shared memory, and every GPU of compute capability 8.0 or newer gives a block 99
// KiB; each of their 512 threads may have 128 registers, which is what a thread of attend_fragments
// takes. AMD GPUs give a block 64 KiB: two units take 54, and their four waves put one on each SIMD
// unit; three would barely fit, with six waves.
constexpr uint32_t kTeamsOnNvidia = 4;
constexpr uint32_t kTeamsOnAmd = 2;
// Shared memory of a block of attend_prefill on NVIDIA GPUs. The launch requests it, because it
// exceeds the 48 KiB that code may declare.
constexpr uint32_t kPrefillSharedBytes = 74'768;
constexpr uint32_t kMostFragmentDim = 128;
constexpr uint32_t kFirstTicket = UINT32_MAX;  // of join.hpp
constexpr uint32_t kWorkItemBytes = 32;        // of work.hpp
constexpr uint32_t kRowWorkBytes = 16;
// The instances of decode.cu: the format of K and V, and the head dim; each is compiled for narrow
// and for wide units. X(name, format, dim)
#define QUIRE_DIMS_OF(X, name, format) X(name, format, 64) X(name, format, 96) X(name, format, 128)
#define QUIRE_DECODE_INSTANCES(X) \
    QUIRE_DIMS_OF(X, bf16, kBf16) \
    QUIRE_DIMS_OF(X, f16, kF16)   \
    QUIRE_DIMS_OF(X, i8, kI8)     \
    QUIRE_DIMS_OF(X, e4m3, kE4m3) \
    QUIRE_DIMS_OF(X, e5m2, kE5m2)
// Shared memory of a block of decode.cu: four rings of five stages of sixteen rows, for codes with
// sixteen scales each, and 544 bytes.
constexpr uint32_t kRingStages = 5;
template <uint32_t format, uint32_t dim>
constexpr uint32_t kDecodeSharedBytes =
    4 * (format >= kI8 ? (kRingStages * (16 * dim + 64) + 127) / 128 * 128
                       : kRingStages * 16 * dim * 2) +
    544;
constexpr uint32_t kMostSlopes = 512;

struct AttendCall {
    Head head;
    uint64_t q, out, lse, block_table, lengths, cu_q, sinks;
    uint64_t positions, mask, mask_rows, mask_first, shared_prefix;
    uint64_t pool, scales;  // at the layer
    // Scratch: int32 [query_tokens], the row of each token or -1; then the round's states,
    // [token][chunk][q_head]: the largest score and the sum of weights, and the weighted values
    // [v_dim].
    uint64_t token_rows, states, values;
    // With kDecodes, instead of the first: uint32 [query_tokens][kv_heads], tickets (join.hpp); and
    // the work list, whose order states and values have too (work.hpp).
    uint64_t tickets, row_works, items;
    uint64_t round_begins;  // uint32 [round_count + 1]: the index of each round's first item
    int64_t block_stride, v_offset;
    int64_t k_head_stride, k_token_stride, v_head_stride, v_token_stride;
    int64_t k_scale_offset, v_scale_offset, scale_head_stride;
    int64_t q_stride, out_stride;  // elements
    uint32_t block_table_stride, row_count, query_tokens, block_count;
    uint32_t block_tokens, kv_heads, q_heads, heads_per_kv;
    uint32_t k_dim, v_dim, k_format, v_format, q_format;
    uint32_t options;
    int32_t window, sink_tokens;
    uint32_t chunk_count;                       // the most that a row may have
    uint32_t first_token, end_token;            // of the round; with kDecodes of the work list
    uint32_t round, round_count, round_states;  // with kDecodes; states of each KV head
    uint32_t heads_inverse;                     // 2^16 / heads_per_kv, rounded up
    uint32_t unit_queries;                      // with kDecodes: kNarrowQueries or kWideQueries
    float scale, soft_cap;
    uint32_t most_rows;  // the most in a step; cu_q also has its last value at this index
    float slopes[kMostSlopes];
};

static_assert(sizeof(PieceCall) <= kMostBytes && sizeof(KvWriteCall) <= kMostBytes &&
              sizeof(MoveCall) <= kMostBytes && sizeof(AttendCall) <= kMostBytes);

}  // namespace quire::gpu
