// SPDX-License-Identifier: Apache-2.0
//
// decode: attention over K and V of q's own 16-bit type or of 8-bit codes, at the head dims that
// models have. One
// block of four warps computes a chunk of 512 places for one KV head and up to sixteen queries:
// its heads, of as many tokens as fit. Each warp streams its own pages (stream.hpp, ring.hpp), and
// the block that comes last joins the chunks (join.hpp), so that a layer is one launch.
//
// Every token of a shape that these kernels serve is computed by them, prompts included: a prompt's
// last token has the bits that it would have alone.
//
// GPUs without the words of dialect_warp.hpp have no such kernel: it stops there, and the host does
// not launch it.

#include "bundle.hpp"
#include "calls.hpp"
#include "dialect_warp.hpp"
#include "fault.hpp"
#include "join.hpp"

namespace quire::gpu {

// The unit of this block: by its token, or by its seat (bundle.hpp), as the host numbered blocks.
QUIRE_DEVICE inline bool find_decode_unit(const AttendCall &call, Unit &unit) {
    if (!has(call, kSeats)) return find_unit(call, kFragmentQueries, group_index(), unit);
    Bundle bundle;
    if (!find_bundle<1>(call, &bundle)) return false;
    unit = bundle.unit;
    unit.first_token = bundle.begin;
    unit.count = static_cast<uint32_t>(bundle.end - bundle.begin) * unit.heads;
    return true;
}

template <typename Shape>
QUIRE_DEVICE inline void decode_unit(const AttendCall &call, DecodeShared<Shape> &shared,
                                     const Unit &unit) {
    UnitReach reach = reach_of(call, unit);
    Chunks chunks = chunks_of(reach.of_any);
    int32_t count = count_of(chunks);
    // The block of the first chunk writes the result of queries that see nothing.
    bool is_empty = count == 0 && unit.chunk == 0;
    if (!is_empty && !has_chunk(chunks, static_cast<int32_t>(unit.chunk))) return;
    uint32_t warp = thread_index() / 32;
    Course<Shape> course;
    course.pages = pages_of(unit, reach, warp);
    course.of_any = reach.of_any;
    for (uint32_t row = 0; row < 2; ++row) {
        course.of_rows[row] = reach_of(call, unit, lane_index() / 4 + 8 * row);
    }
    course.addresses = addresses_of_pages(call, unit, course.pages);
    course.ring = warp * Shape::kRingUnits;
    course.copies = copies_of_lane<Shape>(call);
    Stream<Shape> stream;
    attend_pages(call, unit, course, shared.ring, stream);
    store_share(shared, warp, stream);
    barrier();
    store_chunk(call, shared, unit, count <= 1);
    if (count > 1 && is_last_of_unit(call, shared, unit, count)) {
        join_chunks<Shape>(call, unit, chunks);
    }
}

template <uint32_t format, uint32_t dim>
QUIRE_DEVICE inline void decode(const AttendCall &call) {
    if constexpr (has_warp_words()) {
        using Shape = DecodeShape<format, dim>;
        QUIRE_LARGE_SHARED(DecodeShared<Shape>, shared, (kDecodeSharedBytes<format, dim>));
        if (is_idle(call.head, shared.flag)) return;
        Unit unit;
        if (find_decode_unit(call, unit)) decode_unit<Shape>(call, shared, unit);
    } else {
        no_such_kernel();
    }
}

#define QUIRE_DECODE(name, format, dim)                                                       \
    QUIRE_KERNEL_OF_BLOCKS(quire_decode_##name##_##dim, 128, (dim == 64 ? 3 : 2), AttendCall, \
                           call) {                                                            \
        decode<format, dim>(call);                                                            \
    }
QUIRE_DECODE_INSTANCES(QUIRE_DECODE)

}  // namespace quire::gpu
