// SPDX-License-Identifier: Apache-2.0
//
// results: what the library answers to a step's items.
#include <algorithm>

#include "open_step.hpp"

namespace hybrid {

void OpenStep::check_result(ItemCall &call, size_t k) {
    Row &row = call.rows[k];
    const auto &item = call.items[k];
    auto &result = call.results[k];
    Sequence &sequence = world_.sequences[row.sequence];
    world_.trace("  sequence ", hex(item.seq), " +", item.token_count, " max_compute ",
                 item.max_compute, " drafts ", item.draft_count, " lookahead ", item.lookahead,
                 " max_hit ", item.max_hit_tokens, " -> outcome ", result.outcome, " reason ",
                 result.reason, " hit ", result.hit_tokens, " first ", result.first_position,
                 " count ", result.compute_count, " short ", result.blocks_short);
    world_.count(join("item outcome ", result.outcome, " reason ", result.reason));
    if (result.outcome == QUIRE_ITEM_WAIT) {
        sequence = row.before;
        return check_wait(call, k);
    }
    if (result.outcome != QUIRE_ITEM_RUN) fail("outcome", result.outcome);
    if (world_.play.plant == Plant::hit) result.hit_tokens += world_.config.span;
    check_hit(call, k);
    uint32_t count = row.known - result.first_position;
    if (item.max_compute != 0) count = std::min(count, item.max_compute);
    if (result.compute_count != count)
        fail("compute_count", "compute_count ", result.compute_count, ", expected ", count,
             " (known ", row.known, " first ", result.first_position, " max ", item.max_compute,
             ")");
    if (call.was_probed && k == 0) check_probe(call, k);
    row.first = result.first_position;
    row.count = result.compute_count;
    row.hit = result.hit_tokens;
    row.tenant = world_.namespaces[sequence.ns].serial;
    sequence.drafts = item.draft_count;
    sequence.lookahead.clear();
    for (uint32_t i = 0; i < item.lookahead; ++i)
        sequence.lookahead.push_back(world_.other_token());
    row.writes_lookahead = row.first + row.count == row.known && row.lookahead != 0;
    sequence.lookahead_kept = row.writes_lookahead;
    row.chain = world_.chain(sequence, true);
    sequence.last_step = step_.id;
    sequence.last_queue = step_.queue;
    const auto now = world_.info(sequence.handle);
    if (now.known_tokens != row.known)
        fail("run_known", "known ", now.known_tokens, ", expected ", row.known);
    step_.rows.push_back(row);
    ++world_.row_count;
}

// REQUIRES: the model's sequence is as before the item.
void OpenStep::check_wait(const ItemCall &call, size_t k) {
    const auto &result = call.results[k];
    const Sequence &sequence = world_.sequences[call.rows[k].sequence];
    const auto now = world_.info(sequence.handle);
    if (now.known_tokens != sequence.tokens.size())
        fail("wait_known", "a waiting item left known ", now.known_tokens, ", before ",
             sequence.tokens.size());
    if (result.reason == 0 || result.reason > QUIRE_WAIT_PREEMPTED)
        fail("wait_reason", "reason ", result.reason);
    if (result.reason != QUIRE_WAIT_PREEMPTED && result.blocks_short == 0)
        fail("wait_short", "waits for reason ", result.reason, " with blocks_short 0");
    if (result.reason == QUIRE_WAIT_QUOTA && world_.namespaces[sequence.ns].quota == 0)
        fail("wait_quota", "waits for a quota that does not exist");
    if (result.reason == QUIRE_WAIT_WATERMARK && world_.config.watermark == 0)
        fail("wait_wm", "waits for a watermark that does not exist");
    if (result.reason == QUIRE_WAIT_POOL && world_.unfinished() == 0 && step_.rows.empty() &&
        call.items.size() == 1)
        check_pool_wait(call.items[k], call.rows[k], result);
}

// An item alone waits for the pool only if what it needs at most is not there.
void OpenStep::check_pool_wait(const quire_step_item &item, const Row &row,
                               const quire_step_result &result) {
    std::set<GroupBlock> held;  // (pool, block)
    const Config &config = world_.config;
    for (const Sequence &sequence : world_.sequences) {
        if (!sequence.alive || (world_.info(sequence.handle).flags & QUIRE_SEQ_SWAPPED) != 0)
            continue;
        for (uint32_t g = 0; g < config.group_count(); ++g)
            for (const int32_t b : world_.table(world_.cache, world_.open_step, sequence.handle, g))
                if (b != 0) held.insert({config.pool_of(g), b});
    }
    for (const Lease &lease : world_.leases)
        for (const auto &[key, own] : lease.blocks)
            if (lease.alive) held.insert({config.pool_of(key.first), key.second});
    const auto room = [&](uint32_t pool) -> uint64_t {
        const auto in = std::count_if(held.begin(), held.end(),
                                      [pool](const GroupBlock &b) { return b.first == pool; });
        return world_.pool_blocks[pool] - 1 - static_cast<uint64_t>(in);
    };
    const auto blocks = [](uint32_t tokens, uint32_t size) { return (tokens + size - 1) / size; };
    uint64_t all = 0, most = 0;
    bool is_short = false;
    for (uint32_t g = 0; g < config.group_count(); ++g) {
        const Group &group = config.groups[g];
        uint64_t needed = blocks(row.known + item.lookahead, group.block_tokens) + 1 + group.drafts;
        if (group.recurrent()) needed += blocks(item.lookahead, group.block_tokens) + 1;
        all += needed;
        most = std::max(most, needed);
        is_short |= !config.one_pool && needed > room(g);
    }
    if (config.one_pool) {
        is_short = all > room(0);
        most = all;
    }
    if (!is_short)
        fail("wait_needless", "an item waits for the pool (short ", result.blocks_short,
             ") though every pool has room: known ", row.known, " lookahead ", item.lookahead,
             ", pool 0 has room for ", room(0), " of ", world_.pool_blocks[0] - 1);
    if (result.blocks_short > most)
        fail("short_big", "blocks_short ", result.blocks_short, ", at most ", most,
             " can be needed");
}

void OpenStep::check_hit(const ItemCall &call, size_t k) {
    const auto &result = call.results[k];
    const uint32_t hit = result.hit_tokens;
    if (hit == 0) return;
    const uint32_t computed = call.before[k].computed_tokens;
    // A sequence that an earlier item preempted may find tokens again.
    if (computed != 0 && result.first_position == computed)
        fail("hit_computed", "hit ", hit, " with computed ", computed);
    if (hit % world_.config.span != 0)
        fail("hit_span", "hit ", hit, " is not a multiple of ", world_.config.span);
    if (result.first_position != hit)
        fail("hit_first", "hit ", hit, " first ", result.first_position);
    if (hit >= call.rows[k].known) fail("hit_all", "nothing is left to compute");
    const uint32_t most = call.items[k].max_hit_tokens;
    if (most == QUIRE_NO_HITS || (most != 0 && hit > most))
        fail("hit_max", "hit ", hit, " max_hit_tokens ", most);
    if (world_.config.no_prefix) fail("hit_noprefix", "hit ", hit, " without a prefix cache");
}

void OpenStep::check_probe(const ItemCall &call, size_t k) {
    const auto &item = call.items[k];
    const uint32_t hit = call.results[k].hit_tokens;
    world_.forget_ended();
    // A probe sees neither queues nor drafts.
    const bool comparable =
        item.draft_count == 0 &&
        std::all_of(world_.steps.begin(), world_.steps.end(),
                    [this](const Step &step) { return step.queue == step_.queue; });
    const uint32_t most = item.max_hit_tokens;
    if (most == 0 && comparable && call.probed != hit)
        fail("probe_hit", "quire_prefix_probe found ", call.probed, ", the item ", hit);
    if (most != 0 && most != QUIRE_NO_HITS && comparable && hit > call.probed)
        fail("probe_hit2", "quire_prefix_probe found ", call.probed, ", the item ", hit);
    const Row &row = call.rows[k];
    if (call.opened && world_.published_exactly && !world_.config.mixed &&
        world_.stats().evictions == 0 && !world_.config.no_prefix && comparable && most == 0 &&
        world_.sequences[row.sequence].key_set != media_key)
        check_predicted_hit(row, hit);
}

void OpenStep::check_predicted_hit(const Row &row, uint32_t hit) {
    const Sequence &sequence = world_.sequences[row.sequence];
    const auto chain = world_.chain(sequence);
    uint32_t best = 0;
    for (uint32_t n = world_.config.span; n < row.known; n += world_.config.span) {
        const bool is_there = world_.published.count(chain[n]) != 0;
        // Only some lengths have their state; else a missing one ends the run.
        if (!is_there && !world_.config.snapshots) break;
        if (is_there) best = n;
    }
    const bool all_named =
        std::find(sequence.named.begin(), sequence.named.end(), 0) == sequence.named.end();
    if (best != hit && all_named)
        fail(hit < best ? "hit_missed" : "hit_extra", "an item found ", hit,
             " tokens, the model expects ", best, " of known ", row.known);
    world_.count("exact hit checks");
    if (best != 0) world_.count("exact hit checks >0");
}

}  // namespace hybrid
