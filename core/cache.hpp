// SPDX-License-Identifier: Apache-2.0
//
// cache: the one door to the core. It checks states that concern the whole cache, orders the parts
// of a commit and of a migration, and forwards everything else. The parts are in parts/; README.md
// shows how they depend on each other, and each one's header says what its functions do.
//
// Ownership: owns all parts. Batches, queues and devices are its caller's.
// Threads: none; the owner of the Cache holds a lock around every call.
// Units: counts are blocks, positions and lengths tokens.
#pragma once

#include "core/parts/cache_parts.hpp"
#include "core/session/session_import.hpp"

namespace quire {

class Cache {
 public:
    explicit Cache(const HostAllocator &host) : parts_(host) {}

    Status create(const quire_cache_desc &desc, const quire_group_desc *groups,
                  const ShardRange *shards, const CacheSeeds &seeds, quire_error *error) {
        return parts_.create(desc, groups, shards, seeds, error);
    }

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

    Status create_namespace(const quire_namespace_desc &desc, uint64_t *out) {
        return parts_.tenants.create_namespace(desc, out);
    }
    Status destroy_namespace(uint64_t handle) { return parts_.tenants.destroy_namespace(handle); }
    Status namespace_info(uint64_t handle, quire_namespace_info *out) const {
        return parts_.tenants.namespace_info(handle, out);
    }

    Status create_sequence(const quire_seq_desc &desc, const quire_key *keys, uint64_t *out) {
        return parts_.sequences.create(desc, keys, out);
    }
    Status end_sequence(uint64_t handle, uint32_t flags);
    Status fork_sequence(uint64_t handle, uint32_t token_count, uint64_t *out) {
        return parts_.sequences.fork(handle, token_count, out);
    }
    Status truncate(uint64_t handle, uint32_t token_count) {
        return parts_.sequences.truncate(handle, token_count);
    }
    Status accept(uint64_t handle, uint32_t count) { return parts_.drafts.accept(handle, count); }
    Status accept_path(uint64_t seq, const uint32_t *path, uint32_t count) {
        return parts_.drafts.accept_path(seq, path, count);
    }
    Status set_tokens(const uint8_t *spans, uint32_t count, uint32_t stride,
                      const quire_token *tokens, uint32_t token_count) {
        return parts_.sequences.set_tokens(spans, count, stride, tokens, token_count);
    }
    Status sequence_info(uint64_t handle, quire_seq_info *out) const {
        return parts_.sequences.info(handle, out);
    }
    Status probe(uint64_t handle, const quire_token *tokens, uint32_t token_count, uint32_t *hits) {
        return parts_.prefixes.probe(handle, tokens, token_count, hits);
    }

    // Leases. step: the open one; or 0 where a match pins nothing, and to give or pin at once.
    Status create_lease(const quire_lease_desc &desc, const quire_key *keys, uint64_t *out) {
        return parts_.leases.create(desc, keys, out);
    }
    Status end_lease(uint64_t lease) { return parts_.leases.end(lease); }
    Status lease_info(uint64_t lease, quire_lease_info *out) const {
        return parts_.leases.info(lease, out);
    }
    Status lease_blocks(uint64_t lease, uint32_t group, uint32_t first, uint8_t *out,
                        uint32_t capacity, uint32_t stride, uint32_t *count) const {
        return parts_.leases.blocks(lease, group, first, out, capacity, stride, count);
    }
    Status take(uint64_t step, uint64_t lease, uint32_t group, uint32_t count, int32_t *ids,
                quire_lease_result *result) {
        return parts_.leases.take(step, lease, group, count, ids, result);
    }
    Status give(uint64_t step, uint64_t lease, uint32_t group, const int32_t *ids, uint32_t count) {
        return parts_.leases.give(step, lease, group, ids, count);
    }
    Status pin(uint64_t step, uint64_t lease, uint32_t group, const int32_t *ids, uint32_t count,
               quire_lease_result *result) {
        return parts_.leases.pin(step, lease, group, ids, count, result);
    }
    Status match(uint64_t step, uint64_t lease, uint32_t how, const LeaseRun &run,
                 quire_lease_result *result) {
        return parts_.lease_prefixes.match(step, lease, how, run, result);
    }
    Status publish(uint64_t step, uint64_t lease, const LeaseRun &run, quire_lease_result *result) {
        return parts_.lease_prefixes.publish(step, lease, run, result);
    }
    Status forget(uint64_t lease, uint32_t group, const int32_t *ids, uint32_t count,
                  uint32_t *forgotten) {
        return parts_.lease_prefixes.forget(lease, group, ids, count, forgotten);
    }
    Status find_run(uint64_t lease, uint32_t how, const SlotRun &run, quire_lease_result *result) {
        return parts_.lease_runs.find(lease, how, run, result);
    }
    // Reads fences too.
    Status insert_run(uint64_t lease, const SlotRun &run, quire_lease_result *result,
                      quire_error *error);
    // Reads fences too.
    Status evict(uint32_t group, uint32_t count, int32_t *ids, uint32_t *evicted,
                 quire_error *error);

