// SPDX-License-Identifier: Apache-2.0
//
// tier_ops: the calls of cache_tier.h and the items that may load, against the model of
// cache_tier.cpp.
#include <algorithm>

#include "cache_tier.hpp"
#include "clock.hpp"
#include "device.hpp"
#include "items.hpp"

namespace sim {
namespace {

constexpr uint64_t kMillisecond = 1000000;
constexpr uint64_t kForever = ~uint64_t{0};

}  // namespace

bool World::open_store() {
    if (Store::directory.empty() || q_->cache_attach_tier == nullptr || !on_device()) return false;
    if (!tier_) tier_ = std::make_unique<CacheTier>();
    if (tier_->tier != nullptr) return true;
    quire_tier_desc desc{};
    desc.struct_size = sizeof desc;
    desc.store = "sim";
    expect(q_->tier_open(instance_, &desc, &tier_->tier, &error_), {QUIRE_OK}, "quire_tier_open");
    tier_->store = Store::current();
    tier_->store->on_put = [this](const quire_store_label &label,
                                  const std::vector<uint8_t> &bytes) { check_value(label, bytes); };
    return true;
}

bool World::attach(const Op &op) {
    if (!open_store()) return false;
    quire_cache_tier_desc desc{};
    desc.struct_size = sizeof desc;
    desc.write = op.f[0];
    desc.min_load_tokens = op.f[1];
    desc.load_expiry_ns = op.f[2] * kMillisecond;
    desc.load_timeout_ns = op.f[3] * kMillisecond;
    desc.max_load_bytes = op.f[4];
    desc.max_write_bytes = op.f[5];
    desc.followers = (config.flags & QUIRE_CACHE_LOG) != 0 ? 1 : 0;
    desc.max_told_blocks = op.f[5] % 3 == 1 ? 5 : 0;
    const Digest print = tier_print(epoch_, op.f[6] % 2);
    std::copy(print.begin(), print.end(), desc.fingerprint);
    const Snapshot before = look(true);
    const quire_status status = q_->cache_attach_tier(cache_, tier_->tier, &desc, &error_);
    const bool cannot = config.cross() || host_blocks_ == 0 ||
                        (config.flags & (QUIRE_CACHE_LOG | QUIRE_CACHE_NO_PREFIX)) != 0;
    if (tier_->attached || cannot || desc.write > QUIRE_TIER_WRITE_BACK) {
        expect(status,
               {tier_->attached ? QUIRE_E_BUSY : QUIRE_E_UNSUPPORTED,
                desc.write > QUIRE_TIER_WRITE_BACK ? QUIRE_E_ARG : QUIRE_E_UNSUPPORTED},
               "quire_cache_attach_tier that cannot be");
        unchanged(before, "error-changes");
        return true;
    }
    // A host tier that is too small for a block, or a device that refuses the tier its queue.
    if (status == QUIRE_E_UNSUPPORTED && host_usable(0) == 0) return true;
    if (status < 0 && (fault_armed() || strikes() != 0)) {
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_cache_attach_tier");
    unchanged(before, "error-changes");  // the cache is as before
    asked_.clear();
    tier_->attached = true;
    tier_->leaving = tier_->dead = false;
    tier_->desc = desc;
    tier_->fingerprint = op.f[6] % 2;
    tier_->epoch = epoch_;
    tier_->stats = {};
    tier_->counts = tier_->store->counts;
    if (tier_->desc.load_timeout_ns == 0) tier_->desc.load_timeout_ns = 2000 * kMillisecond;
    if (tier_->desc.load_expiry_ns == 0) tier_->desc.load_expiry_ns = 10000 * kMillisecond;
    ++tally_->tier_attached;
    return true;
}

bool World::detach(const Op &op) {
    if (!tier_ || tier_->tier == nullptr) return false;
    const bool forever = op.f[0] == 2;
    if (forever) tier_->store->be_good();
    bool sick = fault_armed();
    for (const Shard &shard : shards_) sick |= shard.fake->hung() || shard.fake->gone();
    const uint64_t timeout = op.f[0] == 0 ? 0 : forever && !sick ? kForever : kMillisecond;
    look_at_tier();
    count_tier();
    const quire_status status = q_->cache_detach_tier_wait(cache_, timeout, &error_);
    if (!tier_->attached) {
        expect(status, {QUIRE_E_ARG}, "quire_cache_detach_tier_wait without a tier");
        return true;
    }
    if (open) {
        expect(status, {QUIRE_E_BUSY}, "quire_cache_detach_tier_wait with an open step");
        return true;
    }
    if (timeout == kForever)
        expect(status, {QUIRE_OK}, "quire_cache_detach_tier_wait");
    else
        expect(status, {QUIRE_OK, QUIRE_S_TIMEOUT}, "quire_cache_detach_tier_wait");
    forget_loads();
    tier_->leaving = true;
    if (late_finding_) throw *late_finding_;
    if (status != QUIRE_OK) {
        ++tally_->tier_detach_late;
        return true;
    }
    tier_->attached = false;
    return true;
}

// The loads and writes since the tier was attached; a tier that timed out counts once.
void World::count_tier() {
    if (!has_tier() || tier_->leaving) return;
    const quire_cache_tier_stats &s = tier_->stats;
    tally_->loads_begun += s.loads_begun;
    tally_->loads_ready += s.loads_ready;
    tally_->loads_used += s.loads_used;
    tally_->loads_missed += s.loads_missed;
    tally_->loads_failed += s.loads_failed;
    tally_->loads_late += s.loads_late;
    tally_->loads_expired += s.loads_expired;
    tally_->loads_cancelled += s.loads_cancelled;
    tally_->loads_short += s.loads_short;
    tally_->tokens_loaded += s.tokens_loaded;
    tally_->values_damaged += s.values_damaged;
    tally_->values_foreign += s.values_foreign;
    tally_->tier_written += s.blocks_written;
    tally_->tier_known += s.blocks_known;
    tally_->tier_refused += s.blocks_refused;
    tally_->tier_dropped += s.blocks_dropped;
    tally_->tier_evicted += s.blocks_evicted;
}

// wait: 0 quire_cache_poll_tier; else quire_cache_load_wait, for no time or for a millisecond.
bool World::poll_tier(const Op &op) {
    if (!tier_ || tier_->tier == nullptr) return false;
    quire_cache_tier_progress got{};
    got.struct_size = sizeof got;
    const uint32_t wait = op.f[0] % 3;
    const uint64_t struck = strikes();
    const quire_status status =
        wait == 0 ? q_->cache_poll_tier(cache_, &got, &error_)
                  : q_->cache_load_wait(cache_, (wait - 1) * kMillisecond, &got, &error_);
    if (!tier_->attached) {
        expect(status, {QUIRE_E_ARG}, "quire_cache_poll_tier without a tier");
        return true;
    }
    if (status < 0 && strikes() != struck) {
        ++tally_->refusals_passed_on;
        return true;
    }
    expect(status, {QUIRE_OK, wait == 0 ? QUIRE_OK : QUIRE_S_TIMEOUT}, "quire_cache_poll_tier");
    look_at_tier();
    if (status == QUIRE_S_TIMEOUT && got.loads_running == 0)
        fail("tier-progress", "quire_cache_load_wait ran out of time, and no load runs");
    const quire_cache_tier_stats &s = tier_->stats;
    if (s.loads_begun != got.loads_running + got.loads_ended)
        fail("tier-progress", "%llu loads begun; %u run and %llu have ended",
             static_cast<unsigned long long>(s.loads_begun), got.loads_running,
             static_cast<unsigned long long>(got.loads_ended));
    uint32_t live = 0;
    for (const auto &seq : sequences) live += seq->load.live || seq->load.ran;
    if (got.loads_running + got.loads_ready > live)
        fail("tier-progress", "%u loads run and %u are ready; %u sequences may have one",
             got.loads_running, got.loads_ready, live);
    loads_running_ = got.loads_running;
    return true;
}

bool World::cancel_load(const Op &op) {
    Sequence *seq = find(op.f[0]);
    if (seq == nullptr || !tier_ || tier_->tier == nullptr) return false;
    bool used = false;
    if (open)
        for (const Row &row : open->rows) used |= row.seq == seq->id && row.may_load;
    const quire_status status = q_->cache_cancel_load(cache_, seq->handle, &error_);
    if (!tier_->attached) {
        expect(status, {QUIRE_E_ARG}, "quire_cache_cancel_load without a tier");
        return true;
    }
    expect(status, {QUIRE_OK, used ? QUIRE_E_BUSY : QUIRE_OK}, "quire_cache_cancel_load");
    if (status == QUIRE_OK) {
        seq->load = {};
        asked_.erase(seq->id);
        if (open)
            for (Undo &undo : open->undo)
                if (undo.before.id == seq->id) undo.before.load = {};
    }
    look_at_tier();
    return true;
}

bool World::store(const Op &op) {
    if (!tier_ || tier_->store == nullptr) return false;
    tier_->store->act(op.f[0] % kStoreHows, op.f[1], op.f[2]);
    if (late_finding_) throw *late_finding_;
    return true;
}

// Time passes.
bool World::elapse(const Op &op) {
    clock_watch.now_ns += op.f[0] * kMillisecond;
    return true;
}

// The library's own queues run some of what lies in them.
bool World::run_copies_of_tier(const Op &op) {
    for (Shard &shard : shards_)
        for (uint32_t q = 0; q < shard.fake->queue_count(); ++q)
            if (std::find(shard.queue_index.begin(), shard.queue_index.end(), q) ==
                shard.queue_index.end())
                shard.fake->advance(q, op.f[0]);
    return on_device();
}

// The store ends and comes back, with what it kept: all of it, or none.
bool World::restart(const Op &op) {
    if (!tier_ || tier_->tier == nullptr || open) return false;
    const quire_status busy = q_->tier_close_wait(tier_->tier, 0, &error_);
    if (tier_->attached) {
        expect(busy, {QUIRE_E_BUSY}, "quire_tier_close_wait under a cache");
        for (int i = 0; tier_->attached && i < 3; ++i) execute(make_op(OpKind::detach, {2}));
        if (tier_->attached) return true;
    } else {
        expect(busy, {QUIRE_OK}, "quire_tier_close_wait");
        tier_->tier = nullptr;
        tier_->store = nullptr;
        return true;
    }
    tally_->store_faults += tier_->store->counts.faults;
    std::map<Store::Key, Store::Record> kept;
    if (op.f[0] != 0) kept = tier_->store->records;
    expect(q_->tier_close_wait(tier_->tier, kForever, &error_), {QUIRE_OK},
           "quire_tier_close_wait");
    tier_->tier = nullptr;
    tier_->store = nullptr;
    open_store();
    tier_->store->records = std::move(kept);
    ++tally_->store_restarts;
    return true;
}

// For a person who reads a script.
void World::trace_tier() {
    if (!has_tier()) return;
    quire_cache_tier_stats s{};
    s.struct_size = sizeof s;
    q_->cache_get_tier_stats(cache_, &s, &error_);
    const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    printf(
        "    tier at %llu us: loads begun %llu ready %llu used %llu missed %llu failed %llu late "
        "%llu expired %llu cancelled %llu short %llu; written %llu known %llu refused %llu dropped "
        "%llu evicted %llu; the store has %zu values, %zu waiting\n",
        number(now_ns() / 1000), number(s.loads_begun), number(s.loads_ready), number(s.loads_used),
        number(s.loads_missed), number(s.loads_failed), number(s.loads_late),
        number(s.loads_expired), number(s.loads_cancelled), number(s.loads_short),
        number(s.blocks_written), number(s.blocks_known), number(s.blocks_refused),
        number(s.blocks_dropped), number(s.blocks_evicted), tier_->store->records.size(),
        tier_->store->waiting());
}

// The library waits: meanwhile the store answers, and devices do what lies in their queues.
void World::wait_passes() {
    if (tier_ && tier_->store != nullptr) tier_->store->waited();
    for (Shard &shard : shards_) shard.fake->drain();
}

// At the end: nothing of the tier is left.
void World::end_tier() {
    if (tier_ && tier_->tier != nullptr) {
        for (int i = 0; tier_->attached && i < 3; ++i) execute(make_op(OpKind::detach, {2}));
        if (tier_->attached) fail("tier-detach", "a tier cannot be detached though nothing fails");
        tally_->store_faults += tier_->store->counts.faults;
        expect(q_->tier_close_wait(tier_->tier, kForever, &error_), {QUIRE_OK},
               "quire_tier_close_wait at the end");
        tier_->tier = nullptr;
        tier_->store = nullptr;
        if (Store::live() != stores_before_) fail("tier-leak", "a store outlives its tier");
    }
    if (late_finding_) throw *late_finding_;
}

}  // namespace sim
