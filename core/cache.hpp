// SPDX-License-Identifier: Apache-2.0
//
// cache: directs the parts; the only unit that knows all others.
//
//   cache.cpp            creation, namespaces, statistics, reset
//   cache_sequence.cpp   create, end, fork, truncate, set_tokens
//   cache_keys.cpp       a sequence's keys
//   cache_accept.cpp     accepting drafts
//   cache_audit.cpp      what unfinished steps touch, for a cache that is audited
//   cache_lookup.cpp     finding and publishing prefixes
//   cache_nodes.cpp      which prefixes give way when the tree is full
//   cache_admit.cpp      what an item needs
//   cache_take.cpp       taking what it needs
//   cache_preempt.cpp    giving up blocks: swap or recompute
//   cache_step.cpp       begin, add, drop, abort, commit
//   cache_finish.cpp     finish, fences, the rollback of failed steps
//   cache_log.cpp        writing a leader's log
//   cache_follow.cpp     applying a log
//   cache_calibrate.cpp  the largest magnitudes of K and V
//   cache_migrate.cpp    moving a live cache to other memory
//
// Threads: none; the owner of the Cache holds a lock around every call.
// Units: counts are blocks, positions and lengths tokens.
#pragma once

#include "core/device/batch.hpp"
#include "core/device/queue_set.hpp"
#include "core/move/migration.hpp"
#include "core/replica/follower.hpp"
#include "core/replica/leader.hpp"
#include "core/replica/log_reader.hpp"
#include "core/steps/name_space.hpp"
#include "core/steps/pressure.hpp"
#include "core/steps/sequence_keys.hpp"
#include "core/witness.hpp"

namespace quire {

// Items of one begin or add call, as the caller gave them; strides are checked.
struct ItemList {
    const uint8_t *items = nullptr;
    uint32_t count = 0;
    uint32_t stride = 0;
    const quire_token *tokens = nullptr;
    uint32_t token_count = 0;
    uint8_t *results = nullptr;
    uint32_t result_stride = 0;

    const quire_step_item &item(uint32_t i) const {
        return *reinterpret_cast<const quire_step_item *>(items + uint64_t{i} * stride);
    }
    quire_step_result &result(uint32_t i) const {
        return *reinterpret_cast<quire_step_result *>(results + uint64_t{i} * result_stride);
    }
};

struct StepOptions {
    uint32_t flags = 0;
    uint32_t preempt = 0;
    uint64_t queue_tag = 0;  // for a bookkeeping-only cache
    uint32_t queue_count = 0;
    Queue *queues[kMaxShards];  // one per shard
};

// The target of a migration, as the caller described it.
struct MigrateTarget {
    const quire_migrate_desc &desc;
    const ShardRange *shards;  // [desc.shard_count]
};

// Random numbers for a cache: the prefix hash's key; its identity as a leader; and where the
// sequence handles of the process begin, if this is the first cache.
struct CacheSeeds {
    uint64_t hash;
    uint64_t identity;
    uint64_t handles;
};

class Cache {
 public:
    explicit Cache(const HostAllocator &host);
    ~Cache();

    // shards: [desc.shard_count].
    Status create(const quire_cache_desc &desc, const quire_group_desc *groups,
                  const ShardRange *shards, const CacheSeeds &seeds, quire_error *error);

    void info(quire_cache_info *out) const;
    Status check_shard(uint32_t shard) const;
    Status pool_info(uint32_t group, uint32_t shard, quire_pool_info *out) const;
    void stats(quire_cache_stats *out) const;
    Status reset();
    // Checks the books. error: what is wrong, in words. See cache_check.hpp.
    Status check(quire_error *error);
    Status check_idle(quire_error *error);
    // Writes everything that decides what comes next as text (cache_dump.hpp), also for a stopped
    // cache. Writes nothing if it does not fit.
    Status dump(bool with_tokens, char *buffer, uint64_t capacity, uint64_t *size_bytes) const;

    Status create_namespace(const quire_namespace_desc &desc, uint64_t *out);
    Status destroy_namespace(uint64_t handle);
    Status namespace_info(uint64_t handle, quire_namespace_info *out) const;

    Status create_sequence(const quire_seq_desc &desc, const quire_key *keys, uint64_t *out);
    Status end_sequence(uint64_t handle, uint32_t flags);
    Status fork_sequence(uint64_t handle, uint32_t token_count, uint64_t *out);
    Status truncate(uint64_t handle, uint32_t token_count);
    Status accept(uint64_t handle, uint32_t count);
    Status accept_path(uint64_t seq, const uint32_t *path, uint32_t count);
    Status set_tokens(const uint8_t *spans, uint32_t count, uint32_t stride,
                      const quire_token *tokens, uint32_t token_count);
    Status sequence_info(uint64_t handle, quire_seq_info *out) const;
    Status probe(uint64_t handle, const quire_token *tokens, uint32_t token_count, uint32_t *hits);