    Status begin(const StepOptions &options, const ItemList &list, uint64_t *out,
                 quire_error *error) {
        parts_.tier.progress(CacheTier::kStepBytes);
        Status begun = parts_.steps.begin(options, list, out, error);
        parts_.tier.ask();
        return begun;
    }
    Status add(uint64_t step, const ItemList &list) {
        Status added = parts_.steps.add(step, list);
        parts_.tier.ask();
        return added;
    }
    Status drop(uint64_t step, uint64_t seq, uint64_t *dropped, uint32_t capacity,
                uint32_t *count) {
        return parts_.steps.drop(step, seq, dropped, capacity, count);
    }
    Status preempt(uint64_t step, uint64_t seq, uint32_t how, uint32_t *freed) {
        return parts_.preemption.preempt(step, seq, how, freed);
    }
    Status preempted(uint64_t step, uint8_t *out, uint32_t capacity, uint32_t stride,
                     uint32_t *count) {
        return parts_.preemption.preempted(step, out, capacity, stride, count);
    }
    Status abort(uint64_t step) { return parts_.steps.abort(step); }
    Status commit(uint64_t step, Batch *batch, quire_error *error);
    // native: a semaphore that the step's queue waits for first; nullptr or NONE for no wait.
    Status finish(uint64_t step, const quire_native *native, uint32_t outcome, quire_error *error);
    Status blocks(uint64_t step, uint64_t seq, uint32_t group, uint32_t first, int32_t *ids,
                  uint32_t capacity, uint32_t *count) {
        return parts_.sequences.blocks(step, seq, group, first, ids, capacity, count);
    }
    Status copies(uint64_t step, uint8_t *out, uint32_t capacity, uint32_t stride,
                  uint32_t *count) {
        return parts_.steps.copies(step, out, capacity, stride, count);
    }

    Status step_log(uint64_t step, void *buffer, uint64_t capacity, uint64_t *size_bytes) {
        return parts_.log_writer.step_log(step, buffer, capacity, size_bytes);
    }
    Status apply_log(const uint8_t *bytes, uint64_t size_bytes, const StepOptions &options,
                     Batch *batch, uint64_t *out, quire_error *error) {
        Status applied = parts_.follower.apply_log(bytes, size_bytes, options, batch, out, error);
        if (applied.ok()) parts_.follower_tier.progress(CacheTier::kStepBytes);
        return applied;
    }
    // A follower says what became of loads since its last report.
    Status report_loads(uint8_t *buffer, uint64_t capacity, uint64_t *size_bytes,
                        quire_error *error);
    // A leader takes a follower's report.
    Status take_report(const uint8_t *bytes, uint64_t size_bytes, quire_error *error);
    Status events(bool restarts, EventSink *sink, bool *has_more) {
        return parts_.announcer.read(restarts, sink, has_more);
    }
    bool follows() const { return parts_.follower.active(); }

    // A call found a broken invariant. The cache stays as it is, and from now on only calls that
    // show it or give up what it holds are made: stats, dump, finish, check_idle, forget_batch.
    void stop(const BrokenInvariant &why);
    const BrokenInvariant *why_stopped() const {
        return parts_.books.is_stopped ? &parts_.why_stopped : nullptr;
    }

    // The fence that must be reached before magnitudes are read; if there is none, fence is NULL.
    using Awaited = Runs::Awaited;
    Status calibration_size(uint64_t *size_bytes) const;
    Status await_writes(Awaited *out, quire_error *error);
    // REQUIRES: await_writes() gave no fence, and capacity for calibration_size().
    Status save_calibration(uint8_t *buffer, quire_error *error);

