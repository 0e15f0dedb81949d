// SPDX-License-Identifier: Apache-2.0

#include "core/cache.hpp"

#include "core/device/magnitudes.hpp"
#include "core/inspect/cache_check.hpp"
#include "core/inspect/cache_dump.hpp"
#include "core/inspect/figures.hpp"

namespace quire {

void Cache::info(quire_cache_info *out) const { read_info(parts_, out); }

Status Cache::check_shard(uint32_t shard) const { return quire::check_shard(parts_, shard); }

Status Cache::pool_info(uint32_t group, uint32_t shard, quire_pool_info *out) const {
    return read_pool_info(parts_, group, shard, out);
}

void Cache::stats(quire_cache_stats *out) const { read_stats(parts_, out); }

Status Cache::reset() {
    if (parts_.books.records.is_open()) {
        return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    }
    parts_.tier.fall_asleep();
    parts_.withdrawal.forget_all();
    parts_.announcer.clear();
    return Status{};
}

Status Cache::check(quire_error *error) {
    return follows() ? parts_.follower.check() : CacheCheck(&parts_, error).run();
}

Status Cache::check_idle(quire_error *error) {
    QUIRE_TRY(check_not_lent());
    QUIRE_TRY(poll(error));
    if (parts_.books.records.is_open())
        return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    const Timeline &timeline = parts_.books.timeline;
    if (timeline.idle()) return Status{};
    return fail(QUIRE_E_BUSY, "{} steps are not done: finish them, and wait for their queues",
                timeline.next() - timeline.oldest());
}

Status Cache::dump(bool with_tokens, char *buffer, uint64_t capacity, uint64_t *size_bytes) const {
    return dump_cache(parts_, with_tokens, buffer, capacity, size_bytes);
}

Status Cache::poll(quire_error *error) {
    return follows() ? parts_.follower.poll(error) : parts_.steps.poll(error);
}

// The log is written when nothing can fail any more, and before the tree's nodes are made ready for
// the next step, which changes sequences again.
Status Cache::commit(uint64_t step, Batch *batch, quire_error *error) {
    StepRecord *record = nullptr;
    QUIRE_TRY(parts_.books.records.find(step, true, &record));
    Status ready = parts_.steps.prepare(record, batch, error);
    if (ready.ok()) ready = parts_.log_writer.reserve(record);
    if (ready.ok()) ready = parts_.steps.order(record, error);
    Status done = ready.ok() ? parts_.steps.commit(record, batch, error)
                             : parts_.steps.refuse_commit(record, ready, error);
    if (parts_.books.records.is_open()) return done;
    if (done.ok()) parts_.log_writer.write(record);
    parts_.withdrawal.make_node_room();
    return done;
}

Status Cache::finish(uint64_t step, const quire_native *native, uint32_t outcome,
                     quire_error *error) {
    if (follows()) {
        Status passed = parts_.follower.finish(step, native, outcome, error);
        parts_.follower_tier.progress(CacheTier::kStepBytes);
        return passed;
    }
    if (!parts_.tier.is_attached()) [[likely]]
        return parts_.steps.finish(step, native, outcome, error);
    Status finished = parts_.steps.finish(step, native, outcome, error);
    if (!parts_.books.is_stopped) parts_.tier.progress(CacheTier::kStepBytes);
    return finished;
}

Status Cache::end_sequence(uint64_t handle, uint32_t flags) {
    const uint32_t index = parts_.books.handles.find(handle);
    QUIRE_TRY(parts_.sequences.end(handle, flags));
    parts_.books.loads.forget(index, handle);
    return Status{};
}

Status Cache::insert_run(uint64_t lease, const SlotRun &run, quire_lease_result *result,
                         quire_error *error) {
    QUIRE_TRY(poll(error));
    return parts_.lease_runs.insert(lease, run, result);
}

Status Cache::evict(uint32_t group, uint32_t count, int32_t *ids, uint32_t *evicted,
                    quire_error *error) {
    QUIRE_TRY(poll(error));
    return parts_.lease_prefixes.evict(group, count, ids, evicted);
}

Status Cache::check_tier(const quire_cache_tier_desc &desc, const quire_store_info &store,
                         bool is_read_only) const {
    const bool leads = parts_.log_writer.active();
    if (leads ? desc.followers == 0 || desc.followers > kMostFollowers : desc.followers != 0) {
        return fail(QUIRE_E_ARG,
                    "desc.followers is {}: it says how many follow a leader, 1 to {}, and is 0 for "
                    "all other caches",
                    desc.followers, kMostFollowers);
    }
    if (desc.followers < parts_.followers.count()) {
        return fail(QUIRE_E_ARG, "desc.followers is {}, but {} followers have reported",
                    desc.followers, parts_.followers.count());
    }
    if (follows()) return parts_.follower_tier.check(desc, store, is_read_only);
    return parts_.tier.check(desc, store, is_read_only);
}

namespace {

Status no_tier() { return fail(QUIRE_E_ARG, "the cache has no tier"); }

}  // namespace

Status Cache::poll_tier(quire_cache_tier_progress *progress, quire_error *error) {
    if (!has_tier()) return no_tier();
    QUIRE_TRY(poll(error));
    if (follows()) {
        parts_.follower_tier.progress(CacheTier::kPollBytes);
        parts_.follower_tier.tell(progress);
        return parts_.follower_tier.check_store(error);
    }
    parts_.tier.progress(CacheTier::kPollBytes);
    parts_.tier.tell(progress);
    return parts_.tier.check_store(error);
}

Status Cache::report_loads(uint8_t *buffer, uint64_t capacity, uint64_t *size_bytes,
                           quire_error *error) {
    if (!follows()) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the cache follows no leader, so there is no one to report to");
    }
    QUIRE_TRY(poll(error));
    FollowerTier &tier = parts_.follower_tier;
    tier.progress(CacheTier::kPollBytes);
    *size_bytes = tier.report_bytes();
    if (*size_bytes == 0) return Status{};
    if (*size_bytes > capacity) return Status{QUIRE_S_INCOMPLETE, nullptr, 0, 0};
    tier.write_report(parts_.follower.follower().leader(), parts_.identity, buffer);
    return Status{};
}

