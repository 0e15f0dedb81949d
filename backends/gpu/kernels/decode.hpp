// SPDX-License-Identifier: Apache-2.0
//
// decode: attention over K and V of q's own 16-bit type or of 8-bit codes, at the head dims that
// models have. A block takes items of the work list (work.hpp), one after another. One block of
// four warps computes a chunk for one KV head and a unit of queries: its heads, of as many tokens
// as fit. Each warp streams its own pages (stream.hpp, ring.hpp), and the block that comes last
// joins the chunks (join.hpp), so that a layer is one launch.
//
// Units are narrow, of up to eight queries, or wide, of up to sixteen. A query gets the same bits
// in either: products of its column, and what follows from them, know no other.
//
// Every token of a shape that these kernels serve is computed by them, prompts included: a prompt's
// last token has the bits that it would have alone.
//
// GPUs without the words of dialect_warp.hpp have no such kernel: it stops there, and the host does
// not launch it.

#pragma once

#include "calls.hpp"
#include "dialect_warp.hpp"
#include "fault.hpp"
#include "join.hpp"
#include "work.hpp"

namespace quire::gpu {

template <typename Shape>
QUIRE_DEVICE inline void decode_unit(const AttendCall &call, DecodeShared<Shape> &shared,
                                     const Unit &unit, uint32_t state) {
    UnitReach reach = reach_of(call, unit);
    uint32_t warp = thread_index() / 32;
    Course<Shape> course;
    course.pages = pages_of(unit, reach, warp);
    course.of_any = reach.of_any;
    course.addresses = addresses_of_pages<Shape>(call, unit, course.pages);
    course.ring = warp * Shape::kRingUnits;
    course.copies = copies_of_lane<Shape>(call);
    Stream<Shape> stream;
    attend_pages(call, unit, course, shared.ring, stream);
    store_share<Shape>(shared, warp, stream);
    barrier();
    // Not before: registers are for the pages.
    Chunks chunks = chunks_of(reach_of(call, unit).of_any);
    int32_t count = count_of(chunks);
    store_chunk<Shape>(call, shared, unit, state, count <= 1);
    if (count > 1 && is_last_of_unit<Shape>(call, shared, unit, count)) {
        uint32_t before = place_of_chunk(chunks, unit.chunk) * unit.count;
        join_chunks<Shape>(call, unit, state - before, count);
    }
}

// False if the round has no item left for the block.
template <typename Shape>
QUIRE_DEVICE inline bool take_item(const AttendCall &call, DecodeShared<Shape> &shared) {
    uint64_t begins = call.round_begins + uint64_t{call.round} * 4;
    auto begin = load<uint32_t>(begins), end = load<uint32_t>(begins + 4);
    uint32_t index = shared.next[0];
    if (index >= (end - begin) * call.kv_heads) return false;
    Unit unit;
    uint32_t state;
    load_item(call, begin + index / call.kv_heads, index % call.kv_heads, unit, state);
    decode_unit<Shape>(call, shared, unit, state);
    return true;
}

// queries: of a unit, at most.
template <uint32_t format, uint32_t dim, uint32_t queries>
QUIRE_DEVICE inline void decode(const AttendCall &call) {
    if constexpr (has_warp_words()) {
        using Shape = DecodeShape<format, dim, queries>;
        QUIRE_LARGE_SHARED(DecodeShared<Shape>, shared, (kDecodeSharedBytes<format, dim>));
        if (is_idle(call.head, shared.flag)) return;
        // The index lies in shared memory: registers are for the pages.
        if (thread_index() == 0) shared.next[0] = static_cast<uint32_t>(group_index());
        barrier();
        while (take_item<Shape>(call, shared)) {
            barrier();  // the rings are read until here
            if (thread_index() == 0) {
                shared.next[0] = shared.next[0] + static_cast<uint32_t>(call.head.group_count);
            }
            barrier();
        }
    } else {
        no_such_kernel();
    }
}

}  // namespace quire::gpu
