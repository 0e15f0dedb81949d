// SPDX-License-Identifier: Apache-2.0
//
// abandon: an engine that gives its cache and its devices up, by abandon.h. The runner goes on with
// another cache, in a world of its own.
//
// Why the device runs on afterwards: "memory that the device may still read or write is neither
// freed nor unregistered", and blocks of an abandoned queue's steps "are never reused". So all that
// lies in its queues is run at the very end, and must find its memory, and race with nothing.
#include <algorithm>

#include "device.hpp"
#include "follower.hpp"

namespace sim {
namespace {

constexpr uint32_t kFirstStep = 0x60000000;  // numbers in the script that no chooser gives
constexpr uint32_t kMostRows = 6;            // of the sequences that go on after a queue was lost

}  // namespace

bool World::abandon(const Op &op) {
    if (q_->device_abandon == nullptr) return false;  // an older library
    ++tally_->abandons;
    pending.clear();
    if (op.f[0] != 0 && on_device()) {
        if (open) execute(make_op(OpKind::abort, {}));
        const uint32_t shard = op.f[1] / config.queues % static_cast<uint32_t>(shards_.size());
        abandon_queue(op.f[1] % config.queues, shard);
    }
    quire_abandon_info info{};
    info.struct_size = sizeof info;
    const Snapshot before = snapshot();
    for (const Shard &shard : shards_)
        expect(q_->device_abandon(shard.device, &info, &error_), {QUIRE_E_BUSY},
               "quire_device_abandon under a cache");
    unchanged(before, "error-changes");
    if (follower_) follower_->abandon();
    abandon_cache();
    abandon_devices();
    abandoned_ = true;
    return true;
}

// From here on no work of the queue runs. Its steps can only fail, and other queues go on.
void World::abandon_queue(uint32_t queue, uint32_t shard_index) {
    Shard &shard = shards_[shard_index];
    const uint32_t own = shard_queue(shard_index, queue);
    for (Shard &other : shards_) other.fake->plant({});
    shard.fake->hang(shard.queue_index[own]);
    quire_queue *const given_up = shard.queues[own];
    expect(q_->queue_abandon(given_up, &error_), {QUIRE_OK}, "quire_queue_abandon");
    expect(q_->queue_abandon(given_up, &error_), {QUIRE_E_STALE}, "quire_queue_abandon, again");
    expect(q_->queue_sync(given_up, &error_), {QUIRE_E_STALE}, "quire_queue_sync when abandoned");
    ++tally_->queues_abandoned;
    queue_gone_ = true;
    for (size_t i = 0; i < committed.size();) {
        const Step &step = committed[i];
        const size_t before = committed.size();
        if (shard_queue(shard_index, step.queue) == own)
            execute(make_op(OpKind::finish, {step.id, QUIRE_STEP_FAILED}));
        i += committed.size() == before;
    }
    for (uint32_t i = 0; i < kMostRows; ++i) {
        const uint32_t other = (queue + 1 + i) % config.queues;
        if (shard_queue(shard_index, other) == own || i >= sequences.size()) continue;
        Sequence &seq = *sequences[i];
        if (seq.drafts != 0) execute(make_op(OpKind::accept, {seq.id, 0}));
        const uint32_t more = seq.known() == config.max_tokens ? 0 : 1;
        execute(make_op(OpKind::item, {seq.id, more, seq.doc}));
        execute(make_op(OpKind::begin, {kFirstStep + i, other}));
        if (!open) continue;  // its last step is on another queue, and not done
        execute(make_op(OpKind::commit, {0}));
        if (open) execute(make_op(OpKind::abort, {}));
        if (committed.empty() || committed.back().id != kFirstStep + i) continue;
        execute(make_op(OpKind::finish, {kFirstStep + i, QUIRE_STEP_OK}));
        ++tally_->steps_beside_abandoned;
    }
}

// What a call answers on what was given up.
void World::stale(quire_status status, const char *what) {
    if (status != QUIRE_E_STALE)
        fail("abandoned", "%s answered %d after an abandon, not QUIRE_E_STALE", what, status);
}

void World::abandon_cache() {
    uint64_t device_bytes = 0;
    uint64_t host_bytes = 0;
    for (const Shard &shard : shards_) {
        device_bytes += shard.fake->allocated(QUIRE_BE_MEMORY_DEVICE);
        host_bytes += shard.fake->allocated(QUIRE_BE_MEMORY_HOST);
        shard.fake->plant({});
    }
    quire_abandon_info info{};
    info.struct_size = sizeof info;
    expect(q_->cache_abandon(cache_, &info, &error_), {QUIRE_OK}, "quire_cache_abandon");
    uint64_t pools = 0;
    for (const Shard &shard : shards_)
        for (const quire_pool_info &pool : shard.pools) pools += pool.size_bytes;
    if (info.device_bytes < pools || info.device_bytes > device_bytes ||
        info.host_bytes > host_bytes || info.engine_bytes != 0)
        fail("abandon-info", "the cache left %llu, %llu bytes; %llu in pools, %llu, %llu live",
             static_cast<unsigned long long>(info.device_bytes),
             static_cast<unsigned long long>(info.host_bytes),
             static_cast<unsigned long long>(pools), static_cast<unsigned long long>(device_bytes),
             static_cast<unsigned long long>(host_bytes));
    check_stale_cache();
}

void World::check_stale_cache() {
    quire_abandon_info info{};
    info.struct_size = sizeof info;
    quire_cache_stats stats{};
    stats.struct_size = sizeof stats;
    quire_seq_info seq_info{};
    seq_info.struct_size = sizeof seq_info;
    quire_seq_desc desc{};
    desc.struct_size = sizeof desc;
    quire_step_desc step_desc{};
    step_desc.struct_size = sizeof step_desc;
    quire_batch_views views{};
    views.struct_size = sizeof views;
    quire_seq seq = 0;
    quire_step step = 0;
    stale(q_->cache_abandon(cache_, &info, &error_), "quire_cache_abandon");
    stale(q_->cache_get_stats(cache_, &stats, &error_), "quire_cache_get_stats");
    stale(q_->cache_check(cache_, &error_), "quire_cache_check");
    stale(q_->cache_reset(cache_, &error_), "quire_cache_reset");
    stale(q_->seq_create(cache_, &desc, &seq, &error_), "quire_seq_create");
    stale(q_->step_begin(cache_, &step_desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step, &error_),
          "quire_step_begin");
    for (const auto &one : sequences) {
        stale(q_->seq_get_info(cache_, one->handle, &seq_info, &error_), "quire_seq_get_info");
        stale(q_->seq_end(cache_, one->handle, 0, &error_), "quire_seq_end");
    }
    for (const Step &one : committed)
        stale(q_->step_finish(cache_, one.handle, nullptr, QUIRE_STEP_FAILED, &error_),
              "quire_step_finish");
    if (open) {
        stale(q_->step_commit(cache_, open->handle, nullptr, &error_), "quire_step_commit");
        stale(q_->step_abort(cache_, open->handle, &error_), "quire_step_abort");
    }
    for (const Batch &batch : batches) {
        stale(q_->batch_get_views(batch.batch, 0, 0, &views, &error_), "quire_batch_get_views");
        stale(q_->batch_destroy(batch.batch, &error_), "quire_batch_destroy");
    }
    stale(q_->cache_destroy(cache_, &error_), "quire_cache_destroy");
}

void World::abandon_devices() {
    for (Shard &shard : shards_) {
        const uint64_t device_bytes = shard.fake->allocated(QUIRE_BE_MEMORY_DEVICE);
        const uint64_t host_bytes = shard.fake->allocated(QUIRE_BE_MEMORY_HOST);
        shard.fake->outlive();
        quire_abandon_info info{};
        info.struct_size = sizeof info;
        // "The devices that the cache was on ... can only be abandoned."
        const quire_status close = q_->device_close(shard.device, &error_);
        if (close >= 0 || close == QUIRE_E_STALE)
            fail("abandoned", "a device under an abandoned cache was closed: %d", close);
        expect(q_->device_abandon(shard.device, &info, &error_), {QUIRE_OK},
               "quire_device_abandon");
        if (info.device_bytes != device_bytes || info.host_bytes != host_bytes)
            fail("abandon-info", "the device left %llu and %llu bytes; it has allocated %llu, %llu",
                 static_cast<unsigned long long>(info.device_bytes),
                 static_cast<unsigned long long>(info.host_bytes),
                 static_cast<unsigned long long>(device_bytes),
                 static_cast<unsigned long long>(host_bytes));
        quire_device_info device{};
        device.struct_size = sizeof device;
        quire_queue *queue = nullptr;
        stale(q_->device_abandon(shard.device, &info, &error_), "quire_device_abandon");
        stale(q_->device_get_info(shard.device, &device, &error_), "quire_device_get_info");
        stale(q_->queue_create(shard.device, nullptr, &queue, &error_), "quire_queue_create");
        stale(q_->device_close(shard.device, &error_), "quire_device_close");
        for (quire_queue *old : shard.queues) {
            stale(q_->queue_sync(old, &error_), "quire_queue_sync");
            stale(q_->queue_destroy(old, &error_), "quire_queue_destroy");
        }
    }
    for (Shard &shard : shards_) shard.fake->plant({});
    for (size_t i = 0; i < shards_.size(); ++i)  // shards may wait for each other
        for (Shard &shard : shards_) shard.fake->drain();
    check_devices();
    for (Shard &shard : shards_) {
        tally_->device_works += shard.fake->works();
        shard.fake->forget();
    }
}

}  // namespace sim
