// SPDX-License-Identifier: Apache-2.0
//
// sequence: one token stream: what is known of it, what is computed, and its block tables.
//
// known      its tokens.
// computed   how many of them have K and V in its blocks, or get them by an open or committed step.
// drafts     the last known ones, which are provisional.
// published  full blocks that the cursor has walked in the prefix tree.
//
// Invariants: (1) computed <= known; drafts <= known; (2) a table's entries from its group's
// kept_blocks to null_front are null, the others are blocks, in the host tier while kSwapped; (3)
// tables cover `computed` tokens; in a cross group all of the other input, once any is computed.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/blocks/block_table.hpp"
#include "core/blocks/prefix_tree.hpp"
#include "core/blocks/token_pages.hpp"
#include "quire/sequence.h"

namespace quire {

// The state that a step may change and an abort restores.
struct SequenceState {
    uint32_t known = 0;
    uint32_t computed = 0;
    uint32_t drafts = 0;
    uint32_t lookahead = 0;
    bool drafts_are_tree = false;  // Sequence::tree says how; else each follows the one before
    // Accepted tokens [move_begin, move_begin + move_count) lie elsewhere, see Sequence::moves,
    // until the next step moves them.
    uint32_t move_begin = 0;
    uint32_t move_count = 0;
    uint32_t first_unknown = kNone;  // position of the first unnamed token
    uint32_t published = 0;
    TreeCursor cursor;
    uint32_t flags = 0;
    uint32_t preemptions = 0;
    uint64_t admitted = 0;      // order of first admission, for victims; 0 = never
    uint64_t resumed_step = 0;  // the step in which it came back
};

struct Sequence {
    static constexpr uint32_t kSwapped = QUIRE_SEQ_SWAPPED;
    static constexpr uint32_t kLost = QUIRE_SEQ_LOST;
    static constexpr uint32_t kPreempted = QUIRE_SEQ_PREEMPTED;
    static constexpr uint32_t kUnpublished = QUIRE_SEQ_UNPUBLISHED;
    // A session is being made of it, or it of a session: nothing takes or changes it. No caller
    // sees this flag.
    static constexpr uint32_t kLent = 1u << 31;

    SequenceState state;
    uint32_t change = kNone;  // its item, or its preemption, in the open step
    uint64_t marked = 0;      // the begin or add call that names it
    uint32_t root = kNone;    // of the prefix tree
    uint32_t scope = kNone;   // its spans, if it has any
    uint32_t name_space = 0;
    int32_t priority = 0;
    uint32_t blocks_held = 0;  // entries that are not null
    uint32_t cross_tokens = 0;
    uint64_t last_step = 0;  // that touches its blocks
    KnownTokens tokens;
    Buffer tree;   // parents of the drafts, while they are a tree
    Buffer moves;  // where the tokens to be moved lie, increasing
    // The unfinished steps that its tokens depend on, and from which position: if pending_step[i]
    // fails, only the first pending_position[i] computed tokens are right. A token depends on
    // everything that the tokens before it depend on. Only positions below `computed` are kept: a
    // token that is computed again depends on the step that computes it.
    uint64_t pending_step[kMaxUnfinished] = {};
    uint32_t pending_position[kMaxUnfinished] = {};
    // From here on: what a decode step does not read, apart from the cache lines that it does.
    uint64_t blocks_lost = 0;  // of a lease: withdrawn, or taken off it, by steps that failed
    // The fewest tokens that were computed since a hand-over of it last looked here.
    uint32_t fewest_computed = kNone;
    // Position of the first token that had no name when the sequence was forked, or was created by
    // a fork: both share the token's K and V, and each names it for itself. kNone: there was none.
    uint32_t lent_from = kNone;
    bool is_lease = false;  // it has no tokens, and its tables name what it holds, in no order

    void note_pending(uint64_t step, uint32_t position) {
        uint32_t at = Timeline::ring_index(step);
        if (pending_step[at] == step && pending_position[at] <= position) return;
        pending_step[at] = step;
        pending_position[at] = position;
    }
    // Only the first `token_count` tokens are still computed.
    void trim_pending(uint32_t token_count) {
        for (uint32_t i = 0; i < kMaxUnfinished; ++i) {
            if (pending_position[i] >= token_count) pending_step[i] = 0;
        }
    }
    // The first `token_count` tokens lie in other blocks now, which depend on other steps.
    void raise_pending(uint32_t token_count) {
        for (uint32_t &position : pending_position) {
            if (position < token_count) position = token_count;
        }
    }
    // Blocks on the device that count against the namespace's quota.
    uint32_t charged() const { return (state.flags & kSwapped) != 0 ? 0 : blocks_held; }
    // Tokens that its tables must cover, including those that are still to be moved.
    uint32_t covered() const {
        if (state.move_count == 0) return state.computed;
        return moves.data[state.move_count - 1] + 1;
    }
    // Keeps only the moves of tokens among the first `token_count`.
    void trim_moves(uint32_t token_count) {
        uint32_t left = token_count > state.move_begin ? token_count - state.move_begin : 0;
        if (left < state.move_count) state.move_count = left;
    }
    // Spans of the tree, of whole blocks, that may be published.
    uint32_t publishable(const BlockSize &span) const {
        uint32_t settled = state.computed;
        if (state.drafts != 0) {
            uint32_t firm = state.known - state.drafts;
            if (firm < settled) settled = firm;
        }
        if (state.first_unknown < settled) settled = state.first_unknown;
        if (state.move_count != 0 && state.move_begin < settled) settled = state.move_begin;
        return span.block_of(settled);
    }
};

}  // namespace quire
