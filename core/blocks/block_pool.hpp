// SPDX-License-Identifier: Apache-2.0
//
// block_pool: which blocks are free, draining, held, cached or parked, of one group or of all.
//
//   free      unused (in no table, not in the tree), and no running work touches it
//   draining  unused, but a step that is not done may touch it
//   held      in `refs` tables
//   cached    in no table; its content is in the prefix tree; listed by age of its last release
//   parked    taken out of the tree by the open step, given back when that step is committed
//
// Why one pool and not one per sequence: a block's last owner is unknown until its last reference
// drops, so ownership has to live with the block.
//
// Invariants (check(), O(n)):
//   (1) every block is in one state, and on the list of that state if it has one: free, draining,
//       held, cached, parked, and block 0 null
//   (2) refs > 0 <=> held;  cached => node != none
//   (3) the cached list is ordered by stamp, oldest first
//   (4) in a pool that scrubs, every unused block with content is in unscrubbed_, and none is there
//       twice
//   (5) no step that may run touches a free block; one that may run touches a draining block
//
// Threads: none; Cache holds its lock. All operations are O(1) except where said.
#pragma once

#include "core/base/geometry.hpp"
#include "core/base/host_memory.hpp"
#include "core/blocks/timeline.hpp"

namespace quire {

constexpr uint32_t kNone = 0xFFFFFFFF;
static_assert(kMaxGroups <= 16, "Block::group has four bits");
constexpr uint32_t kNullBlock = 0;

// How the tree names a block: by its number in the group's pool, or in the group's host tier. A
// pool has fewer than 2^31 blocks.
constexpr uint32_t kOnHost = 0x80000000;
constexpr bool is_on_host(uint32_t named) { return (named & kOnHost) != 0; }
constexpr uint32_t number_of(uint32_t named) { return named & ~kOnHost; }

// Tenants besides the numbers of namespaces. Fresh: never written, all zeros. Mixed: has content of
// two namespaces, or is not known to have been cleared.
constexpr uint64_t kFreshTenant = UINT64_MAX;
constexpr uint64_t kMixedTenant = UINT64_MAX - 1;

enum class BlockState : uint8_t { free, draining, held, cached, parked, null };

// Two fit in a cache line. Sharing and caching a block, and a lease that publishes one, use this
// alone; to take or evict one needs its origin too.
struct alignas(kCacheLine / 2) Block {
    uint32_t refs;
    uint32_t node;          // in the prefix tree, kNone = unpublished
    uint32_t owner;         // index of the sequence that may write in place; kNone = no one
    uint16_t frozen_slots;  // slots that sequences other than the owner may read
    BlockState state : 4;
    uint8_t group : 4;          // that took it last
    uint8_t given_up : 1;       // by an item that is being dropped
    uint8_t named : 1;          // in the tree, by an item that is being dropped
    uint8_t is_unscrubbed : 1;  // listed in unscrubbed_
    uint8_t is_suspect : 1;  // a step just failed: its unwritten slots may hold any tenant's data
    uint8_t is_read : 1;  // draining: a copy of the open step reads it, as `touch` does not say yet
    // For tenant kMixedTenant: all slots were written since its zeroing failed, so it shows nothing
    // of other tenants unless one of the steps that wrote them fails too (Cover).
    uint8_t is_covered : 1;
    uint8_t is_demoted : 1;  // in the host tier: a copy of the open step fills it
    uint8_t is_offered : 1;  // by the call that is about to publish it
    uint64_t stamp;          // when a table last dropped it; orders the cached list
    uint64_t touch;          // the last step that may read or write it
};
static_assert(sizeof(Block) == 32);

// Where a block's content comes from.
struct BlockOrigin {
    uint64_t depends;    // once published: unfinished steps without which its content is wrong, bit
                         // u % 64 for step u of (ready - 64, ready]
    uint64_t ready;      // once published: the last step that may have written it
    uint64_t tenant;     // number of the namespace that wrote last
    uint32_t copied_to;  // run of copies in which it was a destination
    uint32_t copied_from;  // run of copies in which it was a source
};
static_assert(sizeof(BlockOrigin) == 32);

// Neighbours on a list. Kept apart from the records: eviction walks far down the list to prefetch
// what it will need, and eight links fit in one cache line.
struct BlockLink {
    uint32_t prev;
    uint32_t next;
};

// A step as a bit of BlockOrigin::depends. At most 64 steps are unfinished, so no two of them share
// a bit. A bit means a step near the block's own `ready`, so it can never come to mean a later
// step.
inline uint64_t depends_bit(uint64_t step) { return uint64_t{1} << step % 64; }
static_assert(kMaxUnfinished <= 64);

// The steps that wrote all slots of a covered block, in the form of BlockOrigin::ready and depends.
// They are not those of its content: to publish a block depends on more than to have it written.
struct Cover {
    uint64_t ready;
    uint64_t depends;
};

// has: a BlockOrigin or a Cover.
template <typename Dependence>
bool depends_on(const Dependence &has, uint64_t step) {
    return step <= has.ready && has.ready - step < 64 && (has.depends & depends_bit(step)) != 0;
}

class BlockPool {
 public:
    BlockPool(const HostAllocator *host, const Timeline *timeline)
        : blocks_(host),
          links_(host),
          origins_(host),
          unscrubbed_(host),
          covers_(host),
          timeline_(timeline) {}

