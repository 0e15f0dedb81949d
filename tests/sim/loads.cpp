// SPDX-License-Identifier: Apache-2.0
//
// loads: what an item that may load is answered, and what its load brought.
//
// Judged exactly: the first item of a step that is alone on its queue, where no group has a window.
// There a probe says what the device has, and the model's names say what the store has.
#include <algorithm>

#include "cache_tier.hpp"
#include "clock.hpp"
#include "device.hpp"
#include "items.hpp"

namespace sim {
namespace {

constexpr uint64_t kMillisecond = 1000000;
constexpr uint64_t kSlack = 2 * kMillisecond;  // what calls read of the clock meanwhile
constexpr int kMostPolls = 200;

}  // namespace

// Before begin or add, and once more after it: what the store has for each item. A load may build
// on what the device has: what the first item has there, a probe said.
void World::note_runs(Items &items, bool again) {
    if (!has_tier()) return;
    for (PlannedItem &plan : items.planned) {
        const Sequence &seq = *find(plan.seq);
        if (plan.load == 0 || seq.computed != 0 || seq.swapped || seq.cross_tokens != 0) continue;
        const bool probed = &plan == &items.planned[0] && items.probed != ~0u;
        const uint32_t run =
            store_run(seq, plan, probed ? whole_hit(items.probed) : 0, false, false);
        // The library need not ask for blocks that it has not heard of.
        if (!again) items.unheard = tier_->store->waiting() != 0;
        plan.least_run = again ? std::min(plan.least_run, run) : run;
        plan.run = std::max(plan.run, run);
        plan.most_run = std::max(plan.most_run, store_run(seq, plan, 0, true, false));
        plan.part_run = std::max(plan.part_run, store_run(seq, plan, 0, true, true));
    }
}

// The same item again, by what decides its prompt.
bool World::is_again(const Sequence &seq, const PlannedItem &plan) {
    if (!seq.load.live || seq.load.known != seq.known()) return false;
    return seq.load.tokens == plan.tokens && seq.load.unknown == plan.unknown &&
           seq.load.drafts == plan.drafts && seq.load.limit == plan.limit;
}

void World::take_loading(Items &items, size_t index) {
    const PlannedItem &plan = items.planned[index];
    Sequence &seq = *find(plan.seq);
    const uint64_t now = now_ns();
    ++tally_->items_loading;
    const char *why = !has_tier()         ? "the cache has no tier"
                      : plan.load == 0    ? "the item may not load"
                      : seq.computed != 0 ? "the sequence has computed tokens"
                      : tier_->dead       ? "the cache was reset since the tier was attached"
                      : tier_->leaving    ? "the tier is being detached"
                      : seq.load.live     ? nullptr
                      : plan.part_run == 0 && !tier_->store->is_forgetful()
                          ? "the store has nothing of it"
                          : nullptr;
    if (why != nullptr && !tolerate("load-needless"))
        fail("load-needless", "sequence %u loads, and %s", seq.id, why);
    const bool knows = has_tier() && !tier_->store->is_forgetful();
    const bool part = knows && !seq.load.live && plan.most_run == 0;
    if (part && !tolerate("load-group"))
        fail("load-group", "sequence %u loads a block of which the store lacks a group", seq.id);
    if (info(seq).blocks_held != 0)
        fail("load-holds", "sequence %u loads, and holds %u blocks", seq.id, info(seq).blocks_held);
    const uint32_t least = std::max(tier_->desc.min_load_tokens, config.block_tokens);
    const bool again = is_again(seq, plan);
    const uint32_t have = whole_hit(items.probed);
    const bool first = index == 0 && open->rows.empty() && open->preemptions == 0;
    if (!again && first && knows && items.probed != ~0u && config.windowless() &&
        config.queues == 1 && plan.run < have + least && !seq.load.live &&
        (plan.part_run < have + least || !tolerate("load-group")))
        fail(plan.part_run < have + least ? "load-needless" : "load-group",
             "sequence %u loads; the store has %u tokens and the device %u", seq.id, plan.run,
             items.probed);
    // "It runs once the load has ended": at its deadline it has.
    const bool dropped = now - seq.load.sent_ns > tier_->desc.load_expiry_ns;
    // Unless it began another one, for what the device had of it may be gone (question 24).
    const bool anew = loads_begun() != items.loads_begun;
    tally_->loads_anew += again && anew && !dropped;
    if (again && clocks_are_watched && !dropped && (!anew || seq.load.anew > 2) &&
        now > seq.load.since_ns + tier_->desc.load_timeout_ns + kSlack &&
        !tolerate("load-deadline"))
        fail("load-deadline", "sequence %u still loads after %llu ms; its load may take %llu ms",
             seq.id, static_cast<unsigned long long>((now - seq.load.since_ns) / kMillisecond),
             static_cast<unsigned long long>(tier_->desc.load_timeout_ns / kMillisecond));
    // "With the same tokens or more, which load no more than the same would."
    const bool longer = !again && !dropped && !anew && seq.load.live;
    const uint32_t sure = longer ? std::min(seq.load.sure, plan.least_run) : plan.least_run;
    if (!again || dropped || anew) {
        const uint32_t times = again && !dropped ? seq.load.anew + 1 : 0;
        seq.load = {};
        seq.load.anew = times;
        seq.load.since_ns = now;
        seq.load.known = seq.known();
        seq.load.tokens = plan.tokens;
        seq.load.unknown = plan.unknown;
        seq.load.drafts = plan.drafts;
        seq.load.limit = plan.limit;
        seq.load.op = plan.op;
    }
    seq.load.live = true;
    seq.load.most = std::max({seq.load.most, plan.run, plan.part_run});
    if (!again || dropped || anew) seq.load.sure = sure;
    seq.load.sent_ns = now;
}

// The item runs, or waits, and does not load. `seq` is as it was before.
void World::judge_no_load(const Items &items, size_t index, const Sequence &seq) {
    const PlannedItem &plan = items.planned[index];
    if (!has_tier() || plan.load == 0) return;
    const bool asked = !asked_.insert(seq.id).second;
    if (plan.least_run == 0 || tier_->dead || tier_->leaving) return;
    if (seq.load.live) {
        tally_->load_ended += items.results[index].outcome == QUIRE_ITEM_RUN;
        return;
    }
    const uint32_t least = std::max(tier_->desc.min_load_tokens, config.block_tokens);
    const bool first = index == 0 && open->rows.empty() && open->preemptions == 0;
    if (asked || !first || items.probed == ~0u || !config.windowless() || config.queues != 1)
        return;
    if (items.unheard || plan.least_run < items.probed + least) return;
    // Nothing says whether an item that would wait anyway begins its load before.
    if (items.results[index].outcome == QUIRE_ITEM_WAIT) {
        ++tally_->loads_wait;
        return;
    }
    const uint64_t shorts = tier_->stats.loads_short;
    const uint64_t failed = tier_->stats.loads_failed;
    look_at_tier();
    if (tier_->stats.loads_short != shorts || tier_->stats.loads_failed != failed) return;
    if (!tolerate("load-missing"))
        fail("load-missing",
             "sequence %u does not load (outcome %u); the store has %u tokens of it, the device %u",
             seq.id, items.results[index].outcome, plan.run, items.probed);
}

// The most that an item may find: on the device, and by its load.
uint32_t World::loaded_most(const PlannedItem &plan, const Sequence &seq) const {
    if (!has_tier() || plan.load == 0 || !seq.load.live) return 0;
    return std::max({seq.load.most, plan.run, plan.part_run});
}

// The model learns a block that a load laid into the host tier when a step copies it to the device:
// it must be what the sequence has there, and the kernels that read it will see. A block that the
// step itself moved to the host came by no load.
void World::adopt_loaded(const Step &step, const std::vector<quire_block_copy> &copies,
                         uint32_t index) {
    const quire_block_copy &copy = copies[index];
    for (uint32_t i = 0; i < index; ++i)
        if (copies[i].kind == QUIRE_COPY_SWAP_OUT && copies[i].group == copy.group &&
            copies[i].dst == copy.src)
            return;
    for (const Row &row : step.rows) {
        if (!row.may_load || row.hit == 0) continue;
        const Sequence &seq = *find(row.seq);
        const std::vector<int32_t> ids = table(seq, copy.group);
        const auto at = std::find(ids.begin(), ids.end(), copy.dst) - ids.begin();
        const uint32_t begin = static_cast<uint32_t>(at) * config.block_tokens;
        if (begin >= row.hit) continue;
        unsure_loaded_.insert({copy.group, copy.src});  // by a load or not: nothing shows it
        for (uint32_t i = 0; i < config.block_tokens; ++i) {
            Slot &slot = memory_.at(kHost, copy.group, copy.src, i);
            const Content want = make_content(seq.tenant, mix(seq.chain[begin + i], epoch_));
            if (slot.content == want) continue;
            slot = {};
            slot.content = want;
        }
    }
}

// When faults have stopped: a store that says nothing costs no more than its deadline, and one that
// works brings what it has.
void World::conclude_loads() {
    if (!has_tier() || open) return;
    tier_->store->be_good();
    std::vector<uint32_t> ids;
    for (const auto &seq : sequences)
        if (seq->computed == 0 && !seq->swapped && seq->drafts == 0) ids.push_back(seq->id);
    for (const uint32_t id : ids) {
        const bool mute = mix(config.seed, id) % 3 == 0;
        if (mute) {
            tier_->store->act(kStoreAuto, 0, 0);
            tier_->store->act(kStoreMute, 1, 0);
        }
        uint32_t most = 0;
        look_at_tier();
        const uint64_t shorts = tier_->stats.loads_short;
        const uint32_t more = find(id)->known() == 0 ? config.max_tokens : 0;
        for (int i = 0;; ++i) {
            if (i == 3) fail("live-load", "sequence %u still loads, and its load has ended", id);
            execute(make_op(OpKind::item, {id, more, find(id)->doc, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
            execute(make_op(OpKind::begin, {0x71000000 + live_loads_++, 0, 0, 0}));
            const bool runs = !open->rows.empty();
            const uint32_t hit = runs ? open->rows[0].hit : 0;
            const bool loads = find(id)->load.live && !runs && loading_now_;
            execute(make_op(OpKind::abort, {}));
            if (!loads) {
                look_at_tier();
                const bool alone = tier_->stats.loads_short == shorts;  // no load lacked room
                if (runs && !mute && most != 0 && alone && !tier_->store->has_wrong)
                    check_brought(id, hit, most);
                break;
            }
            most = std::max(most, find(id)->load.sure);
            if (mute) clock_watch.now_ns += tier_->desc.load_timeout_ns + kSlack;
            for (int polls = 0; polls == 0 || (!mute && loads_running_ != 0); ++polls) {
                if (polls == kMostPolls && !tolerate("live-load"))
                    fail("live-load", "a load does not end, and nothing fails");
                if (polls >= kMostPolls) clock_watch.now_ns += tier_->desc.load_timeout_ns + kSlack;
                execute(make_op(OpKind::poll, {mute ? 0u : 2u}));
            }
            if (mute && !clocks_are_watched) break;
        }
        tier_->store->be_good();
        ++tally_->loads_concluded;
    }
}

// A load that nothing disturbed must have brought all that the store had.
void World::check_brought(uint32_t id, uint32_t hit, uint32_t most) {
    ++tally_->loads_brought;
    if (hit >= most || !config.windowless() || config.queues != 1) return;
    look_at_tier();
    if (!tolerate("load-lost"))
        fail(
            "load-lost",
            "sequence %u finds %u tokens after its load; the store had %u (begun %llu, ready %llu, "
            "missed %llu, failed %llu, late %llu, expired %llu, short %llu)",
            id, hit, most, static_cast<unsigned long long>(tier_->stats.loads_begun),
            static_cast<unsigned long long>(tier_->stats.loads_ready),
            static_cast<unsigned long long>(tier_->stats.loads_missed),
            static_cast<unsigned long long>(tier_->stats.loads_failed),
            static_cast<unsigned long long>(tier_->stats.loads_late),
            static_cast<unsigned long long>(tier_->stats.loads_expired),
            static_cast<unsigned long long>(tier_->stats.loads_short));
}

}  // namespace sim
