// SPDX-License-Identifier: Apache-2.0
//
// finish: the end of a step: what it wrote is settled, or what depends on it is lost.
#include <algorithm>

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
    const bool unsure = open && outcome == QUIRE_STEP_FAILED;
    const Snapshot before = look(unsure);
    const quire_status status = q_->step_finish(cache_, step.handle, nullptr, outcome, &error_);
    if (unsure && status == QUIRE_E_BUSY) {
        ++tally_->busy_answers;
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_step_finish");
    changed_since_begin_ = true;
    const uint8_t bit = step.actor.bit;
    join(host_clock_, step.actor.clock);
    if (stale_steps_.size() < 16)
        stale_steps_.push_back(step.handle);
    else
        stale_steps_[ops_ % 16] = step.handle;
    if (outcome == QUIRE_STEP_FAILED) {
        ++tally_->steps_failed;
        for (auto &seq : sequences) fail_sequence(*seq, bit);
        if (open)
            for (Undo &undo : open->undo) fail_sequence(undo.before, bit);
        memory_.poison(bit);
        fail_kernels(bit);
    } else {
        memory_.settle(bit);
        settle_kernels(bit);
    }
    bits_used_ &= static_cast<uint8_t>(~bit);
    committed.erase(committed.begin() + static_cast<ptrdiff_t>(at));
    const auto settle = [bit](Sequence &seq) {
        for (uint8_t &depends : seq.depends) depends &= static_cast<uint8_t>(~bit);
        seq.last_steps &= static_cast<uint8_t>(~bit);
    };
    for (auto &seq : sequences) settle(*seq);
    if (open)
        for (Undo &undo : open->undo) settle(undo.before);
    if (outcome == QUIRE_STEP_FAILED) after_failure(bit);
    return true;
}

// What the model expects of a sequence whose tokens depend on the failed step.
void World::fail_sequence(Sequence &seq, uint8_t bit) {
    uint32_t place = 0;
    while (place < seq.computed && (seq.depends[place] & bit) == 0) ++place;
    if (place == seq.computed) return;
    ++tally_->sequences_lost;
    tally_->tokens_lost += seq.computed - place;
    seq.computed = place;
    seq.lost = true;
    if (seq.drafts != 0) seq.cut(seq.known() - seq.drafts);
    seq.drafts = seq.ahead = 0;
    seq.parents.clear();
    seq.ahead_written = false;
}

void World::after_failure(uint8_t) {
    for (auto &seq : sequences) {
        const quire_seq_info got = info(*seq);
        if (got.computed_tokens > seq->computed) {
            fail("failed-less",
                 "sequence %u keeps %u computed tokens; from %u on they depend on the failed step",
                 seq->id, got.computed_tokens, seq->computed);
        }
        if (got.computed_tokens < seq->computed) {
            ++tally_->lost_more;
            // What is lost may be rounded to whole blocks.
            const uint32_t whole = seq->computed / config.block_tokens * config.block_tokens;
            if (got.computed_tokens < whole && config.exact() &&
                config.has(Feature::failed_copies) && !seq->may_move && !tolerate("failed-more"))
                fail("failed-more",
                     "sequence %u keeps %u computed tokens; %u do not depend on the failed step",
                     seq->id, got.computed_tokens, seq->computed);
            seq->computed = got.computed_tokens;
            if (seq->drafts != 0 && got.draft_tokens == 0) {
                seq->cut(seq->known() - seq->drafts);
                seq->drafts = 0;
                seq->parents.clear();
            }
            seq->lost |= (got.flags & QUIRE_SEQ_LOST) != 0;
        }
        if (seq->ahead != got.lookahead_tokens && got.lookahead_tokens == 0) {
            seq->ahead = 0;
            seq->ahead_written = false;
        }
        if (seq->computed == 0 && (got.flags & QUIRE_SEQ_SWAPPED) == 0) seq->swapped = false;
        compare(*seq, "a failed step");
    }
}

}  // namespace sim
