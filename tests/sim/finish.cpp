// SPDX-License-Identifier: Apache-2.0
//
// finish: the end of a step: what it wrote is settled, or what depends on it is lost.
#include <algorithm>
#include <utility>

#include "world.hpp"

namespace sim {

bool World::finish(const Op &op) {
    size_t at = 0;
    while (at < committed.size() && committed[at].id != op.f[0]) ++at;
    uint32_t outcome = op.f[1] ? QUIRE_STEP_FAILED : QUIRE_STEP_OK;
    if (at == committed.size()) {
        if (!open || open->id != op.f[0]) return false;
        const Snapshot before = look(true);
        expect(q_->step_finish(cache_, open->handle, nullptr, outcome, &error_),
               {QUIRE_E_BUSY, QUIRE_E_ARG, QUIRE_E_STALE}, "quire_step_finish of an open step");
        unchanged(before, "error-changes");
        return true;
    }
    Step &step = committed[at];
    if (step.broken) outcome = QUIRE_STEP_FAILED;
    const bool refused = open && outcome == QUIRE_STEP_FAILED;
    const Snapshot before = look(refused);
    const uint8_t bit = step.actor.bit;
    Failure failure;
    if (outcome == QUIRE_STEP_FAILED && !refused) failure = foresee(bit, true);
    const uint64_t struck = strikes();
    const Snapshot whole = look(fault_armed());
    const quire_status status = q_->step_finish(cache_, step.handle, nullptr, outcome, &error_);
    if (refused) {
        expect(status, {QUIRE_E_BUSY}, "quire_step_finish as failed while a step is open");
        unchanged(before, "error-changes");
        return true;
    }
    // "A failed device takes no signal; nothing changed. Finish the step with FAILED."
    if (status == QUIRE_E_DEVICE_LOST && strikes() != struck && outcome == QUIRE_STEP_OK) {
        ++tally_->finishes_refused;
        unchanged(whole, "error-changes");
        step.broken = true;
        return open ? true : finish(op);
    }
    if (passed_on(status, struck)) {
        unchanged(whole, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_step_finish");
    changed_since_begin_ = true;
    join(host_clock_, step.actor.clock);
    make_stale(step.handle);
    committed.erase(committed.begin() + static_cast<ptrdiff_t>(at));
    settle(bit, outcome == QUIRE_STEP_FAILED);
    take_failure(failure);
    return true;
}

void World::make_stale(quire_step handle) {
    if (stale_steps_.size() < 16)
        stale_steps_.push_back(handle);
    else
        stale_steps_[ops_ % 16] = handle;
}

// What each sequence keeps if the step `bit` fails now, and which blocks are to be zeroed then.
World::Failure World::foresee(uint8_t bit, bool may_ask) {
    Failure failure;
    hold_tokens();
    if (may_ask) hold_published(bit);
    for (auto &seq : sequences) failure.losses.push_back(loss(*seq, bit));
    failure.owed = owed_blocks(bit);
    failure.leaving = foresee_leases(bit);
    return failure;
}

// Nothing depends on the step `bit` any more.
void World::settle(uint8_t bit, bool failed) {
    if (failed) {
        ++forgets_;
        ++tally_->steps_failed;
        memory_.poison(bit);
        fail_kernels(bit);
    } else {
        memory_.settle(bit);
        settle_kernels(bit);
    }
    bits_used_ &= static_cast<uint8_t>(~bit);
    const auto settle = [bit](Sequence &seq) {
        for (uint8_t &depends : seq.depends) depends &= static_cast<uint8_t>(~bit);
        for (uint8_t &depends : seq.made) depends &= static_cast<uint8_t>(~bit);
        for (uint8_t &depends : seq.beside) depends &= static_cast<uint8_t>(~bit);
        seq.last_steps &= static_cast<uint8_t>(~bit);
    };
    for (auto &seq : sequences) settle(*seq);
    if (open)
        for (Undo &undo : open->undo) settle(undo.before);
}

void World::take_failure(const Failure &failure) {
    for (size_t i = 0; i < failure.losses.size(); ++i) take_loss(*sequences[i], failure.losses[i]);
    mark_owed(failure.owed);
    take_failure_of_leases(failure.leaving);
}

// "A slot counts as written only if a sequence or the prefix cache still has a token there when the
// step fails": this is asked when it does, of the tables and of what is published, so it matters
// not by which call a token was given up. Here, the sequences' tokens.
// A token that its window has left is still the sequence's: whether it has it there is open.
void World::hold_tokens() {
    memory_.hold_none();
    std::set<Content> contents;
    for (const auto &seq : sequences) {
        for (uint32_t p = 0; !seq->swapped && p < seq->computed; ++p)
            contents.insert(seq->content(p));
        for (uint32_t g = 0; g < blocks_.size(); ++g) {
            if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
            if (seq->swapped && g >= seq->in_host.size()) continue;
            table_ = seq->swapped ? seq->in_host[g] : table(*seq, g);
            const uint32_t end =
                seq->may_move ? std::max(seq->computed, seq->move_end) : seq->computed;
            for (uint32_t p = 0; p < end && p / config.block_size(g) < table_.size(); ++p) {
                const int32_t id = table_[p / config.block_size(g)];
                const bool maybe = seq->may_move && p >= seq->move_begin;
                if (id != 0)
                    memory_.hold(seq->swapped ? kHost : kDevice, g, id, config.place_of(g, p),
                                 maybe ? Held::maybe : Held::yes);
            }
        }
    }
    for (uint32_t g = 0; g < blocks_.size(); ++g)
        if (config.groups[g].kind == QUIRE_GROUP_WINDOW ||
            config.groups[g].kind == QUIRE_GROUP_CHUNKED || config.recurrent(g))
            memory_.hold_contents(g, contents);
}

// The blocks that the step `bit` leaves as they were, though it was to zero them.
std::vector<World::Owed> World::owed_blocks(uint8_t bit) {
    std::vector<Owed> owed;
    if (zeros_cost() != Zeros::owed) return owed;
    for (uint32_t g = 0; g < config.pool_count(); ++g)
        for (uint32_t at = 1; at < blocks_[g]; ++at) {
            const int32_t id = static_cast<int32_t>(at);
            const uint32_t of = memory_.group_of(kDevice, g, id);
            if (memory_.zeros_owed(kDevice, of, id, bit) == Zeros::owed) owed.push_back({of, id});
        }
    return owed;
}

// "... and the block is zeroed before it is handed out again."
void World::mark_owed(const std::vector<Owed> &owed) {
    for (const Owed &one : owed) memory_.must_zero(one.group, one.id) = 1;
    if (!owed.empty())
        for (const auto &seq : sequences)
            for (uint32_t g = 0; g < blocks_.size() && !seq->swapped; ++g)
                for (const int32_t id : table(*seq, g)) memory_.must_zero(g, id) = 0;
}

void World::check_owed(const Step &step) {
    for (const auto &seq : sequences)
        for (uint32_t g = 0; g < blocks_.size() && !seq->swapped; ++g)
            for (const int32_t id : table(*seq, g)) {
                if (std::exchange(memory_.must_zero(g, id), uint8_t{0}) == 0) continue;
                if (!tolerate("not-zeroed"))
                    fail("not-zeroed",
                         "after step %u sequence %u has block %d of group %u, which a failed step "
                         "was to zero, and no step since",
                         step.id, seq->id, id, g);
            }
}

// Whether a block that a failed step was to zero or to overwrite costs tokens of others. Unsure: an
// item of a second namespace ran only in steps that were aborted, or was dropped or preempted.
Zeros World::zeros_cost() const {
    if ((config.flags & QUIRE_CACHE_ZERO_ON_FREE) != 0 || tenants_ran_.size() > 1)
        return Zeros::owed;
    return tenants_were_run_.size() > 1 ? Zeros::unsure : Zeros::none;
}

// What the model expects of a sequence when the step `bit` fails, from its tables before that.
World::Loss World::loss(Sequence &seq, uint8_t bit) {
    Loss loss;
    follow_blocks(seq);
    while (loss.computed < seq.computed && (seq.depends[loss.computed] & bit) == 0) ++loss.computed;
    const uint32_t end = seq.known() + seq.ahead;
    loss.least = loss.computed;
    const Zeros cost = zeros_cost();
    for (uint32_t p = 0; p < seq.computed && p < seq.beside.size(); ++p)
        if (seq.beside[p] & bit) loss.least = std::min(loss.least, p);
    loss.ahead = loss.least_ahead = end;
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
        table(seq, g);
        if (seq.swapped && g < seq.in_host.size()) table_ = seq.in_host[g];
        const uint32_t held = seq.swapped ? seq.computed : end;  // the rest was given up
        for (uint32_t at = 0; at < table_.size() && at * config.block_size(g) < held; ++at) {
            if (table_[at] == 0) continue;
            const uint32_t begin = at * config.block_size(g);
            const Tier tier = seq.swapped ? kHost : kDevice;
            if (begin < seq.unsure_end && block_depends(tier, g, table_[at]) & bit)
                loss.least = std::min(loss.least, begin);
            if (cost == Zeros::none) continue;
            const Zeros owed = memory_.zeros_owed(tier, g, table_[at], bit);
            if (owed == Zeros::none) continue;
            loss.least = std::min(loss.least, begin);
            loss.least_ahead = std::min(loss.least_ahead, begin);
            if (owed == Zeros::unsure || cost == Zeros::unsure) continue;
            tally_->lost_to_zeros += begin < loss.computed;
            loss.computed = std::min(loss.computed, begin);
            loss.ahead = std::min(loss.ahead, begin);
        }
    }
    // Drafts that were not accepted are forgotten with what is lost.
    if (loss.least < seq.computed) loss.least = std::min(loss.least, seq.known() - seq.drafts);
    loss.ahead = std::max(loss.ahead, seq.known()) - seq.known();
    loss.least_ahead = std::max(loss.least_ahead, seq.known()) - seq.known();
    return loss;
}

// The step failed: `seq` must have lost that, and no more.
void World::take_loss(Sequence &seq, const Loss &loss) {
    const quire_seq_info got = info(seq);
    if (got.computed_tokens > loss.computed)
        fail("failed-less",
             "sequence %u keeps %u computed tokens; from %u on they depend on the failed step",
             seq.id, got.computed_tokens, loss.computed);
    const bool rounded = !config.exact() || seq.may_move || !config.has(Feature::failed_copies);
    if (got.computed_tokens < loss.least && !rounded && !tolerate("failed-more"))
        fail("failed-more",
             "sequence %u keeps %u computed tokens; %u do not depend on the failed step", seq.id,
             got.computed_tokens, loss.least);
    tally_->lost_more += got.computed_tokens < loss.computed;
    if (got.computed_tokens < seq.computed) {
        ++tally_->sequences_lost;
        tally_->tokens_lost += seq.computed - got.computed_tokens;
        seq.computed = got.computed_tokens;
        seq.lost = true;
        if (seq.drafts != 0) seq.cut(seq.known() - seq.drafts);
        seq.drafts = seq.ahead = 0;
        seq.parents.clear();
        seq.ahead_written = false;
    } else if (got.lookahead_tokens != seq.ahead || loss.ahead < seq.ahead) {
        take_lost_lookahead(seq, loss, got);
    }
    if ((got.flags & QUIRE_SEQ_LOST) != 0 && !seq.lost) {
        if (!tolerate("lost-flag"))
            fail("lost-flag", "sequence %u keeps its computed tokens, and says that some are lost",
                 seq.id);
        seq.lost = true;
    }
    if (seq.computed == 0 && (got.flags & QUIRE_SEQ_SWAPPED) == 0) seq.swapped = false;
    compare(seq, "a failed step");
}

// Its tokens stay; of its lookahead that is lost which lies in a block that the step was to zero,
// and what is behind it may be.
void World::take_lost_lookahead(Sequence &seq, const Loss &loss, const quire_seq_info &got) {
    if (got.lookahead_tokens > loss.ahead)
        fail(
            "failed-less",
            "sequence %u keeps a lookahead of %u; after %u it lies in a block that the failed step "
            "was to zero",
            seq.id, got.lookahead_tokens, loss.ahead);
    if (loss.least_ahead == seq.ahead && !tolerate("failed-more-ahead"))
        fail("failed-more-ahead",
             "sequence %u keeps %u of a lookahead of %u that depends on no step", seq.id,
             got.lookahead_tokens, seq.ahead);
    ++tally_->lookahead_lost;
    seq.ahead = got.lookahead_tokens;
    seq.ahead_written &= seq.ahead != 0;
}

}  // namespace sim