Status Cache::take_report(const uint8_t *bytes, uint64_t size_bytes, quire_error *error) {
    if (!parts_.log_writer.active())
        return fail(QUIRE_E_UNSUPPORTED,
                    "the cache leads no others: create it with "
                    "QUIRE_CACHE_LOG");
    ReportReader report;
    QUIRE_TRY(report.open(bytes, size_bytes));
    if (parts_.tier.is_attached()) QUIRE_TRY(poll(error));
    uint32_t follower = 0;
    const uint32_t most = parts_.tier.is_attached() ? parts_.tier.followers() : kMostFollowers;
    QUIRE_TRY(parts_.followers.check(report.header(), parts_.identity, most, &follower));
    parts_.followers.note(report.header(), follower);
    for (uint32_t i = 0; i < report.header().count; ++i) {
        const LoadOutcome outcome = report.outcome(i);
        parts_.tier.take_outcome(follower, outcome.serial, outcome.whole);
    }
    parts_.tier.progress(CacheTier::kPollBytes);
    return Status{};
}

Status Cache::cancel_load(uint64_t seq) {
    uint32_t index = 0;
    QUIRE_TRY(parts_.books.find_sequence(seq, &index));
    if (!parts_.tier.is_attached()) return no_tier();
    const Load *load = parts_.books.loads.find(index, seq);
    if (load != nullptr && load->is_taken)
        return fail(QUIRE_E_BUSY, "an item of the open step uses the load: drop the item first");
    parts_.books.loads.forget(index, seq);
    return Status{};
}

Status Cache::tier_stats(quire_cache_tier_stats *out) const {
    if (!has_tier()) return no_tier();
    follows() ? void(*out = parts_.books.loads.counts) : parts_.tier.stats(out);
    return Status{};
}

