// SPDX-License-Identifier: Apache-2.0
//
// journal: the only code that changes pools, tables and tree; while a step is open it writes down
// how to take each change back.
//
// Calls that belong to the open step are made between resume() and pause(); outside of it changes
// are final at once. The caller made room for the edits beforehand, so that no change fails
// half-way.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/blocks/block_tree.hpp"
#include "core/blocks/edit.hpp"
#include "core/blocks/lease_index.hpp"
#include "core/blocks/sequence.hpp"

namespace quire {

// Which sequence takes a block, for which tenant, and whether its content is overwritten.
struct Taker {
    uint32_t sequence;
    uint64_t tenant;  // number of its namespace
    bool overwrites;  // a copy writes all of the block before anything reads it
};

// The steps that a published block's content depends on, as in its record (Block).
struct Content {
    uint64_t ready;
    uint64_t depends;
};

// Blocks that are published after `before`, with their tokens.
struct BlockRun {
    uint32_t root;
    uint32_t before;  // kNullBlock: at the root
    const uint32_t *tokens;
    const uint32_t *blocks;  // [count]
    uint32_t count;
};

// Hears of evicted content that is kept nowhere else.
class LossWatch {
 public:
    // True if the node's block of the group would be lost if it were evicted now.
    virtual bool would_lose(uint32_t node, uint32_t group) const = 0;
    // One was evicted, and that is final.
    virtual void note_loss() = 0;

 protected:
    ~LossWatch() = default;
};

class Journal {
 public:
    Journal(const HostAllocator *host, const Timeline *timeline)
        : host_(host),
          timeline_(timeline),
          buffers_(host),
          tree_(host, &buffers_),
          block_tree_(host),
          tables_(host),
          lease_indexes_(host) {}
    ~Journal();

    struct Options {
        uint32_t max_sequences = 0;
        uint64_t seed = 0;     // of the tree's hashes
        bool has_tree = true;  // else nothing can be published
        bool scrubs = false;   // zero the blocks that are given up
        // Blocks that the device evicts live on in the host tier. REQUIRES: has_tree, and a
        // group with full attention.
        bool keeps_on_host = false;
        // Only leases use the cache, and publish in the block tree, outside of steps. REQUIRES: one
        // group, with full attention, and no host tier.
        bool leases_only = false;
    };
    Status create(const Geometry &geometry, const Options &options);

    // Where groups share a pool, it is the pool of each of them.
    BlockPool &pool(uint32_t group) { return *pools_[group]; }
    const BlockPool &pool(uint32_t group) const { return *pools_[group]; }
    // The host tier's blocks; nullptr without a host tier.
    BlockPool *host_pool(uint32_t group) { return host_pools_[group]; }
    const BlockPool *host_pool(uint32_t group) const { return host_pools_[group]; }
    // Different pools; each is that of the group with its number.
    uint32_t pool_count() const { return pool_count_; }
    // True if content that the device evicts goes to the host tier.
    bool demotes() const { return keeps_on_host_; }
    // The pool of a block as the tree names it.
    BlockPool &pool_of(uint32_t group, uint32_t named) {
        return is_on_host(named) ? *host_pools_[group] : *pools_[group];
    }
    const BlockPool &pool_of(uint32_t group, uint32_t named) const {
        return is_on_host(named) ? *host_pools_[group] : *pools_[group];
    }
    // The record of a block as the tree names it.
    const Block &named(uint32_t group, uint32_t named) const {
        return pool_of(group, named)[number_of(named)];
    }
    const BlockOrigin &origin(uint32_t group, uint32_t named) const {
        return pool_of(group, named).origin(number_of(named));
    }
    bool keeps_on_host() const { return keeps_on_host_; }
    PrefixTree &tree() { return tree_; }
    const PrefixTree &tree() const { return tree_; }
    // With Options::leases_only: in place of the tree, whose scopes it uses. A published block's
    // node is then the block's own number.
    bool leases_only() const { return block_tree_.is_open(); }
    BlockTree &block_tree() { return block_tree_; }
    const BlockTree &block_tree() const { return block_tree_; }
    BufferPool &buffers() { return buffers_; }
    BlockTable &table(uint32_t sequence, uint32_t group) {
        return tables_[uint64_t{sequence} * group_count_ + group];
    }
    const BlockTable &table(uint32_t sequence, uint32_t group) const {
        return tables_[uint64_t{sequence} * group_count_ + group];
    }

