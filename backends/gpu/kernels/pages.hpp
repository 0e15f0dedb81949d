// SPDX-License-Identifier: Apache-2.0
//
// pages: which keys of a chunk a warp of the decode kernels reads.
//
// A page is sixteen places of a row; where blocks are multiples of that, all of one block. Page n
// of a chunk belongs to warp n % 4, wherever the row ends and whoever else reads it, and how long
// chunks are follows from the token's position: so the order in which a query's keys are summed
// depends on nothing but its own position.
//
// The tokens of a unit are consecutive and have no mask, so what any of them sees, and what all of
// them see, follow from the first and the last.
//
// Threads: any, unless said otherwise; stateless.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"
#include "dialect_warp.hpp"
#include "sight.hpp"
#include "unit.hpp"

namespace quire::gpu {

constexpr int32_t kPagePlaces = 16;
constexpr uint32_t kWarpsOfBlock = 4;
constexpr uint32_t kPagesOfWarp = kMostChunkPlaces / kPagePlaces / kWarpsOfBlock;
static_assert(kPagesOfWarp == 32);        // each lane knows one
constexpr uint32_t kEveryPlace = 0xFFFF;  // of a page, one bit each

// token_of() and q_head_of(), without a division: m is at most 16.
QUIRE_DEVICE inline uint32_t token_in_unit(const AttendCall &call, uint32_t m) {
    return m * call.heads_inverse >> 16;
}
QUIRE_DEVICE inline int32_t token_of_query(const AttendCall &call, const Unit &unit, uint32_t m) {
    return unit.first_token + static_cast<int32_t>(token_in_unit(call, m));
}
QUIRE_DEVICE inline uint32_t head_of_query(const AttendCall &call, const Unit &unit, uint32_t m) {
    return unit.kv_head * unit.heads + m - token_in_unit(call, m) * unit.heads;
}

// Places [0, sink_end) and [begin, end).
struct Reach {
    int32_t sink_end;
    int32_t begin;
    int32_t end;
};

struct UnitReach {
    Reach of_any;
    Reach of_all;
};

// As sight_of() for a token without a mask that does not see later ones; no call of these kernels
// has others, and their loads and branches would be in each block's way to its first copy.
QUIRE_DEVICE inline Reach reach_of_token(const AttendCall &call, const Row &row, int32_t token) {
    int32_t position = row.key_count - row.end_token + token;
    Reach reach;
    reach.begin = oldest_position(call, position);
    reach.end = smaller(larger(position, -1), row.key_count - 1) + 1;
    reach.sink_end = smaller(call.sink_tokens, reach.end);
    return reach;
}

QUIRE_DEVICE inline UnitReach reach_of(const AttendCall &call, const Unit &unit) {
    Reach first = reach_of_token(call, unit.row, unit.first_token);
    Reach last = reach_of_token(call, unit.row, token_of_query(call, unit, unit.count - 1));
    return {{last.sink_end, first.begin, last.end}, {first.sink_end, last.begin, first.end}};
}

// The page's places below `end`.
QUIRE_DEVICE inline uint32_t places_below(int32_t page, int32_t end) {
    return (1u << smaller(larger(end - page, 0), kPagePlaces)) - 1;
}
QUIRE_DEVICE inline uint32_t places_of(const Reach &reach, int32_t page) {
    return places_below(page, reach.sink_end) |
           (places_below(page, reach.end) & ~places_below(page, reach.begin));
}
// The keys that query m sees.
QUIRE_DEVICE inline Reach reach_of(const AttendCall &call, const Unit &unit, uint32_t m) {
    return reach_of_token(call, unit.row, token_of_query(call, unit, m));
}

// A warp's pages of a chunk: bit i stands for page warp + 4 i.
struct Pages {
    int32_t first;  // place
    uint32_t seen;  // by any query
    uint32_t full;  // every query sees every place
};

QUIRE_DEVICE inline int32_t place_of_page(const Pages &pages, uint32_t index) {
    return pages.first + static_cast<int32_t>(index * kWarpsOfBlock) * kPagePlaces;
}

// All lanes of the warp, together: each looks at one page.
QUIRE_DEVICE inline Pages pages_of(const Unit &unit, const UnitReach &reach, uint32_t warp) {
    Pages pages = {unit.chunk_begin + static_cast<int32_t>(warp) * kPagePlaces, 0, 0};
    int32_t place = place_of_page(pages, lane_index());
    bool is_inside = place < unit.chunk_end;
    uint64_t seen = ballot(is_inside && places_of(reach.of_any, place) != 0);
    uint64_t full = ballot(is_inside && places_of(reach.of_all, place) == kEveryPlace);
    pages.seen = static_cast<uint32_t>(seen);
    pages.full = static_cast<uint32_t>(full);
    return pages;
}

// These pages without the first.
QUIRE_DEVICE inline uint32_t without_first(uint32_t pages) { return pages & (pages - 1); }

// The places of a chunk of a token that has so many keys, as a power of two.
QUIRE_DEVICE inline uint32_t chunk_log2_of(int32_t keys) {
    if (keys <= kMostKeysOfShort) return kShortLog2;
    return keys <= kMostKeysOfMiddle ? kMiddleLog2 : kLongLog2;
}
QUIRE_DEVICE inline int32_t chunks_before(int32_t place, uint32_t log2) {
    return (place + (1 << log2) - 1) >> log2;
}
// The most chunks that any token of a row of so many keys has.
QUIRE_DEVICE inline uint32_t most_chunks(int32_t keys) {
    int32_t most = chunks_before(smaller(keys, kMostKeysOfShort), kShortLog2);
    most = larger(most, chunks_before(smaller(keys, kMostKeysOfMiddle), kMiddleLog2));
    return static_cast<uint32_t>(larger(most, chunks_before(keys, kLongLog2)));
}

// The chunks that a unit's queries see: [0, sink_end) and [begin, end), which do not overlap. All
// tokens of a unit have chunks of one length.
struct Chunks {
    int32_t sink_end;
    int32_t begin;
    int32_t end;
};

QUIRE_DEVICE inline Chunks chunks_of(const Reach &of_any) {
    uint32_t log2 = chunk_log2_of(of_any.end);
    Chunks chunks;
    chunks.sink_end = chunks_before(of_any.sink_end, log2);
    chunks.begin = larger(of_any.begin >> log2, chunks.sink_end);
    chunks.end = larger(chunks_before(of_any.end, log2), chunks.begin);
    return chunks;
}
QUIRE_DEVICE inline int32_t count_of(const Chunks &chunks) {
    return chunks.sink_end + chunks.end - chunks.begin;
}
// The n-th of them, and its n.
QUIRE_DEVICE inline int32_t chunk_at(const Chunks &chunks, int32_t n) {
    return n < chunks.sink_end ? n : chunks.begin + n - chunks.sink_end;
}
QUIRE_DEVICE inline uint32_t place_of_chunk(const Chunks &chunks, uint32_t chunk) {
    auto at = static_cast<int32_t>(chunk);
    return static_cast<uint32_t>(at < chunks.sink_end ? at : at - chunks.begin + chunks.sink_end);
}

}  // namespace quire::gpu