    Status begin(const StepOptions &options, const ItemList &list, uint64_t *out,
                 quire_error *error);
    Status add(uint64_t step, const ItemList &list);
    Status drop(uint64_t step, uint64_t seq, uint64_t *dropped, uint32_t capacity, uint32_t *count);
    Status preempt(uint64_t step, uint64_t seq, uint32_t how, uint32_t *freed);
    Status preempted(uint64_t step, uint8_t *out, uint32_t capacity, uint32_t stride,
                     uint32_t *count);
    Status abort(uint64_t step);
    Status commit(uint64_t step, Batch *batch, quire_error *error);
    // native: a semaphore that the step's queue waits for first; nullptr or NONE for no wait.
    Status finish(uint64_t step, const quire_native *native, uint32_t outcome, quire_error *error);
    Status blocks(uint64_t step, uint64_t seq, uint32_t group, uint32_t first, int32_t *ids,
                  uint32_t capacity, uint32_t *count);
    Status copies(uint64_t step, uint8_t *out, uint32_t capacity, uint32_t stride, uint32_t *count);

    Status step_log(uint64_t step, void *buffer, uint64_t capacity, uint64_t *size_bytes);
    Status apply_log(const uint8_t *bytes, uint64_t size_bytes, const StepOptions &options,
                     Batch *batch, uint64_t *out, quire_error *error);
    bool follows() const { return follower_.active(); }

    // A call found a broken invariant. The cache stays as it is, and from now on only calls that
    // show it or give up what it holds are made: stats, dump, finish, check_idle, forget_batch.
    void stop(const BrokenInvariant &why);
    const BrokenInvariant *why_stopped() const { return is_stopped_ ? &why_stopped_ : nullptr; }

    // The fence that must be reached before magnitudes are read; if there is none, fence is NULL.
    struct Awaited {
        const quire_backend_api *api = nullptr;
        quire_be_fence *fence = nullptr;
        uint64_t value = 0;
    };
    Status calibration_size(uint64_t *size_bytes) const;
    Status await_writes(Awaited *out, quire_error *error);
    // REQUIRES: await_writes() gave no fence, and capacity for calibration_size().
    Status save_calibration(uint8_t *buffer, quire_error *error);

    // Plans a move and allocates what it needs; m->info holds the resulting counts. The cache
    // changes only in that it refuses further changes. *begun: false if blocks or room for moves
    // are short. REQUIRES: a Migration that was just made.
    Status begin_migration(const MigrateTarget &target, Migration *m, bool *begun,
                           quire_error *error);
    // Copies without the cache's lock. REQUIRES: begun.
    Status copy(Migration *m, quire_error *error) { return m->copy(shards_, error); }
    // Puts the cache on the target, or leaves it where it was if `copied` is no success. The memory
    // that it left goes with *m.
    void end_migration(const MigrateTarget &target, const Status &copied, Migration *m);
    // OK if a migration could begin, apart from steps that still run.
    Status check_closed() const;
    // For calls that change anything.
    Status check_at_rest() const {
        if (!migrating_) [[likely]]
            return Status{};
        return fail(QUIRE_E_BUSY, "the cache is being migrated");
    }

    Status create_batch(const quire_batch_desc &desc, Batch *batch, quire_error *error);
    void forget_batch(Batch *batch);
    // Reads fences; steps whose work has run become done.
    Status poll(quire_error *error);
    bool batch_busy(const Batch &batch) const { return !timeline_.has_run(batch.last_step()); }
    const LayerPlace *place(uint32_t layer) const {
        return layer < geometry_.layer_count ? &places_[layer] : nullptr;
    }
    const Shards &shards() const { return shards_; }
    uint32_t batch_count() const { return batch_count_; }
    // The device memory and host memory that devices hold for the cache, batches included.
    DeviceMemory memory() const;

 private:
    friend class CacheCheck;
    friend class CacheDump;
    friend struct Inside;  // lets tests break what is checked