    // The most that each of the calls below writes into the step's record. A block that is taken
    // may have to be zeroed as well: zeroes().
    static constexpr Room kAddRef{1, 0}, kDropRef{1, 0}, kOwn{1, 0}, kSetEntry{1, 0};
    static constexpr Room kNoteShape{1, 0}, kTakeHost{1, 0}, kDropHost{1, 0}, kPublish{1, 0};
    static constexpr Room kHold{1, 0}, kCopy{0, 1}, kMoveToken{0, 1};
    // A block that is taken may be evicted to the host tier, where it needs a block too.
    Room take_room() const { return keeps_on_host_ ? Room{3, 1} : Room{1, 0}; }
    Room promote_room() const { return keeps_on_host_ ? take_room() + Room{1, 1} : Room{}; }
    Room attach_room() const { return Room{tree_.entry_count(), 0}; }
    // Room for zeroing `count` blocks that the taker gets, if they may show what another left in
    // them.
    Room zeroes(uint64_t count, const Taker &taker) const {
        bool may_show =
            scrubs_ || mixed_ || (only_tenant_ != kFreshTenant && only_tenant_ != taker.tenant);
        return Room{0, may_show && !taker.overwrites ? count : 0};
    }
    // The block that the copy reads, and the block that it writes.
    Block &source(const quire_block_copy &copy) {
        bool is_host = copy.kind == QUIRE_COPY_SWAP_IN;
        BlockPool &pool = is_host ? *host_pools_[copy.group] : *pools_[copy.group];
        return pool[static_cast<uint32_t>(copy.src)];
    }
    Block &target(const quire_block_copy &copy) {
        bool is_host = copy.kind == QUIRE_COPY_SWAP_OUT;
        BlockPool &pool = is_host ? *host_pools_[copy.group] : *pools_[copy.group];
        return pool[static_cast<uint32_t>(copy.dst)];
    }
    // True if a block may hold what its holder must not see: another tenant's content or, in a pool
    // that scrubs, anyone's.
    bool may_show_others() const { return has_tenants_ || scrubs_; }
    // True if blocks can be covered. Without the memory for it, none is: more content is lost.
    bool can_cover() const { return can_cover_; }
    // Marks all suspect blocks as mixed. O(blocks).
    void mark_suspects_mixed();
    // Marks as suspect the blocks that were covered with the help of this step, which failed. True
    // if there are any. O(blocks).
    bool uncover(uint64_t step);
    void clear_suspects();

