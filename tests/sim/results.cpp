// SPDX-License-Identifier: Apache-2.0
//
// results: what begin and add answered, checked and taken over into the model.
#include <algorithm>
#include <utility>

#include "device.hpp"
#include "items.hpp"

namespace sim {

void World::take_results(Items &items, uint64_t room_before) {
    take_preemptions();
    if (mistakes_[kFaultLonger] != 0) read_longer(items.results);
    loading_now_ = false;
    for (size_t i = 0; i < items.items.size(); ++i)
        loading_now_ |= items.results[i].outcome == QUIRE_ITEM_LOADING;
    const size_t rows_before = open->rows.size();
    for (size_t i = 0; i < items.items.size(); ++i) {
        const quire_step_result &result = items.results[i];
        if (result.outcome == QUIRE_ITEM_RUN)
            take_run(items, i);
        else if (result.outcome == QUIRE_ITEM_WAIT)
            take_wait(items, i, i == 0 && rows_before == 0 ? room_before : 0);
        else if (result.outcome == QUIRE_ITEM_LOADING)
            take_loading(items, i);
        else
            fail("outcome", "item %zu has outcome %u", i, result.outcome);
    }
    if (items.results[items.items.size()].outcome != ~0u)
        fail("output-past", "a result was written past the last item");
    check_quotas();
    for (size_t i = 0; i < items.items.size(); ++i) {
        const Sequence &seq = *find(items.planned[i].seq);
        const uint32_t total = seq.known() + items.planned[i].ahead +
                               static_cast<uint32_t>(items.planned[i].tokens.size());
        const uint32_t most =
            (total + config.block_tokens - 1) / config.block_tokens + 1 + config.beside_states();
        const bool first = i == 0 && rows_before == 0;
        if (items.results[i].outcome == QUIRE_ITEM_WAIT)
            judge_wait(seq, items.results[i].reason, most, first && room_before != 0);
    }
    for (const PlannedItem &plan : items.planned) compare(*find(plan.seq), "begin or add");
    for (const Undo &undo : open->undo)
        if (undo.preempted) compare(*find(undo.before.id), "a preemption");
}

// The tables before a call that may take blocks away.
void World::note_tables() {
    tables_.clear();
    for (const auto &seq : sequences) {
        if (seq->swapped) continue;
        auto &tables = tables_[seq->id];
        for (uint32_t g = 0; g < blocks_.size(); ++g) tables.push_back(table(*seq, g));
    }
}

void World::note_ran(const Sequence &seq) {
    tenants_were_run_.insert(find_namespace(seq.ns)->handle);
}

// What an item's window gave back, and it did not take again, counts against every other item until
// commit (README.md, question 15): so the last item of a namespace was admitted beside all of that.
void World::check_quotas() {
    for (const Namespace &space : namespaces) {
        if (space.quota == 0) continue;
        uint64_t others = 0;
        uint32_t last = 0;
        for (const Row &row : open->rows) {
            if (find(row.seq)->ns != space.id) continue;
            others += last;
            last = row.gave_back;
        }
        if (others == 0) continue;
        quire_namespace_info got{};
        got.struct_size = sizeof got;
        expect(q_->namespace_get_info(cache_, space.handle, &got, &error_), {QUIRE_OK},
               "quire_namespace_get_info");
        ++tally_->quotas_beside;
        if (got.blocks_held + others > space.quota && !tolerate("quota"))
            fail("quota",
                 "namespace %u holds %llu blocks, and items gave back %llu that others may not use "
                 "before commit; its quota is %u",
                 space.id, static_cast<unsigned long long>(got.blocks_held),
                 static_cast<unsigned long long>(others), space.quota);
    }
}

void World::take_preemptions() {
    quire_preemption list[64] = {};
    uint32_t count = 0;
    expect(q_->step_preempted(cache_, open->handle, list, 64, sizeof list[0], &count, &error_),
           {QUIRE_OK}, "quire_step_preempted");
    for (uint32_t i = open->preemptions; i < count; ++i) {
        const quire_preemption &one = list[i];
        Sequence *victim = nullptr;
        for (auto &seq : sequences)
            if (seq->handle == one.seq) victim = seq.get();
        if (victim == nullptr) fail("preempted", "a preempted sequence is not live");
        if (one.chosen_by == 1) {
            const Sequence *winner = nullptr;
            for (auto &seq : sequences)
                if (seq->handle == one.for_seq) winner = seq.get();
            if (winner == nullptr) fail("preempted", "a preemption is for no live sequence");
            if (victim->has_item || victim == winner)
                fail("preempted", "sequence %u was preempted though it has an item", victim->id);
            const bool newer = victim->admitted > winner->admitted;
            const bool allowed = config.victim == QUIRE_VICTIM_NEWEST
                                     ? newer
                                     : victim->priority < winner->priority ||
                                           (victim->priority == winner->priority && newer);
            if (winner->computed == 0 && winner->cross_tokens == 0)
                fail("victim-order", "sequence %u was preempted for %u, which has nothing",
                     victim->id, winner->id);
            if (!allowed && !tolerate("victim-order"))
                fail("victim-order",
                     "sequence %u (admitted %llu, priority %d) was preempted for %u (%llu, %d)",
                     victim->id, static_cast<unsigned long long>(victim->admitted),
                     victim->priority, winner->id,
                     static_cast<unsigned long long>(winner->admitted), winner->priority);
            const bool swaps = i == 0 && open->how == QUIRE_PREEMPT_SWAP && !victim->may_move;
            if (swaps && one.how == QUIRE_PREEMPT_RECOMPUTE && swap_must_fit(tables_[victim->id]))
                fail("swap-room", "sequence %u is not swapped, and swapped ones leave it room",
                     victim->id);
            ++tally_->preempt_by_quire;
        }
        if (victim->drafts != 0)
            fail("preempted", "sequence %u was preempted with drafts not accepted", victim->id);
        if (one.computed_tokens > victim->computed)
            fail("preempted", "sequence %u had %u computed tokens, not %u", victim->id,
                 victim->computed, one.computed_tokens);
        open->undo.push_back({*victim, true, tables_[victim->id]});
        victim->in_host.clear();
        victim->swap_blocks = one.how == QUIRE_PREEMPT_SWAP ? one.blocks : 0;
        victim->preempted = true;
        victim->in_step = true;
        ++victim->preemptions;
        victim->ahead = 0;
        victim->ahead_written = false;
        if (one.how == QUIRE_PREEMPT_SWAP) {
            victim->swapped = true;
            ++tally_->preempt_swap;
            ++open->swaps;
            if (victim->may_move) {  // a swap gives the moved tokens up
                const uint32_t left = info(*victim).computed_tokens;
                victim->computed = std::min(victim->computed, left);
                victim->may_move = false;
            }
        } else {
            victim->computed = 0;
            victim->may_move = false;
            ++tally_->preempt_recompute;
        }
    }
    open->preemptions = count;
}

// Hits, the first position and the count of an item that runs; `seq` has its tokens, not its
// drafts.
void World::check_run(const Items &items, size_t index, const Sequence &seq, uint32_t total) {
    const quire_step_result &result = items.results[index];
    const PlannedItem &plan = items.planned[index];
    const uint32_t unknown = seq.first_unknown();
    if (seq.computed != 0 && result.hit_tokens != 0)
        fail("hits", "sequence %u has %u computed tokens and yet %u hits", seq.id, seq.computed,
             result.hit_tokens);
    if (!may_hit(result.hit_tokens) || result.hit_tokens >= total || result.hit_tokens > unknown ||
        result.hit_tokens > total - plan.drafts)
        fail("hits", "sequence %u: %u hits of %u tokens (%u drafts, unknown from %u)", seq.id,
             result.hit_tokens, total, plan.drafts, unknown);
    if (result.hit_tokens != 0 &&
        (seq.cross_tokens != 0 || (config.flags & QUIRE_CACHE_NO_PREFIX) != 0))
        fail("hits", "sequence %u finds %u tokens, and may find none", seq.id, result.hit_tokens);
    if (result.hit_tokens % config.span() != 0 && under_span(seq, whole_hit(result.hit_tokens)))
        fail("partial-span", "sequence %u: %u hits, and a span lies over that block", seq.id,
             result.hit_tokens);
    if (result.hit_tokens > plan.most_hits(partial() ? 1 : config.span()))
        fail("hit-limit", "sequence %u finds %u tokens; its item's limit is %u", seq.id,
             result.hit_tokens, plan.limit);
    // A probe speaks of the queue that wrote; drafts are never found, a preemption may evict.
    uint32_t loaded = loaded_most(plan, seq);
    if (loaded != 0 && partial()) loaded += config.block_tokens - 1;  // and a part beyond
    if (index == 0 && items.probed != ~0u && open->rows.empty() && open->preemptions == 0 &&
        (result.hit_tokens > std::max(items.probed, loaded) ||
         (config.queues == 1 && plan.drafts == 0 && result.hit_tokens < items.probed_least)))
        fail("probe-hit", "sequence %u: by a probe and the limit %u, %u to %u tokens; the step %u",
             seq.id, plan.limit, items.probed_least, items.probed, result.hit_tokens);
    if (result.first_position > seq.computed + result.hit_tokens ||
        (config.exact() && result.first_position != seq.computed + result.hit_tokens))
        fail("first-position", "sequence %u: first position %u; %u computed and %u hits", seq.id,
             result.first_position, seq.computed, result.hit_tokens);
    const uint32_t left = total - result.first_position;
    const uint32_t want = plan.max == 0 ? left : std::min(plan.max, left);
    if (result.compute_count != want)
        fail("compute-count", "sequence %u computes %u tokens; %u are left and %u are allowed",
             seq.id, result.compute_count, left, plan.max);
    if (result.cross_tokens != 0 && result.cross_tokens != seq.cross_tokens)
        fail("cross-tokens", "sequence %u: %u cross tokens; it has %u", seq.id, result.cross_tokens,
             seq.cross_tokens);
}

// How many table entries less it has than before the call.
uint32_t World::gave_back(const Sequence &seq) {
    const auto tables = tables_.find(seq.id);
    const auto entries = [](const std::vector<int32_t> &ids) {
        return static_cast<uint32_t>(ids.size()) -
               static_cast<uint32_t>(std::count(ids.begin(), ids.end(), 0));
    };
    uint32_t had = 0;
    uint32_t has = 0;
    for (uint32_t g = 0; tables != tables_.end() && g < blocks_.size(); ++g) {
        had += entries(tables->second[g]);
        has += entries(table(seq, g));
    }
    return had > has ? had - has : 0;
}

// `seq` has computed what it had before the item.
void World::count_limit(const PlannedItem &plan, const Sequence &seq, uint32_t hits) {
    if (plan.limit == 0) return;
    ++tally_->limits;
    tally_->limits_reached += hits != 0 && hits == plan.most_hits(config.span());
    tally_->partial_limited += hits % config.span() != 0 && hits == plan.limit;
    tally_->limits_ignored += seq.computed != 0;
    tally_->limits_of_swapped += seq.computed != 0 && seq.swapped;
}

void World::take_run(Items &items, size_t index) {
    const quire_step_result &result = items.results[index];
    const PlannedItem &plan = items.planned[index];
    Sequence &seq = *find(plan.seq);
    const uint32_t total = seq.known() + static_cast<uint32_t>(plan.tokens.size());
    if (result.reason != 0 || result.blocks_short != 0)
        fail("result", "sequence %u runs with reason %u, %u blocks short", seq.id, result.reason,
             result.blocks_short);
    if (result.row != open->rows.size())
        fail("result-row", "sequence %u has row %u; %zu items run before it", seq.id, result.row,
             open->rows.size());
    judge_no_load(items, index, seq);
    open->undo.push_back({seq, false, {}});
    note_ran(seq);
    tally_->swap_in += seq.swapped;
    for (size_t i = 0; i < plan.tokens.size() - plan.drafts; ++i)
        seq.append(plan.tokens[i], plan.unknown[i] != 0);
    check_run(items, index, seq, total);
    count_limit(plan, seq, result.hit_tokens);
    const uint32_t root = seq.known();
    for (uint32_t d = 0; d < plan.drafts; ++d) {
        const size_t t = plan.tokens.size() - plan.drafts + d;
        if (plan.parents.empty()) {
            seq.append(plan.tokens[t], plan.unknown[t] != 0);
            continue;
        }
        uint32_t depth = 0;  // of the parent, for the position
        for (uint32_t p = plan.parents[d]; p != QUIRE_MASK_ROOT; p = plan.parents[p]) ++depth;
        const uint64_t before = plan.parents[d] == QUIRE_MASK_ROOT
                                    ? seq.chain_before(root)
                                    : seq.chain[root + plan.parents[d]];
        seq.chain.push_back(seq.link(before, plan.tokens[t], root + depth));
        seq.tokens.push_back(plan.tokens[t]);
        seq.unknown.push_back(plan.unknown[t]);
    }
    seq.doc = plan.doc;
    seq.computed = result.first_position + result.compute_count;
    seq.drafts = plan.drafts;
    seq.parents = plan.parents;
    seq.ahead = plan.ahead;
    seq.ahead_written = false;
    seq.ahead_tokens.clear();
    for (uint32_t i = 0; i < plan.ahead; ++i)
        seq.ahead_tokens.push_back(document_token(plan.doc, total + i));
    seq.lost = seq.preempted = seq.swapped = seq.may_move = false;
    seq.in_step = seq.has_item = true;
    if (seq.admitted == 0) seq.admitted = ++admissions_;
    Row row;
    row.seq = seq.id;
    row.first = result.first_position;
    row.count = result.compute_count;
    row.hit = result.hit_tokens;
    row.ahead = seq.computed == seq.known() ? plan.ahead : 0;
    row.cross = result.cross_tokens;
    row.mask_rows = plan.mask_rows;
    row.gave_back = gave_back(seq);
    row.may_load = loaded_most(plan, seq) != 0;
    seq.load.ran |= std::exchange(seq.load.live, false);
    seq.ahead_written = row.ahead != 0;
    open->rows.push_back(row);
    ++tally_->items_run;
    tally_->hits += row.hit != 0;
    tally_->hit_tokens += row.hit;
    tally_->computed_tokens += row.count;
    tally_->draft_tokens += plan.drafts;
    tally_->tree_items += !plan.parents.empty();
    tally_->lookahead_slots += row.ahead;
    for (const uint8_t one : plan.unknown) tally_->unknown_tokens += one;
}

// Whether what the item's namespace holds, and what all others may hold, leave it the room that it
// needs at most: `blocks` in each group. Preemptions of the step may have taken some for others;
// and of the pool only a step's first item has all (README.md, question 8). idle: it is that, and
// nothing is unfinished.
void World::judge_wait(const Sequence &seq, uint32_t reason, uint32_t blocks, bool idle) {
    if (open->preemptions != 0 || seq.swapped || seq.cross_tokens != 0) return;
    const Namespace &own = *find_namespace(seq.ns);
    uint64_t held = 0;
    uint64_t others = 0;
    bool limited = true;
    for (const Namespace &space : namespaces) {
        if (space.id != own.id) {
            limited &= space.quota != 0;
            others += space.quota;
            continue;
        }
        quire_namespace_info got{};
        got.struct_size = sizeof got;
        expect(q_->namespace_get_info(cache_, space.handle, &got, &error_), {QUIRE_OK},
               "quire_namespace_get_info");
        held = got.blocks_held;
    }
    uint64_t back = 0;
    for (const Row &row : open->rows)
        if (find(row.seq)->ns == own.id) back += row.gave_back;
    if (reason == QUIRE_WAIT_QUOTA) {
        ++tally_->quotas_judged;
        if (held + back + blocks * blocks_.size() <= own.quota && !tolerate("wait-quota"))
            fail("wait-quota",
                 "sequence %u waits for the quota of %u blocks of namespace %u, which holds %llu, "
                 "and needs %u in each group at most",
                 seq.id, own.quota, own.id, static_cast<unsigned long long>(held + back), blocks);
    }
    if (reason != QUIRE_WAIT_POOL || !idle || !limited || blocks_.size() != 1) return;
    if (!config.windowless()) return;
    ++tally_->pools_judged;
    if (held + others + blocks + config.watermark <= blocks_[0] - 1 && !tolerate("wait-flooded"))
        fail("wait-flooded",
             "sequence %u waits for the pool of %u blocks; its namespace holds %llu, the quotas of "
             "all others come to %llu, and it needs %u at most",
             seq.id, blocks_[0], static_cast<unsigned long long>(held),
             static_cast<unsigned long long>(others), blocks);
}

void World::take_wait(Items &items, size_t index, uint64_t room_before) {
    const quire_step_result &result = items.results[index];
    const PlannedItem &plan = items.planned[index];
    Sequence &seq = *find(plan.seq);
    ++tally_->items_wait;
    if (result.reason != QUIRE_WAIT_PREEMPTED)
        judge_no_load(items, index, seq);
    else if (plan.load != 0)
        asked_.insert(seq.id);  // perhaps
    if (result.reason < QUIRE_WAIT_POOL || result.reason > QUIRE_WAIT_PREEMPTED)
        fail("result", "sequence %u waits for reason %u", seq.id, result.reason);
    if (result.reason == QUIRE_WAIT_PREEMPTED) {
        ++tally_->wait_preempted;
        note_ran(seq);
        bool listed = false;
        for (const Undo &undo : open->undo) listed |= undo.preempted && undo.before.id == seq.id;
        if (!listed) fail("result", "sequence %u waits as preempted, and is not listed", seq.id);
        return;
    }
    if (result.blocks_short == 0)
        fail("result", "sequence %u waits for reason %u and lacks no block", seq.id, result.reason);
    tally_->wait_pool += result.reason == QUIRE_WAIT_POOL;
    tally_->wait_watermark += result.reason == QUIRE_WAIT_WATERMARK;
    tally_->wait_quota += result.reason == QUIRE_WAIT_QUOTA;
    const Namespace &space = *find_namespace(seq.ns);
    if (result.reason == QUIRE_WAIT_QUOTA && space.quota == 0)
        fail("wait-quota", "sequence %u waits for a quota that its namespace has not", seq.id);
    if (result.reason == QUIRE_WAIT_WATERMARK && config.watermark == 0)
        fail("wait-watermark", "sequence %u waits for a watermark of 0", seq.id);
    // With nothing unfinished, every block that is free or cached may be had. One more than the
    // whole length covers a copy on write.
    const uint32_t total = seq.known() + static_cast<uint32_t>(plan.tokens.size()) + plan.ahead;
    uint32_t most = (total + config.block_size(0) - 1) / config.block_size(0) + 1;
    most += config.beside_states();
    // All that a swap took out comes in again, its lookahead too.
    if (seq.swapped) most = std::max(most, seq.swap_blocks + 1);
    if (config.groups.size() == 1 && result.reason == QUIRE_WAIT_POOL &&
        room_before >= most + config.watermark)
        fail("wait-room", "sequence %u waits for the pool; %llu blocks can be had, %u are the most",
             seq.id, static_cast<unsigned long long>(room_before), most);
}

}  // namespace sim
