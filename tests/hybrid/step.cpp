// SPDX-License-Identifier: Apache-2.0
//
// step: one step, from its begin to its commit or abort.
#include <algorithm>

#include "open_step.hpp"

namespace hybrid {
namespace {

// A begin that must be refused.
void begin_refused(World &world, const quire_step_desc &desc, const char *check) {
    uint64_t handle = 0;
    const int32_t status = world.api->step_begin(world.cache, &desc, nullptr, 0, 0, nullptr, 0,
                                                 nullptr, 0, &handle, world.message());
    if (status != QUIRE_E_BUSY) fail(check, "step_begin answered ", status);
}

}  // namespace

OpenStep::OpenStep(World &world) : world_(world) {
    Rng &rng = world_.rng;
    step_.id = ++world_.step_count;
    step_.queue = rng.below(world_.config.queues);
    desc_.queue_tag = step_.queue;
    desc_.flags = rng.chance(.6) ? QUIRE_STEP_MAY_PREEMPT : 0;
    desc_.preempt = rng.below(3);
    sequences_before_ = world_.sequences;
    leases_before_ = world_.leases;
    compare_abort_ = rng.chance(.35);
    if (compare_abort_) before_ = world_.snapshot(false);
    for (uint32_t i = 0; i < world_.sequences.size(); ++i)
        if (world_.sequences[i].alive && world_.sequences[i].drafts == 0) candidates_.push_back(i);
    if (rng.chance(.3))
        for (size_t i = candidates_.size(); i > 1; --i)
            std::swap(candidates_[i - 1], candidates_[rng.below(i)]);
}

bool OpenStep::has_row(uint64_t handle) const {
    return std::any_of(step_.rows.begin(), step_.rows.end(),
                       [handle](const Row &row) { return row.handle == handle; });
}

void OpenStep::play() {
    Rng &rng = world_.rng;
    const uint32_t calls = rng.range(1, 3);
    for (uint32_t i = 0; i < calls; ++i) {
        ItemCall call;
        draw_items(&call);
        if (!open_ || !call.items.empty()) {
            if (!send(&call)) {
                if (!open_) return;
                continue;
            }
            for (size_t k = 0; k < call.items.size(); ++k) check_result(call, k);
        }
        between();
    }
    if (!open_) return;
    check_preempted();
    if (rng.chance(.15) && abort()) return;
    commit();
    for (const Row &row : step_.rows) world_.publish(world_.sequences[row.sequence]);
    for (Lease &lease : world_.leases)
        for (auto &[key, own] : lease.blocks) {
            own.published_in = 0;
            if (own.filled_in == step_.id) own.filled_on = step_.queue;
        }
    world_.steps.push_back(step_);
    if (rng.chance(.5)) world_.execute(world_.steps.back());
    if (rng.chance(.7)) {
        const size_t newest = world_.steps.size() - 1;
        // Two draws that choose nothing: without them every seed would have another schedule.
        if (!rng.chance(.8)) {
            rng.below(newest + 1);
            rng.below(newest + 1);
        }
        world_.finish(newest);
    }
    world_.forget_ended();
}

// Calls between those that give items.
void OpenStep::between() {
    Rng &rng = world_.rng;
    while (rng.chance(.45)) world_.use_lease(step_);
    if (!world_.config.calm && rng.chance(.1)) preempt();
    if (rng.chance(.12) && !step_.rows.empty()) drop();
    if (rng.chance(.1)) begin_refused(world_, desc_, "two_open");
    if (rng.chance(.1)) world_.check_books("in an open step");
}

void OpenStep::preempt() {
    const int index = world_.pick_sequence();
    if (index < 0) return;
    Sequence &sequence = world_.sequences[index];
    const bool has_item = has_row(sequence.handle);
    const uint32_t how = world_.rng.below(3);
    uint32_t freed = 777;
    const auto before = world_.snapshot();
    const int32_t status = world_.api->step_preempt(world_.cache, step_.handle, sequence.handle,
                                                    how, &freed, world_.message());
    world_.trace("  step_preempt ", hex(sequence.handle), " how ", how, " -> ", status, " freed ",
                 freed);
    if (status == 0) {
        if (has_item) fail("preempt_in", "a sequence with an item was preempted");
        world_.count("manual preempt");
        sequence.lookahead.clear();
        sequence.lookahead_kept = false;
        return;
    }
    const std::string why = world_.refusal(status);
    world_.unchanged(before, "refused_changed", "preempt");
    world_.count(join("preempt ", status));
    if (status < 0 && !has_item && sequence.drafts == 0 && status != QUIRE_E_BUSY)
        world_.count(join("preempt refused: ", why));
}

void OpenStep::drop() {
    const uint64_t handle = step_.rows[world_.rng.below(step_.rows.size())].handle;
    const uint32_t space = world_.rng.chance(.2) ? 0 : 64;
    uint64_t dropped[64] = {};
    uint32_t size = 0;
    const auto before = world_.snapshot();
    const int32_t status = world_.api->step_drop(world_.cache, step_.handle, handle, dropped, space,
                                                 &size, world_.message());
    world_.trace("  step_drop ", hex(handle), " -> ", status, " dropped ", size);
    if (status != 0) {
        const std::string why = world_.refusal(status);
        world_.unchanged(before, "refused_changed", "drop");
        world_.count(join("drop ", status));
        if (status < 0 && status != QUIRE_E_BUSY) fail("drop", status, " ", why);
        return;
    }
    world_.count("drop");
    if (size == 0 || dropped[0] != handle)
        fail("drop_list", "the first of the dropped is not the named one");
    for (uint32_t i = 0; i < size; ++i) {
        const auto row = std::find_if(step_.rows.begin(), step_.rows.end(),
                                      [&](const Row &r) { return r.handle == dropped[i]; });
        if (row == step_.rows.end()) fail("drop_unknown", "dropped a sequence without an item");
        Sequence &sequence = world_.sequences[row->sequence];
        sequence = row->before;
        const auto now = world_.info(dropped[i]);
        if (now.known_tokens != sequence.tokens.size())
            fail("drop_known", "known ", now.known_tokens, ", before ", sequence.tokens.size());
        step_.rows.erase(row);
    }
}

void OpenStep::check_preempted() {
    quire_preemption preempted[64];
    uint32_t size = 0;
    world_.require_ok("preempted",
                      world_.api->step_preempted(world_.cache, step_.handle, preempted, 64,
                                                 sizeof preempted[0], &size, world_.message()));
    for (uint32_t i = 0; i < size; ++i) check_preempted_one(preempted[i]);
    if (size != 0) world_.published_exactly = false;
}

void OpenStep::check_preempted_one(const quire_preemption &preemption) {
    world_.trace("  preempted ", hex(preemption.seq), " how ", preemption.how, " by ",
                 preemption.chosen_by, " for ", hex(preemption.for_seq));
    world_.count(join("preemption how ", preemption.how, " by ", preemption.chosen_by));
    const auto find = [this](uint64_t handle) {
        return std::find_if(world_.sequences.begin(), world_.sequences.end(),
                            [handle](const Sequence &s) { return s.handle == handle; });
    };
    const auto victim = find(preemption.seq);
    if (victim == world_.sequences.end()) return;
    if (!has_row(victim->handle)) {
        victim->lookahead.clear();
        victim->lookahead_kept = false;
        victim->last_step = step_.id;
        victim->last_queue = step_.queue;
        if (victim->drafts != 0) fail("preempt_drafts", "a sequence with drafts was preempted");
    }
    if (preemption.chosen_by != 1) return;
    const auto winner = find(preemption.for_seq);
    if (winner == world_.sequences.end()) fail("for_seq", "unknown");
    if (winner->admitted != 0 && victim->admitted != 0 && victim->admitted <= winner->admitted &&
        victim->priority >= winner->priority)
        fail("victim_order", "the victim was admitted before (", victim->admitted, ", ",
             winner->admitted, ") and has no lower priority (", victim->priority, ", ",
             winner->priority, ")");
}

bool OpenStep::abort() {
    const int32_t status = world_.api->step_abort(world_.cache, step_.handle, world_.message());
    world_.trace("step_abort -> ", status);
    world_.require_ok("abort", status);
    world_.open_step = 0;
    world_.sequences = sequences_before_;
    world_.leases = leases_before_;
    if (compare_abort_) world_.unchanged(before_, "abort_changed", "abort", false);
    world_.count("abort");
    world_.check_books("after an abort");
    world_.check_contents("after an abort");
    return true;
}

void OpenStep::commit() {
    Rng &rng = world_.rng;
    step_.will_fail = !world_.config.calm && rng.chance(.08);
    if (step_.will_fail) step_.damage = static_cast<Damage>(rng.below(3));
    const int32_t status =
        world_.api->step_commit(world_.cache, step_.handle, nullptr, world_.message());
    world_.trace("step_commit ", step_.id, " -> ", status);
    world_.require_ok("commit", status);
    world_.open_step = 0;
    step_.committed_at = ++world_.clock;
    if (step_.will_fail) step_.mark = world_.new_mark();
    step_.copies.resize(3000);
    uint32_t count = 0;
    world_.require_ok("copies",
                      world_.api->step_copies(world_.cache, step_.handle, step_.copies.data(), 3000,
                                              sizeof step_.copies[0], &count, world_.message()));
    step_.copies.resize(count);
    for (const auto &copy : step_.copies)
        world_.trace("  copy kind ", copy.kind, " group ", copy.group, " ", copy.src, " -> ",
                     copy.dst);
    read_rows();
    if (world_.follower != nullptr) apply_log();
}

void OpenStep::read_rows() {
    for (Row &row : step_.rows) {
        const uint32_t computed = row.first + row.count;
        const auto now = world_.info(row.handle);
        if (now.computed_tokens != computed)
            fail("commit_computed", "computed ", now.computed_tokens, ", expected ", computed);
        Sequence &sequence = world_.sequences[row.sequence];
        if (sequence.admitted == 0) sequence.admitted = world_.next_admitted++;
        bool kept = world_.config.snapshots;
        for (uint32_t g = 0; g < world_.config.group_count(); ++g) {
            row.tables.push_back(world_.table(world_.cache, 0, row.handle, g));
            const uint32_t interval = world_.config.groups[g].interval;
            kept &= interval == 0 || computed % interval == 0;
            std::string line = join("  table ", hex(row.handle), " group ", g, ":");
            for (const int32_t b : row.tables[g]) line += world_.play.trace ? join(" ", b) : "";
            world_.trace(line);
        }
        if (kept) sequence.snapshots.insert(computed);
        if (world_.play.plant == Plant::table && world_.row_count % 10 == 0) plant_table(&row);
    }
}

void OpenStep::plant_table(Row *row) {
    for (auto &table : row->tables) {
        const auto first = std::find_if(table.begin(), table.end(), [](int32_t b) { return b; });
        const auto second = std::find_if(first == table.end() ? first : first + 1, table.end(),
                                         [](int32_t b) { return b; });
        if (second != table.end()) std::swap(*first, *second);
    }
}

void World::play_step() {
    if (unfinished() >= QUIRE_UNFINISHED_STEPS) {
        if (rng.chance(.3)) {
            const auto before = snapshot();
            begin_refused(*this, made<quire_step_desc>(), "nine_steps");
            unchanged(before, "refused_changed", "step_begin");
        }
        finish_some(false);
        if (unfinished() >= QUIRE_UNFINISHED_STEPS) return;
    }
    for (Sequence &sequence : sequences) {
        if (!sequence.alive) continue;
        const bool has_drafts = sequence.drafts != 0;
        if (!has_drafts && !(sequence.lookahead_kept && rng.chance(.5))) continue;
        if (has_drafts && rng.chance(.03)) continue;  // so that it gets no item
        accept_drafts(sequence);
    }
    OpenStep(*this).play();
}

}  // namespace hybrid