    // Changes from here on belong to the step.
    void resume(StepEdits *step) { step_ = step; }
    void pause() { step_ = nullptr; }
    // Takes a block to write, a free one or by eviction. The step's copies zero it where another
    // tenant's content would show. REQUIRES: one is available to a step with this barrier.
    uint32_t take(uint32_t group, uint64_t barrier, const Taker &taker) {
        return take(group, barrier, taker, false);
    }
    // Brings the content of a node's block in the host tier back to the device: takes a block,
    // which a copy of the step fills and the node names from then on. The caller holds the block.
    // REQUIRES: a block is available.
    uint32_t promote(uint32_t group, uint32_t node, const Taker &taker);
    // Adds a reference to a held or cached block.
    void add_ref(uint32_t group, uint32_t block);
    // Drops a reference of a table whose last step is `touch`.
    void drop_ref(uint32_t group, uint32_t block, uint64_t touch);
    // The open step drops a reference: a copy of the step reads the block, or a victim gives it up.
    // The block's `touch` rises at commit, because until then nothing has to wait for it, if
    //   a copy of the step reads the block: all of the step waits for the table's `last_step`; or
    //   the victim computes again, and its last step has run or runs on the step's queue.
    // Otherwise `touch` rises at once, and undoing lowers it unless others let go of the block
    // meanwhile.
    struct Letting {
        uint64_t last_step;
        bool is_read;         // by a copy of the open step
        bool runs_elsewhere;  // the last step does, and nothing waits for it
        bool waits_here;      // `touch` rises at commit to a step that is not done
    };
    // `sequence`, whose table it is, may no longer write into the block in place, even if it gets
    // the block again or others still hold it.
    void let_go(uint32_t group, uint32_t block, uint32_t sequence, const Letting &how);
    void let_go_host(uint32_t group, uint32_t block);  // a copy reads it
    // Makes `sequence` the block's owner, which alone may write into it in place.
    void own(uint32_t group, uint32_t block, uint32_t sequence, uint32_t frozen_slots);
    // A sequence that gave the block back for good may not write to it, even if others still hold
    // it.
    void disown(uint32_t group, uint32_t block, uint32_t sequence) {
        Block &b = (*pools_[group])[block];
        if (b.owner == sequence) b.owner = kNone;
    }
    void set_entry(Sequence *s, uint32_t sequence, uint32_t group, uint32_t index, uint32_t block);
    // Remembers a table's length before it changes; once per change and group.
    void note_shape(const Sequence &s, uint32_t sequence, uint32_t group);
    // REQUIRES: the table has room. A null block may be appended too.
    void append_entry(Sequence *s, uint32_t sequence, uint32_t group, uint32_t block) {
        BlockTable &t = table(sequence, group);
        QUIRE_ASSERT(t.length < t.ids.capacity);
        t.ids.data[t.length++] = block;
        if (block != kNullBlock) {
            ++s->blocks_held;
        } else {
            t.null_front = t.length;
        }
    }
    // Leases. Each is a sequence without tokens, whose tables name what it holds (lease_index.hpp).
    // Makes room for the indexes of all that there can be. False: no memory.
    [[nodiscard]] bool open_leases();
    // Forgets where a lease that ends has its `held` blocks.
    void close_lease(uint32_t lease, uint32_t held);
    uint64_t leased() const { return leased_; }  // blocks that leases hold
    // Where a lease's table names which block. REQUIRES: open_leases().
    LeaseIndex &lease_index(uint32_t lease, uint32_t group) {
        return lease_indexes_[uint64_t{lease} * group_count_ + group];
    }
    const LeaseIndex &lease_index(uint32_t lease, uint32_t group) const {
        return lease_indexes_[uint64_t{lease} * group_count_ + group];
    }
    // Makes room for `count` more blocks. False: no memory.
    [[nodiscard]] bool reserve_holds(uint32_t lease, uint32_t group, uint64_t count);
    // The lease holds the block once more. True if it did not hold it before: the caller adds the
    // reference.
    bool hold(Sequence *s, uint32_t lease, uint32_t group, uint32_t block);
    // The lease holds the block once less, and lets it go after its last hold. False: it does not
    // hold it.
    bool let_hold_go(Sequence *s, uint32_t lease, uint32_t group, uint32_t block,
                     const Letting &how);
    // The lease, which has taken the blocks and published them, holds each once less;
    // blocks[count - 1] is evicted first. Not for the open step, nor while a step is not done.
    void let_run_go(Sequence *s, uint32_t lease, uint32_t group, const uint32_t *blocks,
                    uint32_t count);
    // Takes a block off a lease, however often it is held. Not for the open step.
    void lose_entry(Sequence *s, uint32_t lease, uint32_t group, uint32_t entry, uint64_t touch);
    // Takes a block of the host tier, a free one or by eviction. REQUIRES: one is available.
    uint32_t take_host(uint32_t group, uint64_t barrier);
    // Forgets cached content of the host tier, the longest unused first, until that many blocks are
    // idle or nothing is left to forget. Not for the open step.
    void make_idle_host(uint32_t group, uint32_t count);
    // Takes a block of the host tier that the caller fills itself. Not for the open step.
    uint32_t take_idle_host(uint32_t group);
    void drop_host(uint32_t group, uint32_t block, uint64_t touch);
    void copy(uint32_t kind, uint32_t group, uint32_t src, uint32_t dst);
    // Moves one token between places in blocks that the sequence owns.
    void move_token(uint32_t sequence, uint32_t group, uint32_t src, uint32_t dst);
    // The most blocks that a step may have to scrub.
    uint64_t unscrubbed_count() const;
    // Zeroes blocks that were given up, by copies of the step. REQUIRES: the record has room for
    // them.
    void scrub(StepEdits *step);