    // An item's needs, worked out before anything is changed.
    struct Plan {
        uint32_t sequence;
        uint32_t known;     // after the item's tokens
        uint32_t position;  // of the first token to compute
        uint32_t compute;
        uint32_t lookahead;
        uint32_t hit_blocks;  // of the prefix that was found
        uint32_t query_tokens;
        bool admission;  // nothing of the sequence is on the device yet
        bool takes;      // takes any block or hit
        bool swapped;
        bool reuses;                       // it is short, and gives back blocks past its window
        uint32_t lookup_end;               // tokens from here on are computed, not found
        uint32_t drafts;                   // drafts that are a tree
        uint32_t length[kMaxGroups];       // of the table in the end
        uint32_t fresh[kMaxGroups];        // blocks to take
        uint32_t shared[kMaxGroups];       // hits that the table will name
        uint32_t from_cached[kMaxGroups];  // hits that are unreferenced now
        bool copy_tail[kMaxGroups];        // the block it writes first is shared
        uint32_t null_front[kMaxGroups];   // of the table after it gave back what is reused
        uint32_t passed[kMaxGroups];       // entries that it then gives back
        uint32_t freed[kMaxGroups];        // blocks among them that the step can use
    };
    struct Short {
        uint32_t blocks = 0;
        uint32_t reason = 0;
    };
    // An item that had to wait. Its tokens lie in its sequence's buffer and its hashes are in
    // hashes_: a scheduler sends it again in every step, and then only the tokens are compared.
    struct Waiting {
        uint64_t handle = 0;         // 0: none
        uint32_t known = 0;          // without the item's tokens
        uint32_t token_count = 0;    // of the item
        uint32_t first_unknown = 0;  // with the item's tokens
        uint32_t blocks = 0;         // hashed
    };

    // cache.cpp
    StepRecord &open_record() { return records_[open_slot_]; }
    bool step_open() const { return open_slot_ != kNone; }
    Status find_sequence(uint64_t handle, uint32_t *index) const;
    Status find_idle_sequence(uint64_t handle, uint32_t *index) const;
    Status find_step(uint64_t handle, bool must_be_open, StepRecord **out);

    // cache_sequence.cpp
    Status no_sequence_left() const;
    void lower_computed(uint32_t sequence, uint32_t token_count, uint32_t wrong_from);
    uint32_t whole_window_length(uint32_t sequence, uint32_t token_count);
    void release_from(uint32_t sequence, uint32_t first_block, uint32_t first_wrong);
    void rewind_cursor(uint32_t sequence);
    uint32_t charged(const Sequence &s) const;
    void charge(const Sequence &s, uint32_t charged_before);
    bool used_by_others(uint32_t sequence, uint32_t index, uint32_t node) const;
    Status drop_published(uint32_t sequence);
    void drop_unreachable(uint32_t sequence, uint32_t first);
    void unpublish_tail(uint32_t sequence);
    void charge_change(Change *change, uint32_t charged_before);
    void settle_returned(const Change &change);
    Status share_tables(uint32_t parent, uint32_t child, uint32_t computed);

    // cache_keys.cpp
    Status use_keys(const quire_key *keys, uint32_t key_count, Sequence *fresh);
    uint32_t use_spans(uint32_t root, uint32_t account, const quire_key *keys, uint32_t key_count);
    Status fit_account(uint32_t account);
    void end_keys(const Sequence &s);

    // cache_accept.cpp
    Status check_path(const Sequence &s, const uint32_t *path, uint32_t count) const;

    // cache_lookup.cpp
    bool hash_blocks(const Sequence &s, uint32_t block_count);
    Extra extra_of(const Sequence &s, uint32_t block) const;
    uint32_t match(const Sequence &s, uint32_t max_blocks, uint64_t queue);
    bool visible(uint32_t node, uint64_t queue) const;
    uint32_t best_hit(uint32_t matched) const;
    uint32_t publishable(uint32_t sequence) const;
    uint64_t depends(const Sequence &s, uint32_t end) const;
    void publish(uint32_t sequence, uint64_t ready);
    Room publish_room(const Plan &plan) const;
    bool named_elsewhere(uint32_t sequence, uint32_t index);

    // cache_nodes.cpp
    uint32_t bare_blocks(uint32_t sequence, uint32_t from) const;
    uint32_t pinned_nodes(uint32_t sequence) const;
    bool has_node_room(uint32_t sequence, uint32_t from) const;
    void silence(uint32_t sequence);
    void silence_longest(uint64_t wanted, uint32_t spared);
    void make_node_room();