Status Cache::begin_detach_tier() {
    if (!has_tier()) return no_tier();
    if (parts_.books.records.is_open() && !parts_.books.is_stopped)
        return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    follows() ? parts_.follower_tier.begin_detach() : parts_.tier.begin_detach();
    return Status{};
}

// No copy begins on devices that a migration leaves.
void Cache::drain_tier(bool *drained) {
    *drained = false;
    if (parts_.migrating) return;
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    if (!parts_.books.is_stopped) (void)poll(&ignored);
    if (follows()) {
        parts_.follower_tier.progress(CacheTier::kPollBytes);
        *drained = parts_.follower_tier.is_drained();
    } else {
        parts_.tier.progress(CacheTier::kPollBytes);
        *drained = parts_.tier.is_drained();
    }
}

void Cache::stop(const BrokenInvariant &why) {
    if (parts_.books.is_stopped) return;
    parts_.books.is_stopped = true;
    parts_.why_stopped = why;
    parts_.migrating = false;
    parts_.runs.stop();
}

Status Cache::calibration_size(uint64_t *size_bytes) const {
    return read_calibration_size(parts_, size_bytes);
}

Status Cache::await_writes(Awaited *out, quire_error *error) {
    *out = Awaited{};
    QUIRE_TRY(poll(error));
    return parts_.runs.await_writes(out, error);
}

Status Cache::save_calibration(uint8_t *buffer, quire_error *error) {
    CacheBooks &books = parts_.books;
    return Magnitudes(&books.host, books.geometry, books.places.data(), &books.shards)
        .save(buffer, error);
}

Status Cache::check_not_lent() const {
    if (parts_.handovers.count() != 0)
        return fail(QUIRE_E_BUSY, "{} hand-overs go on: end them", parts_.handovers.count());
    if (parts_.books.lent_sequences == 0) [[likely]]
        return Status{};
    return fail(QUIRE_E_BUSY, "{} sequences are being exported or imported",
                parts_.books.lent_sequences);
}

Status Cache::check_sessions() const {
    if (!parts_.books.has_memory)
        return fail(QUIRE_E_UNSUPPORTED, "a cache without memory has no sessions");
    if (parts_.log_writer.active()) {
        return fail(
            QUIRE_E_UNSUPPORTED,
            "a cache with followers has no sessions: each process holds a part of them, and "
            "the log carries no content");
    }
    return Status{};
}

Status Cache::begin_export(uint64_t seq, const SessionIdentity &as, SessionExport *e,
                           Awaited *awaited, quire_error *error) {
    *awaited = Awaited{};
    uint32_t index = 0;
    QUIRE_TRY(parts_.books.find_sequence(seq, &index));
    QUIRE_TRY(check_sessions());
    QUIRE_TRY(poll(error));
    QUIRE_TRY(parts_.books.find_idle_sequence(seq, &index));
    const Sequence &s = parts_.books.sequences[index];
    if (s.state.drafts != 0)
        return fail(QUIRE_E_BUSY, "the sequence has drafts: accept them first");
    if ((s.state.flags & Sequence::kUnpublished) != 0) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the sequence publishes nothing any more (QUIRE_SEQ_UNPUBLISHED): what it "
                    "computed may be of other weights");
    }
    QUIRE_TRY(parts_.runs.await_step(s.last_step, awaited, error));
    if (awaited->fence != nullptr) return Status{};
    QUIRE_TRY(poll(error));  // its fences were reached since
    if (!parts_.books.timeline.done(s.last_step)) {
        return fail(QUIRE_E_BUSY,
                    "step {} or one before it failed, and a step is open: commit or abort that "
                    "first",
                    s.last_step);
    }
    return e->begin(&parts_.books, &parts_.retreat, index, as, error);
}