    // Makes an entry of `node` name the sequence's block `index` in the group, unless it names a
    // better one. True if it now names one that another sequence owns.
    bool attach_block(uint32_t sequence, uint32_t group, uint32_t index, uint32_t node,
                      uint32_t entry, const Content &content) {
        const BlockTable &t = table(sequence, group);
        uint32_t block = index < t.length ? t.ids.data[index] : kNullBlock;
        if (block == kNullBlock || tree_.blocks(node)[entry] == block) return false;
        const Block &b = (*pools_[group])[block];
        if (b.node != kNone) return false;  // a node that is out of reach names it
        if (!adopt(group, block, node, entry, content)) return false;
        return b.owner != sequence && b.owner != kNone;
    }
    // Makes an entry of `node` name the block if it names none, or one that no table names. False:
    // it names one that is held.
    bool adopt(uint32_t group, uint32_t block, uint32_t node, uint32_t entry,
               const Content &content) {
        uint32_t *named = &tree_.change_blocks(node)[entry];
        if (*named != kNullBlock && !replace(group, block, node, entry)) return false;
        BlockPool &pool = *pools_[group];
        Block &b = pool[block];
        if (*named == kNullBlock)
            note(Adopt{named_block(pool, block), node, entry, block, static_cast<uint8_t>(group)});
        *named = block;
        b.node = node;
        BlockOrigin &origin = pool.origin(block);
        origin.ready = content.ready;
        origin.depends = content.depends;
        if (origin.tenant == kMixedTenant && !b.is_covered && can_cover_) [[unlikely]]
            pool.cover(block, Cover{content.ready, content.depends});
        // From now on any sequence may read all of it, even if it leaves the tree again.
        b.frozen_slots = static_cast<uint16_t>(sizes_[group].tokens());
        return true;
    }
    // True if a block that the node names depends on the step.
    bool node_depends(uint32_t node, uint64_t step) const;
    // A new node under `at`; kNone if the tree is full.
    uint32_t publish(uint32_t root, const TreeCursor &at, uint64_t hash, const uint32_t *tokens,
                     const Extra &extra);
    // Removes a node from the tree for good and frees its cached blocks. Returns the nearest
    // ancestor that stays, or kNone; with full-attention groups always kNone. Not for the open
    // step.
    uint32_t forget(uint32_t node);
    // Takes a block from the node that names it; the node's others stay. A cached block becomes
    // free. Not for the open step.
    void withdraw(uint32_t group, uint32_t block);
    // Takes a node's blocks from it, and frees it unless nodes below need it. For caches without
    // full-attention groups.
    void strip(uint32_t node) {
        detach(node);
        tree_.free_if_bare(node);
    }

    // With leases_only(), and not for the open step, but for make_unused():
    // The lease publishes blocks that it has taken and holds alone after `before`, and holds each
    // once less. Returns how many; less than the run has: the block with that index is not such a
    // one, and nothing changed. REQUIRES: no step is unfinished.
    [[nodiscard]] uint32_t insert_run(Sequence *s, uint32_t lease, const BlockRun &run);
    // Takes a block out of the tree for good; a cached one becomes free.
    void forget_block(uint32_t block);
    // Evicts the oldest cached block that no step from `barrier` on may touch. Returns it, or
    // kNone: none can go.
    uint32_t evict_block(uint64_t barrier);
    // Evicts a block if all that a step with this barrier can take are cached. Undoing the step
    // does not bring it back. REQUIRES: one is available.
    void make_unused(uint64_t barrier);
    // Replaces the block tree by `tree`, a new one as large as the pool is then.
    void replace_block_tree(BlockTree *tree, const uint32_t *ids);
    Status make_block_tree(BlockTree *tree, uint32_t block_count);

    // Forgets everything that is cached for a namespace. REQUIRES: no sequence uses a scope of the
    // namespace, and no step is open. Time O(nodes of the namespace).
    void forget_account(uint32_t account);
    // Makes the account fit its limit by forgetting all nodes of scopes that no sequence uses, the
    // longest unused first. False: that would not be enough, and nothing changed. May be called
    // while a step is open, so a scope stays if one of its blocks is in any state but cached.
    // Time O(1) within the limit, else O(nodes of the scopes looked at).
    [[nodiscard]] bool trim_account(uint32_t account);

    // How many nodes must be free when a step begins, without full-attention groups: one per block.
    // Each node published before the next commit has a block, and no block has two nodes.
    uint64_t node_reserve() const;
    // Forgets nodes that no sequence uses, the least recently used first and leaves before their
    // ancestors, until `wanted` nodes are free or no such node is left. REQUIRES: no step is open,
    // and no group has full attention. Time O(cached blocks + nodes freed).
    void forget_leaves(uint64_t wanted);

    // Undoes the range in reverse order and voids its copies. s: the range's sequence.
    void undo(StepEdits *step, const EditRange &range, Sequence *s);
    // Called after all of a step was undone, some of it earlier than the rest: caches the blocks
    // again that could not be cached then. edit_count: the step's before that.
    void undo_displaced(StepEdits *step, uint64_t edit_count);
    // Frees nodes that were left without a block and children when what was published in or below
    // them was undone. REQUIRES: nothing of these edits is undone any more.
    void free_bare(const StepEdits &step, uint64_t edit_count);
    // Makes the edits of a range final.
    void settle(const StepEdits &step, const EditRange &range);