    // scrubs: keeps a list of the blocks that were given up with their content.
    [[nodiscard]] bool create(uint32_t block_count, bool scrubs);

    // Makes a pool in host memory of its own; nullptr: no memory.
    static BlockPool *make(const HostAllocator *host, const Timeline *timeline,
                           uint32_t block_count, bool scrubs);
    // *pool may be nullptr, and is nullptr afterwards.
    static void destroy(const HostAllocator *host, BlockPool **pool);

    uint32_t block_count() const { return static_cast<uint32_t>(blocks_.size()); }
    Block &operator[](uint32_t block) { return blocks_[block]; }
    BlockLink &link(uint32_t block) { return links_[block]; }  // for tests that break it
    const Block &operator[](uint32_t block) const { return blocks_[block]; }
    BlockOrigin &origin(uint32_t block) { return origins_[block]; }
    const BlockOrigin &origin(uint32_t block) const { return origins_[block]; }

    uint32_t free_count() const { return lists_[kFree].count + draining_; }
    uint32_t cached_count() const { return lists_[kCached].count; }
    uint32_t held_count() const { return held_; }
    uint32_t parked_count() const { return parked_; }

    // Those of the available blocks that no node names.
    uint32_t unused(uint64_t barrier) const;

    void prefetch(uint32_t block) const { __builtin_prefetch(&blocks_[block], 1); }
    // The same, for a block that is taken then, which changes its origin too.
    void prefetch_to_take(uint32_t block) const {
        prefetch(block);
        __builtin_prefetch(&origins_[block], 1);
    }

    // Blocks that a step with this `barrier` can get, free ones or by eviction.
    uint32_t available(uint64_t barrier) const;

    // True if the open step's copies read blocks that no table names any more.
    bool has_read() const {
        return draining_ != 0 && lists_[draining_list(timeline_->next())].count != 0;
    }
    // Takes one of those blocks, else a free one; kNone when only eviction helps. The block becomes
    // held, with one reference.
    uint32_t take_free(uint64_t barrier);
    // Free blocks that no work touches and the open step does not count on.
    uint32_t idle_count() const { return lists_[kFree].count; }
    // Takes one of those. REQUIRES: there is one.
    uint32_t take_idle();
    // The cached block that was released longest ago, or kNone. It stays cached.
    uint32_t oldest_cached(uint64_t barrier) const;
    // The cached block that was released longest ago, whatever may touch it; kNone: none is cached.
    uint32_t first_cached() const { return lists_[kCached].head; }
    // Takes a cached block off its list; it becomes held, with one reference.
    void claim(uint32_t block);
    // Adds a reference; claims a cached block.
    void add_ref(uint32_t block) {
        Block &b = blocks_[block];
        if (b.state == BlockState::cached) {
            claim(block);
            return;
        }
        QUIRE_ASSERT(b.state == BlockState::held);
        ++b.refs;
    }
    // Drops a reference. At the last one the block becomes cached if it is published, else free, or
    // draining while `touch` is not done. barrier: the open step's, if a copy of that step reads
    // the block. If the step may use the block, the block is then the first to be handed out,
    // because it has to wait for this step in any case.
    void drop_ref(uint32_t block, uint64_t touch, uint64_t barrier = 0);
    // Notes that the step may touch the block, whatever state the block is in by now.
    void raise_touch(uint32_t block, uint64_t step);

