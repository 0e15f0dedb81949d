// SPDX-License-Identifier: Apache-2.0
//
// step_ops: planning a step: begin, add, drop, preempt, abort.
#include <algorithm>

#include "items.hpp"
#include "leases_only.hpp"

namespace sim {
namespace {

constexpr uint64_t kQueueTag = 100;  // the engine's name of queue 0

bool among(quire_status status, const std::vector<quire_status> &list) {
    return std::find(list.begin(), list.end(), status) != list.end();
}

}  // namespace

// What the first item would find, by quire_prefix_probe and its limit. Where a group has a window,
// the blocks before the limit may have left it: then it is what a probe finds of no more tokens
// than the limit and one to compute (README.md, question 17).
void World::probe_first(Items &items) {
    const PlannedItem &plan = items.planned[0];
    const Sequence &seq = *find(plan.seq);
    const uint32_t most = plan.most_hits(partial() ? 1 : config.span());
    std::vector<uint32_t> tokens;
    for (size_t i = 0; i < plan.tokens.size(); ++i)
        tokens.push_back(plan.unknown[i] ? QUIRE_TOKEN_UNKNOWN : plan.tokens[i]);
    expect(q_->prefix_probe(cache_, seq.handle, tokens.data(), static_cast<uint32_t>(tokens.size()),
                            &items.probed, &error_),
           {QUIRE_OK}, "quire_prefix_probe");
    // For the end of a hit within a block there may be no room.
    items.probed_least = whole_hit(items.probed);
    if (items.probed <= most) return;
    ++tally_->limits_probed;
    items.probed = most;
    items.probed_least = whole_hit(most);
    if (config.windowless()) return;
    if (seq.known() > most) {
        items.probed_least = 0;
        return;
    }
    ++tally_->limits_in_windows;
    // One token is always left to compute.
    expect(q_->prefix_probe(cache_, seq.handle, tokens.data(), most + 1 - seq.known(),
                            &items.probed, &error_),
           {QUIRE_OK}, "quire_prefix_probe");
    items.probed_least = whole_hit(items.probed);
}

// Blocks that a new item can have at most, where nothing unfinished holds any; else 0.
uint64_t World::room() {
    if (!committed.empty() || !device_idle()) return 0;
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    return s.blocks_free + s.blocks_cached;
}

// True if begin or add had to refuse the items, or might and did; then nothing may have changed.
bool World::refused(const Items &items, quire_status status, const Snapshot &before) {
    const bool might = (items.unsure && (status == QUIRE_E_ARG || status == QUIRE_E_LIMIT)) ||
                       (items.may_be_busy && status == QUIRE_E_BUSY);
    if (items.errors.empty() && !might) return false;
    if (!among(status, items.errors) && !might)
        expect(status, {items.errors[0]}, "begin or add with an item that cannot be");
    ++tally_->refused_calls;
    tally_->busy_answers += status == QUIRE_E_BUSY;
    unchanged(before, "error-changes");
    return true;
}

bool World::begin(const Op &op) {
    const uint32_t id = op.f[0];
    for (const Step &step : committed)
        if (step.id == id) return false;
    if (open && open->id == id) return false;
    Items items;
    build(items, op.f[1] % config.queues);
    auto step = std::make_unique<Step>();
    step->id = id;
    step->began_idle = device_idle() && (!lone_ || !on_device() || committed.empty());
    step->queue = op.f[1] % config.queues;
    step->flags = op.f[2] ? QUIRE_STEP_MAY_PREEMPT : 0;
    quire_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.flags = step->flags;
    desc.preempt = step->how = op.f[3] % 3;
    const std::vector<quire_queue *> queues = step_queues(step->queue);
    if (on_device()) {
        desc.queues = queues.data();
        desc.queue_count = static_cast<uint32_t>(queues.size());
        items.may_be_busy |= !device_idle();
    } else {
        desc.queue_tag = kQueueTag + step->queue;
    }
    if (open || committed.size() >= QUIRE_UNFINISHED_STEPS) items.errors.push_back(QUIRE_E_BUSY);
    // Steps count until those before them are finished too (README.md, question 4).
    if (!committed.empty() && commits_ - committed.front().number + 1 >= QUIRE_UNFINISHED_STEPS)
        items.may_be_busy = true;
    const bool might_fail = !items.errors.empty() || items.unsure || items.may_be_busy;
    Snapshot before = look(might_fail || fault_armed() || config.has(Feature::abort));
    const uint64_t room_before = items.items.empty() || open ? 0 : room();
    const bool probes = strict || ops_ % 4 == 0 || has_tier();
    if (!might_fail && !items.items.empty() && probes) probe_first(items);
    note_runs(items, false);
    if (!might_fail) look_at_tree(items);
    if (!open) note_host_tables();
    note_tables();
    const uint64_t struck = strikes();
    const quire_status status = q_->step_begin(
        cache_, &desc, items.items.data(), static_cast<uint32_t>(items.items.size()),
        sizeof(quire_step_item), items.tokens.data(), static_cast<uint32_t>(items.tokens.size()),
        items.results.data(), sizeof(quire_step_result), &step->handle, &error_);
    // A device that does not say what is done leaves it unfinished.
    const bool unread = strikes() != struck;
    items.may_be_busy |= unread;
    if (unread && (status == QUIRE_E_DEVICE_LOST || passed_on(status, struck))) {
        unchanged(before, "error-changes");
        return true;
    }
    if (refused(items, status, before)) return true;
    expect(status, {QUIRE_OK}, "quire_step_begin");
    before_begin_ = std::move(before);
    changed_since_begin_ = false;
    open = std::move(step);
    for (const auto &lease : leases) open->leases_before.push_back(*lease);
    note_runs(items, true);
    take_results(items, unread ? 0 : room_before);
    judge_partial(items, 0);
    return true;
}

bool World::add(const Op &) {
    if (!open) {
        pending.clear();
        return false;
    }
    Items items;
    build(items, open->queue);
    const Snapshot before = look(!items.errors.empty() || items.unsure || items.may_be_busy);
    note_tables();
    note_runs(items, false);
    look_at_tree(items);
    const quire_status status = q_->step_add(
        cache_, open->handle, items.items.data(), static_cast<uint32_t>(items.items.size()),
        sizeof(quire_step_item), items.tokens.data(), static_cast<uint32_t>(items.tokens.size()),
        items.results.data(), sizeof(quire_step_result), &error_);
    if (refused(items, status, before)) return true;
    expect(status, {QUIRE_OK}, "quire_step_add");
    note_runs(items, true);
    const size_t first_row = open->rows.size();
    take_results(items, 0);
    judge_partial(items, first_row);
    return true;
}

// Makes a sequence what it was, if it still lives.
void World::put_back(const Sequence &before) {
    Sequence *seq = find(before.id);
    if (seq != nullptr) *seq = before;
}

// Takes the items of these sequences out of the open step.
void World::restore(const std::vector<uint32_t> &ids) {
    for (const uint32_t id : ids) {
        for (size_t i = open->undo.size(); i-- > 0;)
            if (!open->undo[i].preempted && open->undo[i].before.id == id) {
                put_back(open->undo[i].before);
                open->undo.erase(open->undo.begin() + static_cast<ptrdiff_t>(i));
                break;
            }
        std::erase_if(open->rows, [&](const Row &row) { return row.seq == id; });
    }
}

bool World::drop(const Op &op) {
    Sequence *seq = find(op.f[0]);
    if (!open || seq == nullptr) return false;
    const uint32_t capacity = std::min(op.f[1], 16u);
    quire_seq dropped[16] = {};
    uint32_t count = 0;
    const Snapshot before = look(true);
    const quire_status status =
        q_->step_drop(cache_, open->handle, seq->handle, dropped, capacity, &count, &error_);
    if (!seq->has_item) {
        expect(status, {QUIRE_E_ARG, QUIRE_E_STALE, QUIRE_E_BUSY},
               "quire_step_drop without an item");
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK, QUIRE_S_INCOMPLETE, QUIRE_E_BUSY}, "quire_step_drop");
    if (status != QUIRE_OK) {
        if (status == QUIRE_S_INCOMPLETE && count <= capacity)
            fail("drop", "%u fit into %u, and yet the answer is incomplete", count, capacity);
        if (status == QUIRE_E_BUSY && open->preemptions == 0 && open->leases_changed.empty())
            fail("drop", "a drop is busy by a preemption, and there was none");
        unchanged(before, "error-changes");
        return true;
    }
    if (count == 0 || dropped[0] != seq->handle)
        fail("drop", "the sequence named is not the first of the %u dropped", count);
    std::vector<uint32_t> ids;
    size_t own_row = 0;
    while (own_row < open->rows.size() && open->rows[own_row].seq != seq->id) ++own_row;
    for (uint32_t i = 0; i < count; ++i) {
        size_t row = 0;
        while (row < open->rows.size() && find(open->rows[row].seq)->handle != dropped[i]) ++row;
        if (row == open->rows.size() || row < own_row)
            fail("drop", "what was dropped as number %u is no later item", i);
        ids.push_back(open->rows[row].seq);
    }
    ++tally_->dropped_items;
    tally_->dropped_dependents += count - 1;
    restore(ids);
    // Preemptions for the item may have been undone as well: those that are no longer listed.
    quire_preemption list[64] = {};
    uint32_t listed = 0;
    expect(q_->step_preempted(cache_, open->handle, list, 64, sizeof list[0], &listed, &error_),
           {QUIRE_OK}, "quire_step_preempted");
    for (size_t i = open->undo.size(); i-- > 0;) {
        const Undo &undo = open->undo[i];
        if (!undo.preempted) continue;
        bool still = false;
        for (uint32_t k = 0; k < listed; ++k) still |= list[k].seq == undo.before.handle;
        if (still) continue;
        put_back(undo.before);
        open->undo.erase(open->undo.begin() + static_cast<ptrdiff_t>(i));
    }
    open->preemptions = listed;
    open->swaps = 0;
    for (uint32_t k = 0; k < listed; ++k) open->swaps += list[k].how == QUIRE_PREEMPT_SWAP;
    for (auto &one : sequences) compare(*one, "a drop");
    return true;
}

