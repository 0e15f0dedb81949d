// SPDX-License-Identifier: Apache-2.0
//
// work_shape: how much scratch memory a decode call needs for its work list and its chunks' states
// (kernels/work.hpp), and into how many lists and rounds it is divided.
//
// The host knows sizes alone: how many tokens there are, and how long a row may be. A list has
// room for all chunks that its tokens could see, and states for 64 MiB of them.
//
// Threads: any; stateless.
#pragma once

#include <cstdint>

#include "kernels/calls.hpp"
#include "quire/plugin/backend.h"

namespace quire::gpu {

// How a call is divided, and the layout of the queue's scratch memory.
struct WorkShape {
    uint32_t tokens;  // of a work list; a call of more has several
    uint32_t round_count;
    uint32_t round_states;
    uint64_t ticket_bytes;
    uint64_t row_bytes;
    uint64_t begin_bytes;
    uint64_t item_bytes;
    uint64_t state_bytes;
    uint64_t value_bytes;

    uint64_t bytes() const {
        return ticket_bytes + row_bytes + begin_bytes + item_bytes + state_bytes + value_bytes;
    }
};

// The most chunks that a token of a row of so many keys has, at least 1.
uint32_t decode_chunk_count(uint64_t keys);

// The queries of a call's units: wide ones read keys once for more tokens, narrow ones take half of
// the products. They give the same bits. REQUIRES: the call has tokens.
uint32_t unit_queries_of(const AttendCall &call);

// REQUIRES: the call has tokens, and chunk_count and unit_queries are set.
WorkShape work_shape_of(const AttendCall &call);

// An upper bound on what any call of the plan needs.
uint64_t decode_scratch_bytes_of(const quire_be_plan_desc &desc);

}  // namespace quire::gpu