    // For undoing the open step: each is the exact reverse of the call it is named after.
    void undo_take_free(uint32_t block, bool is_read);
    void undo_add_ref(uint32_t block, uint32_t next_hint);
    void undo_claim(uint32_t block, uint32_t next_hint);
    // The stamp of something that is released now.
    uint64_t take_stamp() { return ++clock_; }
    // Makes a cached block the last to be evicted. REQUIRES: no block has a stamp as high.
    void touch_cached(uint32_t block, uint64_t stamp) {
        leave_list(block);
        blocks_[block].stamp = stamp;
        push_back(kCached, block);
    }
    // Makes those of the blocks that are cached the last to be evicted, blocks[count - 1] first.
    void touch_run(const uint32_t *blocks, uint32_t count);
    // Drops the one reference of each block, which a node names and which its owner gives up;
    // blocks[count - 1] is evicted first. REQUIRES: all steps up to `touch` are done.
    void cache_run(const uint32_t *blocks, uint32_t count, uint64_t touch);
    // Makes blocks nodes of the block tree, and caches them; blocks[count - 1] is evicted first.
    // Returns how many; less than `count`: `owner` did not take the block with that index, or does
    // not hold it alone, or a node names it, and nothing changed. Their content depends on no step.
    // REQUIRES: all steps are done.
    [[nodiscard]] uint32_t publish_run(const uint32_t *blocks, uint32_t count, uint32_t owner,
                                       uint32_t block_tokens);
    // Caches an unused block that a node names again, as of the time it was released.
    void cache_unused(uint32_t block);
    void undo_drop_ref(uint32_t block, uint64_t stamp);  // except `touch`
    // REQUIRES: it is held, and no reference was dropped since the drop that is undone.
    void undo_raise_touch(uint32_t block, uint64_t touch) { blocks_[block].touch = touch; }
    uint32_t next_in_list(uint32_t block) const { return links_[block].next; }

    // Caches a held block that a node names, as of the time `stamp`. REQUIRES: one reference.
    void cache_held(uint32_t block, uint64_t stamp);
    // Gives up a cached block that no node names any more and that a copy of the open step reads;
    // as drop_ref() with that step's barrier.
    void release_read(uint32_t block, uint64_t barrier);
    // Forgets that a copy of the open step would have read an unused block.
    void undo_release_read(uint32_t block) { leave_list(block), push_unused(block); }
    // Makes an unused block held, with one reference.
    void hold_unused(uint32_t block) { leave_list(block), become_held(block); }

    // Takes a cached block off its list for as long as the step is open.
    void park(uint32_t block);
    void unpark_cached(uint32_t block, uint32_t next_hint);
    // Frees a parked or cached block and forgets its content.
    void free_unpublished(uint32_t block);
    // The same, but the block becomes held: an edit of the open step counts on it.
    void hold_unpublished(uint32_t block);

    // Takes over another pool's held and cached blocks: old block i becomes ids[i], kNone = it is
    // not here. Blocks that take over none are fresh. REQUIRES: this pool was just created, on the
    // same timeline; the other has no draining and no parked block, and each of its held and cached
    // blocks has an id here.
    void take_over(const BlockPool &old, const uint32_t *ids);

    // Upper bound on the number of blocks that wait to be scrubbed.
    uint32_t unscrubbed_count() const { return static_cast<uint32_t>(unscrubbed_.size()); }
    // Calls body(block) for each unused block that has content and that work of `step`, whose
    // barrier is `barrier`, may touch. The block then counts as empty and as touched by the step.
    // O(unscrubbed_count).
    template <typename Body>
    void scrub(uint64_t barrier, uint64_t step, Body body);

