// SPDX-License-Identifier: Apache-2.0
//
// prefixes: finding what is computed already, and publishing what a step computes.
//
// Finding: all blocks are hashed first, then probed with prefetch, then verified in order. The
// result is a Lookup, which its caller hands on. Publishing: full blocks of computed, known tokens
// become nodes of the tree.
//
// Ownership: refers to the books; owns the hashes and nodes that a Lookup points to.
// Threads: none; Cache holds its lock.
#pragma once

#include <array>

#include "core/steps/cache_books.hpp"

namespace quire {

// The front of one sequence as far as it was hashed and found, in spans of the prefix tree: one
// block of each group, or several of some where groups have blocks of different sizes. Points into
// memory of Prefixes, and is valid until the next hash().
struct Lookup {
    const uint64_t *hashes = nullptr;  // [hashed] of its spans
    uint32_t hashed = 0;
    const uint32_t *nodes = nullptr;  // [matched] the longest verified chain
    uint32_t matched = 0;
};

// An item that had to wait. Its tokens lie in its sequence's buffer and its hashes are kept: a
// scheduler sends it again in every step, and then only the tokens are compared.
struct Waiting {
    uint64_t handle = 0;         // 0: none
    uint32_t known = 0;          // without the item's tokens
    uint32_t token_count = 0;    // of the item
    uint32_t first_unknown = 0;  // with the item's tokens
    uint32_t blocks = 0;         // spans hashed
};

// The unfinished steps that a sequence's tokens depend on: each of them from one token on.
class Dependence {
 public:
    void add(uint64_t step, uint32_t first) { parts_[count_++] = Part{depends_bit(step), first}; }
    // Those of the first `end` tokens, in the form of BlockOrigin::depends.
    uint64_t up_to(uint32_t end) const {
        uint64_t steps = 0;
        for (uint32_t i = 0; i < count_; ++i) steps |= parts_[i].first < end ? parts_[i].bit : 0;
        return steps;
    }

 private:
    struct Part {
        uint64_t bit;
        uint32_t first;
    };
    // The open step once; each unfinished one once from the sequence and once from its change.
    std::array<Part, 1 + 2 * kMaxUnfinished> parts_;
    uint32_t count_ = 0;
};

class Prefixes {
 public:
    explicit Prefixes(CacheBooks *books);
    // False: no memory.
    [[nodiscard]] bool create(uint32_t max_sequences);

    // Hashes the sequence's first blocks, from its root on. False: no memory.
    [[nodiscard]] bool hash(const Sequence &s, uint32_t block_count, Lookup *out);
    // Finds the longest verified chain for the hashes that work on `queue` may read.
    void match(const Sequence &s, uint64_t queue, Lookup *found);
    // The same for tokens that no sequence has, below a root; no spans of keys lie over them.
    [[nodiscard]] bool hash_tokens(uint32_t root, const uint32_t *tokens, uint32_t block_count,
                                   Lookup *out);
    void match_tokens(uint32_t root, const uint32_t *tokens, uint64_t queue, Lookup *found);
    // The node for a block of the sequence, which was found, below the node found before it; kNone
    // if that is gone. A block may have more than one.
    uint32_t find_block(const Sequence &s, const Lookup &found, uint32_t block);
    // The longest hit within the chain for which every window is whole, in spans.
    uint32_t best_hit(const Lookup &found) const;
    // Looks for a block below the first `blocks` found ones that begins with the sequence's tokens
    // from there to `end`, and that can be copied by a step on `queue`. It becomes the next of the
    // found nodes. Returns how many of its tokens are the sequence's. REQUIRES: match().
    uint32_t find_part(const Sequence &s, uint32_t blocks, uint32_t end, uint64_t queue,
                       const Lookup &found);
    // How many tokens would hit, without effect.
    Status probe(uint64_t handle, const quire_token *tokens, uint32_t token_count, uint32_t *hits);

    // The item whose hashes are kept until the next hash().
    const Waiting &waiting() const { return waiting_; }
    void keep(const Waiting &item) { waiting_ = item; }
    void forget_waiting(uint64_t handle) {
        if (waiting_.handle == handle) waiting_ = Waiting{};
    }
    Lookup waiting_lookup() const { return Lookup{hashes_.data(), waiting_.blocks, nullptr, 0}; }

    // Publishes the blocks that became full and known; `ready` is the step that computes them. If
    // the tree is full it stops early and goes on at the next publication. found: of the sequence,
    // if it was just looked up.
    void publish(uint32_t sequence, uint64_t ready, const Lookup &found = Lookup{});
    // Counts what publish() records for a sequence that has computed its first `end` tokens.
    Room publish_room(uint32_t sequence, uint64_t end, bool swapped) const;
    // What the sequence depends on, with what the open step makes it depend on.
    Dependence depends(const Sequence &s) const;
    // Counts the sequence's spans from `from` on whose blocks are null in every group.
    uint32_t bare_blocks(uint32_t sequence, uint32_t from) const;
    // Sets the cursor to the last published block that still exists.
    void rewind_cursor(uint32_t sequence);

    // A sequence published something outside the step while the step was open. It may have found
    // what an item of the step published, and built on that.
    void note_named(uint32_t sequence);
    // Called when the step is over. undone: items of it are gone, and so is what they published.
    void settle_named(bool undone) {
        if (!named_.empty()) [[unlikely]]
            settle_all_named(undone);
    }
    // A dropped item may have published a block that a later item has too, or a parent of what a
    // later item published. The later item's blocks are then published in their place, from the
    // root on.
    void publish_again(const StepRecord &record);
    const Array<uint32_t> &named() const { return named_; }

 private:
    Extra extra_of(const Sequence &s, uint32_t block) const;
    template <typename Child>
    void walk(uint32_t root, uint64_t queue, Lookup *found, Child child);
    uint32_t find_child(const Sequence &s, const TreeCursor &at, uint64_t hash, uint32_t block);
    bool visible(uint32_t node, uint64_t queue) const;
    bool can_copy(uint32_t node, uint64_t queue) const;
    bool named_elsewhere(uint32_t sequence, uint32_t index);
    uint32_t publishable(uint32_t sequence) const;
    // True if the sequence has no block of the span in any group.
    bool is_bare(uint32_t sequence, uint32_t index) const;
    bool has_node_room(uint32_t sequence, uint32_t from) const;
    void attach(uint32_t sequence, uint32_t index, uint32_t node, uint64_t ready,
                const Dependence &depends_on);
    void attach_parts(uint32_t sequence, uint32_t index, uint32_t node, uint64_t ready,
                      const Dependence &depends_on);
    void leave_to_past(uint32_t group, uint32_t block);
    void leave_to_owner(uint32_t publisher, uint32_t group, uint32_t index);
    // Calls body(group, table index) for each of the span's blocks until a call returns false.
    template <typename Body>
    bool each_block(uint32_t span, Body body) const;
    void republish(uint32_t sequence, uint64_t ready);
    void settle_all_named(bool undone);

    CacheBooks &books_;
    Array<uint64_t> hashes_;   // of the blocks of the sequence looked up last
    Array<uint32_t> matches_;  // nodes of its prefix
    Waiting waiting_;
    Array<uint32_t> named_;    // sequences that note_named() was told, each once
    Array<uint8_t> is_named_;  // by index
};

}  // namespace quire