    // cache_admit.cpp
    Status check_item(const ItemList &list, uint32_t i, uint32_t *sequence);
    Status mark_items(const ItemList &list);
    Status add_items(const ItemList &list);
    Status add_item(const ItemList &list, uint32_t i);
    void note_tokens(const quire_step_item &item, const quire_token *tokens, Sequence *s);
    Status make_plan(const quire_step_item &item, const quire_token *tokens, uint32_t sequence,
                     Plan *plan);
    bool stays_in_place(const quire_step_item &item, uint32_t sequence) const;
    bool has_waited(const quire_step_item &item, const Sequence &s,
                    const quire_token *tokens) const;
    Status find_prefix(Plan *plan, bool has_waited);
    void measure(Plan *plan);
    void measure_passed(Plan *plan, uint32_t group) const;
    bool tail_is_writable(uint32_t sequence, uint32_t group, uint32_t position);
    Short shortage(const Plan &plan) const;
    bool reserve_mask(uint64_t words);
    bool reserve_record(uint64_t changes, uint64_t edits, uint64_t copies, uint64_t preemptions);
    Status reserve(const Plan &plan);

    // cache_take.cpp
    Room take_room(const Plan &plan) const;
    void give_back_passed(const Plan &plan, uint32_t group);
    void take_hit(Change *change, uint32_t group, uint32_t block, uint32_t index);
    void take_hits(const Plan &plan, Change *change, uint32_t group);
    void swap_in(const Plan &plan, Change *change, uint32_t group);
    Taker taker(uint32_t sequence, bool overwrites) const;
    void copy_tail(const Plan &plan, uint32_t group);
    void take_all(Plan *plan, Change *change);
    void run_item(const quire_step_item &item, const uint32_t *words, Plan *plan, Change *change,
                  quire_step_result *result);
    void run_in_place(const quire_step_item &item, const quire_token *tokens, uint32_t sequence,
                      quire_step_result *result);
    void open_change(Change *change, uint32_t position, uint32_t count);
    void note_drafts(const quire_step_item &item, const Change &change, Sequence *s);
    void move_tokens(uint32_t sequence, Change *change);
    void note_mask(const quire_step_item &item, const uint32_t *words, Change *change);
    void note_item(const quire_step_item &item, const Change &change, quire_step_result *result);

    // cache_preempt.cpp
    Status make_room(Plan *plan, Short *missing);
    bool gather_victims(const Plan &plan);
    uint32_t next_victim();
    Candidate candidate(const Sequence &s) const;
    bool may_be_victim(const Sequence &s) const;
    bool still_written_elsewhere(const Sequence &s) const;
    Status give_up(uint32_t sequence, uint32_t how, uint64_t for_seq);
    bool host_has_room(uint32_t sequence) const;
    void swap_out(uint32_t sequence, uint32_t group);
    void drop_blocks(uint32_t sequence, uint32_t group);
    uint64_t held_bytes(uint32_t sequence) const;
    uint32_t usable_blocks() const;

    // cache_step.cpp
    void undo_change(StepRecord *record, Change *change);
    void undo_changes(StepRecord *record, uint64_t keep);
    void undo_step(StepRecord *record);
    Status prepare_commit(StepRecord *record, Batch *batch, quire_error *error);
    Status name_step(StepRecord *record);
    void release_queues(StepRecord *record);
    void close(StepRecord *record);
    bool mark_doomed(StepRecord *record, uint32_t first);
    BatchNeed need_of(const StepRecord &record) const;
    Status check_batch(const StepRecord &record, Batch *batch) const;
    void pass_windows(const Change &change);
    void settle_items(StepRecord *record, Batch *batch);
    void republish(uint32_t sequence, uint64_t ready);
    void publish_again(const StepRecord &record);
    void note_named(uint32_t sequence);
    void settle_named(bool undone);
    Status lost_at_commit(const Status &why, quire_error *error);
    void count_copies(const StepRecord &record);
    void hold_queues(StepRecord *record, const StepOptions &options);
    Status enqueue(const StepRecord &record, Batch *batch, quire_error *error);
    Status enqueue_on(uint32_t shard, const StepRecord &record, Batch *batch, quire_error *error);
    Status wait_for_other_queues(StepRecord *record, quire_error *error);
    Status wait_for_step(const StepRecord &record, const StepRecord &other, quire_error *error);
    Status check_queues(const StepRecord &record, quire_error *error);

    // cache_audit.cpp
    bool reserve_witness(const StepRecord &record, uint64_t left_count);
    void witness_table(const StepRecord &record, const Change &change, uint32_t group);
    uint32_t wanted_slots(const Change &change, const quire_block_copy &copy) const;
    void witness_copy(const StepRecord &record, const quire_block_copy &copy, uint32_t wanted);
    void witness_step(const StepRecord &record);