    // Sessions. OK if this cache can make and take them.
    Status check_sessions() const;
    // Lends the sequence to *e if *awaited is no fence, which else must be reached first.
    Status begin_export(uint64_t seq, const SessionIdentity &as, SessionExport *e, Awaited *awaited,
                        quire_error *error);
    SessionImport make_import() { return SessionImport(&parts_.books, &parts_.sequences); }
    // As SessionImport::begin().
    Status begin_import(SessionImport *import, const quire_seq_desc &desc, const quire_key *keys,
                        bool *short_of_blocks, quire_error *error);
    const Geometry &geometry() const { return parts_.books.geometry; }

    // Hand-overs.
    Status begin_send(uint64_t seq, const SessionIdentity &as, const quire_handover_send_desc &desc,
                      uint64_t *out, quire_error *error);
    Status begin_receive(const SessionIdentity &as, const quire_handover_receive_desc &desc,
                         const quire_seq_desc &seq, const quire_key *keys, uint64_t *out);
    Status send_layers(uint64_t handover, uint64_t step, uint32_t first, uint32_t count,
                       quire_error *error);
    Status read_handover(uint64_t handover, uint8_t *to, uint64_t capacity, uint64_t *size_bytes,
                         quire_handover_progress *progress, quire_error *error);
    Status write_handover(uint64_t handover, const uint8_t *bytes, uint64_t size_bytes,
                          uint64_t *used, bool *short_of_blocks, quire_handover_progress *progress,
                          quire_error *error);
    Status end_handover(uint64_t handover) { return parts_.handovers.end(handover); }

    // A tier below the cache. OK if it may have one with such a store.
    Status check_tier(const quire_cache_tier_desc &desc, const quire_store_info &store,
                      bool is_read_only) const;
    Status attach_tier(const quire_cache_tier_desc &desc, const quire_store_info &store,
                       StoreLink *link) {
        return follows() ? parts_.follower_tier.attach(desc, store, link)
                         : parts_.tier.attach(desc, store, link);
    }
    bool has_tier() const {
        return parts_.tier.is_attached() || parts_.follower_tier.is_attached();
    }
    // Reads fences too. *progress: how far the tier is.
    Status poll_tier(quire_cache_tier_progress *progress, quire_error *error);
    Status cancel_load(uint64_t seq);
    Status tier_stats(quire_cache_tier_stats *out) const;
    Status begin_detach_tier();
    // *drained: nothing of the cache is under way in the store any more, and it was flushed.
    void drain_tier(bool *drained);
    // REQUIRES: it is drained, or the store broke its contract.
    void end_detach_tier() {
        follows() ? parts_.follower_tier.end_detach() : parts_.tier.end_detach();
    }

    // Plans a move and allocates what it needs; m->info holds the resulting counts. The cache
    // changes only in that it refuses further changes. *begun: false if blocks or room for moves
    // are short. REQUIRES: a Migration that was just made.
    Status begin_migration(const MigrateTarget &target, Migration *m, bool *begun,
                           quire_error *error);
    // Copies without the cache's lock. REQUIRES: begun.
    Status copy(Migration *m, quire_error *error) { return m->copy(parts_.books.shards, error); }
    // Puts the cache on the target, or leaves it where it was if `copied` is no success. The memory
    // that it left goes with *m.
    void end_migration(const MigrateTarget &target, const Status &copied, Migration *m);
    // OK if a migration could begin, apart from steps that still run.
    Status check_closed() const;
    // For calls that change anything.
    Status check_at_rest() const {
        if (!parts_.migrating) [[likely]]
            return Status{};
        return fail(QUIRE_E_BUSY, "the cache is being migrated");
    }

    Status create_batch(const quire_batch_desc &desc, Batch *batch, quire_error *error);
    void forget_batch(Batch *batch) { parts_.books.batches.remove(batch); }
    // Reads fences; steps whose work has run become done.
    Status poll(quire_error *error);
    bool batch_busy(const Batch &batch) const {
        return !parts_.books.timeline.has_run(batch.last_step());
    }
    const LayerInGroup *place(uint32_t layer) const {
        return layer < parts_.books.geometry.layer_count ? &parts_.books.places[layer] : nullptr;
    }
    const Shards &shards() const { return parts_.books.shards; }
    uint32_t batch_count() const { return parts_.books.batches.count(); }
    // The device memory and host memory that devices hold for the cache, batches included.
    DeviceMemory memory() const { return parts_.books.memory(); }

 private:
    friend struct Inside;  // lets tests break what is checked

    Status check_not_lent() const;

    CacheParts parts_;
};

}  // namespace quire
