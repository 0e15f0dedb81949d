// SPDX-License-Identifier: Apache-2.0
//
// failures: what a refusal may leave behind, and how an engine gets over it.

#include <algorithm>

#include "world.hpp"

namespace gpupaths {

bool World::is_shaken() const { return library_.strikes() != strikes_settled_; }

// A call failed: allowed only after a device refused something, and with these answers.
bool World::may_fail(quire_status status, const char *what) {
    bool is_listed = status == QUIRE_E_DEVICE_LOST || status == QUIRE_E_DEVICE_MEMORY ||
                     status == QUIRE_E_OS || status == QUIRE_E_HOST_MEMORY ||
                     status == QUIRE_E_BACKEND;  // a driver's answer that has no other name
    if (is_shaken() && is_listed) return true;
    fail(is_shaken() ? "answer" : "works-without-faults", "%s: %d, %s", what, status,
         error_.message);
}

void World::drop_seen(uint64_t from_number) {
    for (Step &step : steps_) {
        if (step.number >= from_number) step.is_dead = true;
    }
}

namespace {

const Row *row_of(const Step &step, uint32_t id) {
    if (std::count(step.rewritten.begin(), step.rewritten.end(), id) != 0) return nullptr;
    for (const Row &row : step.rows) {
        if (row.text == id) return &row;
    }
    return nullptr;
}

}  // namespace

// Takes over what a step left that was finished as failed.
void World::take_failure(const Step &step) {
    for (Text &text : texts_) {
        const Row *row = row_of(step, text.id);
        uint32_t bound = row != nullptr ? std::min(row->first, text.computed) : text.computed;
        bool is_exact = text.touched < step.number && !is_loose_;
        adopt_info(&text, bound, is_exact, "a failed step");
    }
}

// Takes over what a step left that its commit undid. `before` is what the texts were before it.
void World::take_undone(const Step &step, const std::vector<Text> &before) {
    ++tally_->undone;
    drop_seen(step.number);
    for (size_t i = 0; i < texts_.size(); ++i) {
        Text &text = texts_[i];
        const Text &was = before[i];
        uint32_t bound = text.computed;
        if (text.touched == step.number) {
            quire_seq_info got = info(text);
            const Row *row = row_of(step, text.id);
            text.unmoved = was.unmoved;
            if (row == nullptr || got.known_tokens == text.tokens.size()) {
                bound = std::max(row != nullptr ? row->first : text.computed, was.computed);
            } else {
                fail("undone", "text %u knew %zu tokens, its item had %zu more, and it knows %u",
                     text.id, was.tokens.size(), text.tokens.size() - was.tokens.size(),
                     got.known_tokens);
            }
            text.computed = std::max(text.computed, bound);
        }
        bool is_exact = text.touched < step.number && !is_loose_;
        adopt_info(&text, bound, is_exact, "a step that its commit undid");
    }
}

bool World::finish(Step *step) {
    if (!step->is_spoilt) {
        quire_status status =
            q_.step_finish(stage_->cache, step->handle, nullptr, QUIRE_STEP_OK, &error_);
        if (status == QUIRE_OK) {
            step->is_finished = true;
            return true;
        }
        trace("finish: %d %s", status, error_.message);
        may_fail(status, "step_finish");
    }
    finish_failed(step);
    return false;
}

// Finishes a step as failed, and takes over what that leaves.
void World::finish_failed(Step *step) {
    quire_status status =
        q_.step_finish(stage_->cache, step->handle, nullptr, QUIRE_STEP_FAILED, &error_);
    if (status != QUIRE_OK) fail("failed-finish", "step_finish: %d, %s", status, error_.message);
    trace("step %llu failed", static_cast<unsigned long long>(step->number));
    ++tally_->failed;
    step->is_finished = step->is_dead = true;
    drop_seen(step->number);
    take_failure(*step);
}

void World::finish_all() {
    for (Step &step : steps_) {
        if (!step.is_finished) finish(&step);
    }
}

// Lets the library notice what is done.
void World::notice() {
    auto desc = described<quire_step_desc>();
    std::vector<quire_queue *> queues = stage_->queues_of(0);
    desc.queues = queues.data();
    desc.queue_count = static_cast<uint32_t>(queues.size());
    quire_step step = 0;
    quire_status status = q_.step_begin(stage_->cache, &desc, nullptr, 0, sizeof(quire_step_item),
                                        nullptr, 0, nullptr, 0, &step, &error_);
    if (status < 0) {
        may_fail(status, "step_begin without items");
        return;
    }
    status = q_.step_abort(stage_->cache, step, &error_);
    if (status < 0) fail("books-need-no-device", "step_abort: %s", error_.message);
}

// Waits for everything and compares what the steps saw. False if a queue has stopped.
bool World::sync_all() {
    finish_all();
    stage_->open_gates();
    bool is_whole = true;
    for (uint32_t queue = 0; queue < stage_->shape.queues; ++queue) {
        quire_status status = stage_->sync(queue);
        if (status >= 0) continue;
        error_ = stage_->error;
        trace("sync of queue %u: %d %s", queue, status, error_.message);
        may_fail(status, "queue_sync");
        is_whole = false;
    }
    if (!is_whole) return false;  // what the steps read and wrote may still be in use
    if (is_shaken()) drop_seen(0);
    compare_seen();
    return true;
}

// Ends the faults. Afterwards all calls must work and all content be right.
void World::settle() {
    trace("settle");
    finish_all();
    stage_->open_gates();
    // A lost device is to be noticed before it works again.
    for (uint32_t queue = 0; queue < stage_->shape.queues; ++queue) (void)stage_->sync(queue);
    library_.disarm();
    std::vector<bool> stopped;
    for (uint32_t queue = 0; queue < stage_->shape.queues; ++queue) {
        stopped.push_back(stage_->sync(queue) < 0);
        if (!stopped.back() || is_shaken()) continue;
        fail("works-without-faults", "queue_sync: %s", stage_->error.message);
    }
    if (is_shaken()) drop_seen(0);
    tally_->strikes += library_.strikes() - strikes_settled_;
    notice();
    compare_seen();
    for (uint32_t queue = 0; queue < stage_->shape.queues; ++queue) {
        if (stopped[queue] && !stage_->replace(queue)) return rebuild();
    }
    notice();
    for (uint32_t queue = 0; queue < stage_->shape.queues; ++queue) {
        if (stage_->sync(queue) < 0) return rebuild();
    }
    compare_infos("a settling");
    is_loose_ = false;
    ops_to_settle_ = 0;
    strikes_settled_ = library_.strikes();
    stage_->sweep();
    check_books();
    compare_pools("a settling");
}

// The device is lost: the cache keeps its books, and is given up.
void World::rebuild() {
    trace("rebuild");
    ++tally_->lost;
    check_books();
    for (const Text &text : texts_) {
        quire_seq_info got = info(text);
        if (got.known_tokens < text.tokens.size()) {
            fail("lost-device", "text %u knew %zu tokens and knows %u", text.id, text.tokens.size(),
                 got.known_tokens);
        }
        quire_status status = q_.seq_end(stage_->cache, text.seq, 0, &error_);
        if (status < 0) fail("lost-device", "seq_end: %d, %s", status, error_.message);
    }
    check_books();
    texts_.clear();
    steps_.clear();
    stage_->give_up(rng_.percent(50));
    library_.disarm();
    Shape shape = stage_->shape;
    tally_->graphs += stage_->graph_launches;
    tally_->captures += stage_->captures;
    stage_ = std::make_unique<Stage>(library_, shape);
    set_up();
    is_loose_ = false;
    ops_to_settle_ = 0;
    strikes_settled_ = library_.strikes();
}

}  // namespace gpupaths