    // cache_finish.cpp
    bool suspect_copies(const StepRecord &failed);
    void cover_suspects();
    void cover_table(uint32_t sequence, uint32_t group);
    uint32_t first_suspect(uint32_t sequence, uint32_t group) const;
    void lose_suspects();
    void fail_step(StepRecord *record);
    void lose(uint32_t sequence, uint32_t valid_tokens);
    void withdraw_published(uint64_t step);
    void begin_batch(StepRecord *record, Batch *batch);
    void end_batch(StepRecord *record);
    Status wait_for_native(StepRecord *record, const quire_native &native, quire_error *error);
    Status signal(StepRecord *record, uint32_t shard, quire_error *error);
    void abandon(StepRecord *record);
    Status read_fences(const StepRecord &record, bool *passed, bool *failed, quire_error *error);
    void complete(StepRecord *record);

    // cache_log.cpp
    LogSequence log_sequence(uint32_t index) const;
    Status reserve_log(StepRecord *record);
    uint32_t log_order(const StepRecord &record) const;
    void write_log(StepRecord *record);

    // cache_calibrate.cpp
    uint64_t calibration_numbers() const;
    Status gather_amax(uint32_t shard, Array<float> *numbers, quire_error *error);
    Status check_amax(Array<float> *numbers) const;

    // cache_migrate.cpp
    Status check_movable(const quire_migrate_desc &desc) const;
    Status plan_target(const MigrateTarget &target, Migration *m) const;
    Status check_counts(const Geometry &target) const;
    Status check_moves(const Migration &m) const;
    Status plan_blocks(Migration *m);
    Status carry_amax(Migration *m, quire_error *error);
    void write_moves(const quire_migrate_desc &desc, const Migration &m) const;
    void switch_memory(Migration *m);

    // cache_follow.cpp
    LogSequence followed(uint32_t slot) const;
    void read_change(const LogSequence &after, const TableChange *tables,
                     SequenceChange *change) const;
    SequenceChange read_end(uint32_t slot) const;
    Status check_table(const SequenceChange &change, uint32_t group) const;
    Status check_sequence(const SequenceChange &change);
    Status check_copy(const quire_block_copy &copy) const;
    Status check_row(const LogRow &row, uint32_t mask_word_count);
    Status check_masks(const LogReader &log) const;
    Status check_log(const LogReader &log);
    template <typename Visit>
    void each_change(const LogReader &log, Visit visit);
    Status check_digest(const LogReader &log);
    Status check_log_batch(const LogReader &log, const Batch *batch) const;
    Status reserve_applied(const LogReader &log, StepRecord *record);
    Status order_behind(const StepRecord &record, uint32_t order, quire_error *error);
    void apply_end(uint32_t slot);
    void apply_change(const SequenceChange &change);
    void apply(const LogReader &log, StepRecord *record, Batch *batch);
    Status commit_applied(StepRecord *record, Batch *batch, quire_error *error);
    Status check_followed();

    HostAllocator host_;
    Geometry geometry_;
    Timeline timeline_;
    Journal journal_;
    TokenPages token_pages_;
    Shards shards_;
    QueueSets queue_sets_;
    Leader leader_;
    Follower follower_;
    HandleTable sequence_handles_;
    StaticScales scales_;
    Array<LayerPlace> places_;
    Array<Sequence> sequences_;
    Namespaces namespaces_;
    Array<uint64_t> hashes_;   // of the blocks of the sequence looked up last
    Array<uint32_t> matches_;  // nodes of its prefix
    Array<uint32_t> words_;    // scratch for keys
    Array<Span> spans_;        // scratch for a sequence's spans
    Array<Victim> victims_;    // scratch for preempting
    // Sequences that published something while the step is open, each listed once.
    Array<uint32_t> named_;
    Array<uint8_t> is_named_;  // by index
    Witness witness_;          // while audits_
    StepRecord records_[kMaxUnfinished];
    uint32_t open_slot_ = kNone;
    Room reserved_;        // what the record may hold after the item being added is taken
    uint32_t hashed_ = 0;  // valid entries of hashes_ for the item being added
    Waiting waiting_;
    uint64_t call_ = 0;  // counts begin and add calls and failures, to mark their sequences
    bool has_memory_ = false;
    bool can_move_ = true;  // every device can move tokens
    bool prefix_off_ = false;
    bool calibrates_ = false;
    bool audits_ = false;
    bool migrating_ = false;
    bool is_stopped_ = false;
    BrokenInvariant why_stopped_{};
    Batch *batches_ = nullptr;  // alive ones, linked
    uint32_t batch_count_ = 0;
    uint32_t watermark_ = 0;
    uint32_t victim_order_ = 0;
    SwapCost swap_cost_{0, 0};
    uint64_t admissions_ = 0;
    quire_cache_stats counts_{};
};

}  // namespace quire
