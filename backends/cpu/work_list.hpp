// SPDX-License-Identifier: Apache-2.0
//
// work_list: divides one attention call among the threads of a device.
//
// Tokens of a row, or of neighbouring rows that share a prefix, form a bundle: as many as fit in
// one tile. A bundle of few queries reads more than it computes, so one work takes all its KV heads
// and reads a block-major pool in long pieces; a bundle of many queries has one work per KV head. A
// bundle that is a large part of the call is split further, by chunks of its keys: each work then
// stores the states of its chunks, and fold_states() combines them into the result, in order, when
// all works have run. If there is no room for the states, the bundle stays whole: the division
// affects only time, never a result.
//
// A list has a fixed length; a call that needs more runs in several rounds.
//
// Threads: one at a time.
#pragma once

#include <cstdint>

#include "kernels/attend.hpp"

namespace quire::cpu {

// A bundle whose chunks are computed by several works.
struct SplitBundle {
    uint32_t first_token;
    uint32_t token_count;
    uint32_t first_chunk;
    uint32_t end_chunk;
    ChunkStates states;
};

// Must lie in zeroed pages.
struct WorkList {
    static constexpr uint32_t kWorks = 4096;
    static constexpr uint32_t kSplits = 256;
    static constexpr uint64_t kStateFloats = 8 * 1024 * 1024;  // 32 MiB, touched where used

    uint32_t work_count;
    uint32_t split_count;
    AttendWork works[kWorks];
    SplitBundle splits[kSplits];
    alignas(64) float states[kStateFloats];
};

// Walks through a call's tokens, filling one list at a time.
class Sharing {
 public:
    // REQUIRES: the call's rows were checked; the call outlives this.
    Sharing(const AttendCall &call, uint32_t thread_count);

    // Fills the list with the next works; returns false if none are left.
    bool fill(WorkList *list);

 private:
    struct Bundle {
        uint32_t first_token;
        uint32_t end_token;
        uint32_t first_chunk;
        uint32_t end_chunk;
        uint32_t queries;  // per KV head, computed at once
        uint64_t cost;     // of all its KV heads; 1 is one query's arithmetic over one chunk
    };

    bool next_bundle(uint32_t token, Bundle *bundle) const;
    uint32_t end_of_bundle(uint32_t token) const;
    void look(Bundle *bundle) const;
    bool split(const Bundle &bundle, WorkList *list);
    bool add_whole(const Bundle &bundle, WorkList *list);
    uint32_t kv_heads_at_once(const Bundle &bundle) const;

    const AttendCall &call_;
    uint32_t group_;             // query heads per KV head
    uint32_t queries_at_once_;   // per KV head and token
    uint64_t fair_cost_ = 0;     // of a work; a bundle that costs more is split
    uint64_t used_floats_ = 0;   // of the list's states
    uint32_t token_ = 0;         // where the next bundle begins
    uint32_t next_kv_head_ = 0;  // of a bundle that did not fit in the last list
    uint32_t next_query_ = 0;
};

}  // namespace quire::cpu