    // Marks what the range did to blocks that a later one may build on: the blocks that it gave up,
    // which undoing it takes back, and those that it published, which then can no longer be found.
    void mark_doomed(const StepEdits &step, const EditRange &range, bool doomed);
    // True if the range has to be undone with what is marked as doomed.
    bool rests_on_doomed(const StepEdits &step, const EditRange &range) const;

    // Makes room in the tree for pools of those sizes. False: no memory.
    bool reserve_nodes(const Geometry &target) {
        return leases_only() || tree_.reserve(node_capacity(target));
    }
    // A pool like the one that a group has, with other blocks; nullptr: no memory. The caller owns
    // it: BlockPool::destroy().
    BlockPool *make_pool(uint32_t block_count) const {
        return BlockPool::make(host_, timeline_, block_count, scrubs_);
    }
    BlockPool *make_host_pool(uint32_t block_count) const {
        return BlockPool::make(host_, timeline_, block_count, false);
    }
    // Makes what a node names the last to be evicted, if it is cached. The host tier's list goes by
    // the device's stamps too (journal_host.cpp).
    void touch(uint32_t group, uint32_t named) {
        BlockPool &pool = pool_of(group, named);
        if (pool[number_of(named)].state != BlockState::cached) return;
        pool.touch_cached(number_of(named), pools_[group]->take_stamp());
    }
    // Evicts the oldest cached block of the group's pool that no unfinished step may touch, with
    // its content, and writes to `ids` which blocks of its group left its node. Returns how many,
    // or 0: none can go, or they are more than `room`. Not for the open step.
    uint32_t evict_oldest(uint32_t group, int32_t *ids, uint32_t room);
    // Removes a cached block, as the tree names it, as if it had been evicted.
    void drop_cached(uint32_t group, uint32_t named);
    // Each replaces the pool with that number by *pool, which gets the old one. ids: [old block]
    // its number in the new one. The tables are renumbered one by one. REQUIRES: no step is open or
    // running.
    void replace_pool(uint32_t number, BlockPool **pool, const uint32_t *ids);
    void replace_host_pool(uint32_t number, BlockPool **pool, const uint32_t *ids);
    void renumber_table(uint32_t sequence, uint32_t group, const uint32_t *ids);

    // Forgets which runs of copies the blocks were in. O(blocks).
    void forget_runs();

    void retire(uint64_t old_oldest);
    // nullptr: no one hears of losses.
    void watch_losses(LossWatch *watch) { watch_ = watch; }
    uint64_t evictions() const { return evictions_; }  // content that was lost
    uint64_t demotions() const { return demotions_; }
    uint64_t promotions() const { return promotions_; }
    uint64_t drops() const { return drops_; }  // calls of drop_cached(): a match may be void
    const BlockPool *const *pools() const { return pools_; }
    Status check() const;

 private:
    friend class CacheCheck;
    friend class CacheDump;
    friend struct Inside;

    // The cached blocks that will be evicted next, as a ring; the one expected next is at `at`.
    static constexpr uint32_t kLookAhead = 32;
    struct LookAhead {
        uint32_t at = 0;
        uint32_t blocks[kLookAhead] = {};  // the null block is never evicted
        uint32_t &ahead(uint32_t distance) { return blocks[(at + distance) % kLookAhead]; }
    };