    // Marks the content as possibly any tenant's.
    void mark_mixed(uint32_t block, bool can_cover);
    // Makes room for the covers of all blocks; without it, nothing is covered. False: no memory.
    [[nodiscard]] bool reserve_covers() {
        return covers_.size() != 0 || covers_.create(block_count());
    }
    // REQUIRES: reserve_covers() succeeded.
    void cover(uint32_t block, const Cover &cover) {
        blocks_[block].is_covered = true;
        covers_[block] = cover;
    }
    // The steps that a covered block still needs. None if its cover is older than the pool.
    Cover cover_of(uint32_t block) const { return covers_.size() != 0 ? covers_[block] : Cover{}; }

    // Called when steps became done: draining blocks that waited for them become free.
    void retire(uint64_t old_oldest);

    Status check() const;

 private:
    friend class CacheDump;

    // One list of draining blocks per unfinished step, by the ring index of the last step that
    // touches them.
    enum ListName : uint32_t { kFree, kCached, kDraining, kLists = kDraining + kMaxUnfinished };
    struct List {
        uint32_t head = kNone;
        uint32_t tail = kNone;
        uint32_t count = 0;
    };

    static uint32_t draining_list(uint64_t step) { return kDraining + Timeline::ring_index(step); }
    uint32_t list_of(uint32_t block) const;
    void insert_before(uint32_t name, uint32_t block, uint32_t next);
    void leave_list(uint32_t block);
    void leave(uint32_t name, uint32_t block);
    void move_to_back(uint32_t first, uint32_t last);
    void push_front(uint32_t name, uint32_t block) {
        insert_before(name, block, lists_[name].head);
    }
    void push_back(uint32_t name, uint32_t block) { insert_before(name, block, kNone); }
    void push_unused(uint32_t block);
    void push_read(uint32_t block);
    void insert_by_stamp(uint32_t block, uint32_t next_hint);
    void take_back_run(const uint32_t *blocks, uint32_t count, uint32_t owner);
    void become_held(uint32_t block) {
        blocks_[block].state = BlockState::held;
        blocks_[block].refs = 1;
        ++held_;
    }
    void note_unscrubbed(uint32_t block);
    Status check_list(uint32_t name) const;
    Status check_unused(uint32_t block) const;
    Status check_counts(const uint32_t *counts) const;

    Array<Block> blocks_;
    Array<BlockLink> links_;
    Array<BlockOrigin> origins_;
    // Blocks that were given up with their content, in a pool that scrubs. Some were taken or
    // cleared since; the walk over the list finds that out.
    Array<uint32_t> unscrubbed_;
    Array<Cover> covers_;  // by block; empty until one is needed
    const Timeline *timeline_;
    List lists_[kLists];
    uint32_t cached_pending_[kMaxUnfinished] =
        {};  // cached blocks by the unfinished step touching them
    uint32_t draining_ = 0;
    uint64_t clock_ = 0;  // stamps given
    uint32_t held_ = 0;
    uint32_t parked_ = 0;
};

template <typename Body>
void BlockPool::scrub(uint64_t barrier, uint64_t step, Body body) {
    uint32_t kept = 0;
    for (uint32_t block : unscrubbed_) {
        Block &b = blocks_[block];
        uint64_t &tenant = origins_[block].tenant;
        bool is_unused = b.state == BlockState::free || b.state == BlockState::draining;
        if (is_unused && tenant != kFreshTenant && b.state == BlockState::draining &&
            b.touch >= barrier) {
            unscrubbed_[kept++] = block;
            continue;
        }
        b.is_unscrubbed = false;
        if (!is_unused || tenant == kFreshTenant) continue;
        leave_list(block);
        tenant = kFreshTenant;
        b.touch = step;
        push_unused(block);
        body(block);
    }
    unscrubbed_.shrink(kept);
}

}  // namespace quire