bool World::preempt(const Op &op) {
    Sequence *seq = find(op.f[0]);
    if (!open || seq == nullptr) return false;
    const uint32_t how = op.f[1] % 3;
    uint32_t freed = 0;
    const uint64_t room_before = room();
    const Snapshot before = look(true);
    note_tables();
    const bool must_fit = how == QUIRE_PREEMPT_SWAP && !seq->swapped && !seq->has_item &&
                          swap_must_fit(tables_[seq->id]);
    const quire_status status =
        q_->step_preempt(cache_, open->handle, seq->handle, how, &freed, &error_);
    if (status == QUIRE_OK) {
        if (seq->has_item || seq->drafts != 0)
            fail("preempt", "sequence %u was preempted (in step %d, %u drafts)", seq->id,
                 seq->in_step, seq->drafts);
        changed_since_begin_ = changed_since_begin_ || false;
        take_preemptions();
        // With nothing unfinished the step can use all that became free or findable only.
        if (!on_device() && room_before != 0 && room() - room_before != freed)
            fail("freed-blocks", "a preemption says %u blocks; %llu became usable", freed,
                 static_cast<unsigned long long>(room() - room_before));
        compare(*seq, "preempt");
        return true;
    }
    expect(status, {QUIRE_S_NO_BLOCKS, QUIRE_E_BUSY, QUIRE_E_ARG}, "quire_step_preempt");
    if (status == QUIRE_S_NO_BLOCKS && how == QUIRE_PREEMPT_RECOMPUTE)
        fail("preempt", "a recompute needs no host blocks, and yet they are short");
    if (status == QUIRE_S_NO_BLOCKS && must_fit)
        fail("swap-room", "the swap of sequence %u finds no room; the swapped ones leave it enough",
             seq->id);
    if (status == QUIRE_E_BUSY && !seq->in_step && seq->drafts == 0 &&
        (how == QUIRE_PREEMPT_RECOMPUTE || committed.empty()))
        fail("preempt", "a preemption of sequence %u is busy: %s", seq->id, error_.message);
    unchanged(before, "error-changes");
    return true;
}

bool World::abort() {
    if (!open) return false;
    if (stale_steps_.size() < 16) stale_steps_.push_back(open->handle);
    const quire_status status = q_->step_abort(cache_, open->handle, &error_);
    if (status == QUIRE_E_INTERNAL) fail("abort-internal", "quire_step_abort: %s", error_.message);
    expect(status, {QUIRE_OK}, "quire_step_abort");
    for (size_t i = open->undo.size(); i-- > 0;) put_back(open->undo[i].before);
    put_leases_back(*open);
    if (lone_) lone_->look();
    if (lone_) lone_->aborted();
    open.reset();
    for (auto &seq : sequences) compare(*seq, "abort");
    if (!changed_since_begin_) unchanged(before_begin_, "abort-changes");
    return true;
}

}  // namespace sim