Status Cache::begin_send(uint64_t seq, const SessionIdentity &as,
                         const quire_handover_send_desc &desc, uint64_t *out, quire_error *error) {
    uint32_t index = 0;
    QUIRE_TRY(parts_.books.find_sequence(seq, &index));
    QUIRE_TRY(check_sessions());
    return parts_.handovers.send(seq, as, desc.tokens, desc.token_count, desc.staging_bytes, out,
                                 error);
}

Status Cache::begin_import(SessionImport *import, const quire_seq_desc &desc, const quire_key *keys,
                           bool *short_of_blocks, quire_error *error) {
    QUIRE_TRY(poll(error));  // blocks that steps touched until now can give way
    return import->begin(desc, keys, short_of_blocks);
}

Status Cache::begin_receive(const SessionIdentity &as, const quire_handover_receive_desc &desc,
                            const quire_seq_desc &seq, const quire_key *keys, uint64_t *out) {
    QUIRE_TRY(check_sessions());
    return parts_.handovers.receive(as, desc, seq, keys, out);
}

Status Cache::send_layers(uint64_t handover, uint64_t step, uint32_t first, uint32_t count,
                          quire_error *error) {
    HandoverSend *send = nullptr;
    QUIRE_TRY(parts_.handovers.find_send(handover, &send));
    StepRecord *record = nullptr;
    QUIRE_TRY(parts_.books.records.find(step, false, &record));
    if (record->phase != StepPhase::committed)
        return fail(QUIRE_E_BUSY, "the step is open: commit it first");
    return send->layers(record, first, count, error);
}

Status Cache::read_handover(uint64_t handover, uint8_t *to, uint64_t capacity, uint64_t *size_bytes,
                            quire_handover_progress *progress, quire_error *error) {
    HandoverSend *send = nullptr;
    QUIRE_TRY(parts_.handovers.find_send(handover, &send));
    QUIRE_TRY(poll(error));
    QUIRE_TRY(send->read(to, capacity, size_bytes, error));
    send->tell(progress);
    return Status{};
}

Status Cache::write_handover(uint64_t handover, const uint8_t *bytes, uint64_t size_bytes,
                             uint64_t *used, bool *short_of_blocks,
                             quire_handover_progress *progress, quire_error *error) {
    HandoverReceive *receive = nullptr;
    QUIRE_TRY(parts_.handovers.find_receive(handover, &receive));
    QUIRE_TRY(poll(error));  // blocks that steps touched until now can give way
    QUIRE_TRY(receive->write(bytes, size_bytes, used, short_of_blocks));
    receive->tell(progress);
    return Status{};
}

Status Cache::check_closed() const {
    QUIRE_TRY(check_not_lent());
    if (parts_.books.records.is_open()) {
        return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    }
    return check_at_rest();
}

Status Cache::begin_migration(const MigrateTarget &target, Migration *m, bool *begun,
                              quire_error *error) {
    *begun = false;
    QUIRE_TRY(check_closed());
    QUIRE_TRY(poll(error));
    parts_.books.loads.drop_all();
    parts_.tier.leave_devices();
    parts_.follower_tier.leave_devices();
    RankRules rules;
    if (parts_.log_writer.active()) rules.cache_flags = QUIRE_CACHE_LOG;
    if (follows()) {
        const Follower &follower = parts_.follower.follower();
        rules = RankRules{QUIRE_CACHE_FOLLOWER, follower.refs(), follower.stopped()};
    }
    Status planned = parts_.move.begin(target, rules, m, begun, error);
    parts_.migrating = *begun;
    return planned;
}

void Cache::end_migration(const MigrateTarget &target, const Status &copied, Migration *m) {
    parts_.migrating = false;
    if (!copied.ok()) return;
    parts_.handovers.leave_devices();
    parts_.move.end(target, m);
}

Status Cache::create_batch(const quire_batch_desc &desc, Batch *batch, quire_error *error) {
    QUIRE_TRY(batch->create(desc, parts_.books.geometry, &parts_.books.shards, error));
    parts_.books.batches.add(batch);
    return Status{};
}

}  // namespace quire