    uint32_t take(uint32_t group, uint64_t barrier, const Taker &taker, bool promotes);
    uint32_t evict(uint32_t group, uint64_t barrier, const Taker &taker, bool promotes);
    uint32_t host_room(uint32_t group, uint64_t barrier, bool promotes);
    uint32_t evict_host(uint32_t group, uint64_t barrier);
    Demote demote(uint32_t group, uint32_t block, uint32_t to);
    uint64_t depends_of_copy(const BlockOrigin &source) const;
    void release_named(uint32_t group, uint32_t named);
    void look_ahead(uint32_t pool, uint32_t block);
    template <typename Drop>
    void drop_from(BlockPool *pool, Drop *edit, const Letting &how);
    // Everything that naming a block changes in it.
    static NamedBlock named_block(const BlockPool &pool, uint32_t block) {
        const Block &b = pool[block];
        const BlockOrigin &origin = pool.origin(block);
        return NamedBlock{origin.ready, origin.depends, b.owner, b.frozen_slots, b.is_covered != 0};
    }
    bool replace(uint32_t group, uint32_t block, uint32_t node, uint32_t entry);
    template <typename Taking>
    void hand_over(Taking *edit, BlockPool *pool, uint32_t group, const Taker &taker);
    // A new edit of the open step, all zeros, to be filled in its place in the record. REQUIRES: a
    // step is open.
    template <typename Kind>
    Kind &new_edit() {
        auto *edit = ::new (step_->edits.push_uninitialized()) Edit(std::in_place_type<Kind>);
        return *std::get_if<Kind>(edit);
    }
    // Writes no more of the record than this kind of edit has.
    template <typename Kind>
    void note(const Kind &edit) {
        if (step_ != nullptr) ::new (step_->edits.push_uninitialized()) Edit(edit);
    }
    void undo_edit(Edit *any_edit, Sequence *s);
    void undo_evict(Evict *edit);
    void undo_adopt(const Adopt &edit);
    void undo_replace(const Replace &edit);
    void undo_demote(const Demote &edit);
    void undo_promote(const Promote &edit);
    void undo_shape(const TableShape &edit, Sequence *s);
    void undo_hold(const Hold &edit, Sequence *s);
    void add_entry(Sequence *s, uint32_t lease, uint32_t group, uint32_t block);
    void remove_entry(Sequence *s, uint32_t lease, uint32_t group, uint32_t entry);
    // False: the lease still holds some of them, once less.
    bool remove_run(Sequence *s, uint32_t lease, uint32_t group, const uint32_t *blocks,
                    uint32_t count);
    void restore_entry(Sequence *s, const Hold &edit);
    void settle_evict(const Evict &edit);
    void settle_demote(const Demote &edit, uint64_t step);
    // The number of the group's pool.
    uint32_t number_of_pool(uint32_t group) const { return pool_count_ == 1 ? 0 : group; }
    void share_pool();
    void renumber_nodes(uint32_t number, uint32_t level, const uint32_t *ids);
    BlockPool &pool_of(const Evict &edit) {
        return edit.is_host ? *host_pools_[edit.group] : *pools_[edit.group];
    }
    void prefetch_settling(const StepEdits &step, uint32_t i, uint32_t end) const;
    bool rests_on_doomed(const Edit &any_edit) const;
    void name_again(const Evict &edit);
    bool would_lose(uint32_t node, uint32_t group) const {
        return watch_ != nullptr && watch_->would_lose(node, group);
    }
    void note_losses(uint32_t node, uint32_t begin, uint32_t end);
    void detach(uint32_t node);
    bool is_unused_leaf(uint32_t node) const;
    bool is_unused(uint32_t node) const;
    bool is_unused_scope(uint32_t scope) const;
    void forget_nodes(uint32_t scope);
    uint32_t node_capacity(const Geometry &geometry) const;
    bool reserve_covers();

    const HostAllocator *host_;
    const Timeline *timeline_;
    BufferPool buffers_;
    PrefixTree tree_;
    BlockTree block_tree_;
    Array<BlockTable> tables_;
    Array<LeaseIndex> lease_indexes_;    // by table; empty until the first lease is made
    BlockPool *pools_[kMaxGroups] = {};  // by group; of groups that share one, all the same
    BlockPool *host_pools_[kMaxGroups] = {};
    LookAhead ahead_[kMaxGroups];  // by pool
    bool full_[kMaxGroups] = {};
    bool cross_[kMaxGroups] = {};
    BlockSize sizes_[kMaxGroups];
    bool any_full_ = false;
    bool scrubs_ = false;
    bool keeps_on_host_ = false;
    // All blocks are fresh or this tenant's; if mixed_, they may be any tenant's.
    uint64_t only_tenant_ = kFreshTenant;
    bool mixed_ = false;
    bool can_cover_ = false;    // every pool has room for covers
    bool has_tenants_ = false;  // more than one has written
    uint32_t group_count_ = 0;
    uint32_t pool_count_ = 0;
    StepEdits *step_ = nullptr;
    LossWatch *watch_ = nullptr;
    uint64_t evictions_ = 0;
    uint64_t demotions_ = 0;
    uint64_t promotions_ = 0;
    uint64_t drops_ = 0;
    uint64_t leased_ = 0;
};

}  // namespace quire
