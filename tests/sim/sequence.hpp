// SPDX-License-Identifier: Apache-2.0
//
// sequence: what one sequence should be, by the headers.
//
// A place is an index into the sequence's table times block_tokens; a position is where a token
// stands in the text. They differ only in a tree of drafts.
//
// Invariants:
//   (1) tokens, unknown and chain have one entry per known token; era and depends at least
//   `computed` (2) chain[p] decides the content at p together with era[p]; a dense run would put it
//   there (3) depends is rising: a token depends on all that the tokens before it depend on
//
// Threads: none; values that are copied to undo a step.  Units: tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "content.hpp"
#include "op.hpp"
#include "quire/quire.h"

namespace sim {

// Content beside the tokens: an image at placeholder tokens [begin, end).
struct Span {
    uint32_t bytes = 0;  // the key's bytes
    uint32_t begin = 0;
    uint32_t end = 0;
};

// A load that its last item began, and that may live.
struct Load {
    bool live = false;
    bool ran = false;   // its sequence has run since, and it may live on
    uint32_t most = 0;  // tokens that the store and the device had, at most and at least
    uint32_t sure = 0;
    uint32_t anew = 0;  // loads of the same item before it
    uint64_t since_ns = 0;
    uint64_t sent_ns = 0;  // its item, last
    // As the item gave it.
    uint32_t known = 0;
    uint32_t drafts = 0;
    uint32_t limit = 0;
    std::vector<uint32_t> tokens;
    std::vector<uint8_t> unknown;
    Op op;
};

struct Sequence {
    uint32_t id = 0;  // in the script
    quire_seq handle = 0;
    uint32_t ns = 0;      // number in the script
    uint32_t tenant = 0;  // of the namespace
    uint32_t doc = 0;     // that the chooser extends it by
    uint64_t base = 0;    // hash of tenant, whole-sequence keys and the other input
    std::vector<Span> spans;
    uint32_t adapter = 0;  // whole-sequence keys; 0: none
    uint32_t salt = 0;
    Load load;
    uint32_t cross_tokens = 0;
    int32_t priority = 0;

    std::vector<uint32_t> tokens;
    std::vector<uint8_t> unknown;  // 1: the library has not been told
    std::vector<uint64_t> chain;
    std::vector<uint32_t> era;
    std::vector<uint8_t> depends;
    std::vector<uint8_t> made;  // what each token depended on when it was computed or found
    // What the rest of its block depends on, where that was found and is the sequence's in part.
    std::vector<uint8_t> beside;
    uint32_t computed = 0;
    uint32_t drafts = 0;
    std::vector<uint32_t> parents;  // of drafts, with a mask; empty: each follows the one before
    uint32_t ahead = 0;
    std::vector<uint32_t> ahead_tokens;
    bool ahead_written = false;  // the last item's lookahead was computed up to

    bool swapped = false;
    bool lost = false;
    bool preempted = false;
    bool unpublished = false;
    bool in_step = false;      // with an item, or preempted in it
    bool has_item = false;     // in the open step
    bool may_move = false;     // accept_path left tokens to be moved
    uint32_t move_begin = 0;   // where the first of them belongs
    uint32_t move_end = 0;     // of the places where they lie
    uint32_t found_end = 0;    // tokens before it are in blocks that were found
    uint32_t unsure_end = 0;   // before it, blocks may be found ones: in part, or after a swap
    uint32_t swap_blocks = 0;  // that its swap took out
    std::vector<std::vector<int32_t>> in_host;  // of each group, where they went; 0: unknown
    bool was_cut = false;      // tokens that it may have published are not its own any more
    uint8_t swap_depends = 0;  // unfinished steps that its swap was part of
    uint32_t preemptions = 0;
    uint64_t admitted = 0;   // order of first admission; 0: not yet
    uint8_t last_steps = 0;  // unfinished steps that it was part of

    uint32_t known() const { return static_cast<uint32_t>(tokens.size()); }
    uint64_t link(uint64_t previous, uint32_t token, uint32_t position) const {
        uint64_t hash = mix(previous, token + 1);
        for (const Span &span : spans)
            if (position >= span.begin && position < span.end)
                hash =
                    mix(hash, mix(span.bytes, static_cast<uint64_t>(position - span.begin) << 32 |
                                                  (span.end - span.begin)));
        return hash;
    }
    uint64_t chain_before(uint32_t place) const { return place == 0 ? base : chain[place - 1]; }
    // Appends one token that follows the last known one.
    void append(uint32_t token, bool is_unknown) {
        chain.push_back(link(chain_before(known()), token, known()));
        tokens.push_back(token);
        unknown.push_back(is_unknown);
    }
    void cut(uint32_t count) {
        tokens.resize(count);
        unknown.resize(count);
        chain.resize(count);
        if (computed > count) computed = count;
    }
    // It has the first `count` tokens of what it was, perhaps only a part of a found block. whole:
    // those that are whole blocks.
    void leave_found(uint32_t count, uint32_t whole) {
        if (found_end <= count) return;
        found_end = whole;
        unsure_end = unsure_end > count ? unsure_end : count;
    }
    Content content(uint32_t place) const {
        return make_content(tenant, mix(chain[place], era[place]));
    }
    Content cross_content(uint32_t row) const { return make_content(tenant, mix(base, ~row)); }
    uint8_t depends_before(uint32_t place) const {
        return place == 0 ? uint8_t{0} : depends[place - 1];
    }
    uint32_t first_unknown() const {
        for (uint32_t p = 0; p < known(); ++p)
            if (unknown[p]) return p;
        return known();
    }
    // Where the token at `place` stands in the text.
    uint32_t position(uint32_t place, bool masked) const {
        const uint32_t root = known() - drafts;
        if (!masked || place < root) return place;
        uint32_t depth = root;
        for (uint32_t d = parents[place - root]; d != QUIRE_MASK_ROOT; d = parents[d]) ++depth;
        return depth;
    }
    uint32_t flags() const {
        uint32_t bits = 0;
        if (swapped) bits |= QUIRE_SEQ_SWAPPED;
        if (lost) bits |= QUIRE_SEQ_LOST;
        if (in_step) bits |= QUIRE_SEQ_IN_STEP;
        if (preempted) bits |= QUIRE_SEQ_PREEMPTED;
        if (unpublished) bits |= QUIRE_SEQ_UNPUBLISHED;
        return bits;
    }
};

}  // namespace sim
