// SPDX-License-Identifier: Apache-2.0
//
// steps: one step, from its items to its kernels.

#include <algorithm>

#include "world.hpp"

namespace gpupaths {

struct World::Planned {
    quire_step handle = 0;
    uint32_t queue = 0, slot = 0;
    bool may_preempt = false;
    std::vector<quire_step_item> items;
    std::vector<uint32_t> words;
    std::vector<uint32_t> ids;  // of each item's text
    std::vector<std::vector<quire_token>> drafts;
    std::vector<std::vector<uint32_t>> parents;
    std::vector<quire_step_result> results;
    std::vector<Text> before;  // all texts
    std::vector<Row> rows;
    std::vector<uint32_t> preempted;
    Tables tables;
    uint32_t budget = kMostTokens;
};

namespace {

// Documents have common beginnings, as conversations do.
quire_token token_of(uint32_t document, uint32_t position) {
    if (position < 5 + 6 * document) return position % 11;
    return 100 * (document + 1) + position % 7;
}

}  // namespace

// Finds a slot that no step uses; waits for all of them if there is none.
bool World::take_slot(uint32_t *slot) {
    for (int attempt = 0; attempt < 2; ++attempt) {
        bool used[kSlots] = {};
        for (const Step &step : steps_) used[step.slot] = true;
        for (uint32_t i = 0; i < kSlots; ++i) {
            if (used[i]) continue;
            *slot = i;
            return true;
        }
        if (!sync_all()) settle();
    }
    return false;
}

void World::draft(Planned *planned, Text *text, quire_step_item *item) {
    uint32_t count = rng_.range(1, 5);
    uint32_t own = QUIRE_MASK_ROOT;
    auto next = static_cast<uint32_t>(text->tokens.size()) + item->token_count;
    std::vector<quire_token> drafts;
    std::vector<uint32_t> parents;
    for (uint32_t i = 0; i < count; ++i) {
        bool is_right = rng_.percent(50);
        drafts.push_back(is_right ? token_of(text->document, next) : 9000 + rng_.below(50));
        if (is_right) {
            parents.push_back(own);
            own = i;
            ++next;
        } else {
            parents.push_back(i == 0 || rng_.percent(50) ? QUIRE_MASK_ROOT : rng_.below(i));
        }
    }
    planned->words.insert(planned->words.end(), drafts.begin(), drafts.end());
    item->draft_count = item->mask_rows = count;
    item->mask_kind = QUIRE_MASK_PARENTS;
    item->token_count += count;
    item->mask_offset = static_cast<uint32_t>(planned->words.size());
    planned->words.insert(planned->words.end(), parents.begin(), parents.end());
    planned->drafts.back() = drafts;
    planned->parents.back() = parents;
}

bool World::add_item(Planned *planned, Text *text, bool finishes_all) {
    auto known = static_cast<uint32_t>(text->tokens.size());
    uint32_t more = known == 0 ? rng_.range(3, 22) : rng_.percent(60) ? 1 : rng_.below(9);
    if (known > text->computed && rng_.percent(40)) more = 0;
    if (finishes_all) more = 0;
    more = std::min(more, kMostText - 6 - std::min(known, kMostText - 6));
    if (known + more <= text->computed || planned->budget == 0) return false;
    quire_step_item item{};
    item.seq = text->seq;
    item.token_offset = static_cast<uint32_t>(planned->words.size());
    item.token_count = more;
    for (uint32_t i = 0; i < more; ++i) {
        planned->words.push_back(token_of(text->document, known + i));
    }
    planned->drafts.emplace_back();
    planned->parents.emplace_back();
    uint32_t needed = known + more - text->computed;
    bool drafts = stage_->shape.trees && !finishes_all && needed + 5 <= planned->budget &&
                  !text->swapped && rng_.percent(50);
    if (drafts) {
        draft(planned, text, &item);
        needed += item.draft_count;
    } else {
        item.max_compute = std::min(planned->budget, rng_.percent(30) ? rng_.range(1, 9) : 40u);
        // In the end every sequence gets its turn: the first may have to wait for the others.
        if (finishes_all) item.max_compute = std::min(planned->budget, kMostTokens / kMostRows);
        needed = std::min(needed, item.max_compute);
    }
    if (rng_.percent(10))
        item.max_hit_tokens = rng_.percent(30) ? QUIRE_NO_HITS : rng_.range(1, 20);
    planned->budget -= std::min(planned->budget, item.max_compute != 0 ? item.max_compute : needed);
    planned->items.push_back(item);
    planned->ids.push_back(text->id);
    return true;
}

// False if no step is open now.
bool World::begin(Planned *planned) {
    auto desc = described<quire_step_desc>();
    std::vector<quire_queue *> queues = stage_->queues_of(planned->queue);
    desc.queues = queues.data();
    desc.queue_count = static_cast<uint32_t>(queues.size());
    desc.preempt = rng_.below(3);
    if (planned->may_preempt) desc.flags = QUIRE_STEP_MAY_PREEMPT;
    planned->results.assign(planned->items.size(), {});
    quire_status status = q_.step_begin(
        stage_->cache, &desc, planned->items.data(), static_cast<uint32_t>(planned->items.size()),
        sizeof(quire_step_item), planned->words.data(),
        static_cast<uint32_t>(planned->words.size()), planned->results.data(),
        sizeof(quire_step_result), &planned->handle, &error_);
    if (status == QUIRE_OK) return true;
    trace("begin on queue %u: %d %s", planned->queue, status, error_.message);
    if (status != QUIRE_E_BUSY) {
        may_fail(status, "step_begin");
        return false;
    }
    ++tally_->busy;
    return false;
}

bool World::preempt_one(Planned *planned) {
    std::vector<const Text *> others;
    for (const Text &text : texts_) {
        bool in_step = std::count(planned->ids.begin(), planned->ids.end(), text.id) != 0;
        if (!in_step && !text.swapped && text.computed != 0) others.push_back(&text);
    }
    if (others.empty()) return false;
    const Text &victim = *others[rng_.below(static_cast<uint32_t>(others.size()))];
    uint32_t how = rng_.below(3), freed = 0;
    quire_status status =
        q_.step_preempt(stage_->cache, planned->handle, victim.seq, how, &freed, &error_);
    trace("preempt %u by %u: %d", victim.id, how, status);
    if (status == QUIRE_E_BUSY || status >= 0) return true;
    may_fail(status, "step_preempt");
    return true;
}

void World::take_preempted(Planned *planned) {
    quire_preemption listed[32];
    uint32_t count = 0;
    quire_status status = q_.step_preempted(stage_->cache, planned->handle, listed, 32,
                                            sizeof listed[0], &count, &error_);
    if (status != QUIRE_OK) fail("books-need-no-device", "step_preempted: %s", error_.message);
    for (uint32_t i = 0; i < count; ++i) {
        for (Text &text : texts_) {
            if (text.seq != listed[i].seq) continue;
            bool is_swap = listed[i].how == QUIRE_PREEMPT_SWAP;
            (is_swap ? tally_->swaps : tally_->recomputes) += 1;
            uint32_t bound = is_swap ? text.computed : 0;
            if (text.unmoved != UINT32_MAX) bound = std::min(bound, text.unmoved);
            trace("  %u is preempted, %s", text.id, is_swap ? "swapped" : "to be computed again");
            adopt_info(&text, bound, false, "a preemption");
            text.unmoved = UINT32_MAX;
            planned->preempted.push_back(text.id);
        }
    }
}

// Brings the account of one item up to date.
void World::take_result(Planned *planned, size_t index) {
    const quire_step_result &result = planned->results[index];
    const quire_step_item &item = planned->items[index];
    Text &text = *find(planned->ids[index]);
    if (result.outcome != QUIRE_ITEM_RUN) return;
    for (uint32_t i = 0; i < item.token_count - item.draft_count; ++i) {
        quire_token token = planned->words[item.token_offset + i];
        Cell cell = text.last().followed_by(token);
        text.tokens.push_back(token);
        text.cells.push_back(cell);
    }
    Cell root = text.last();
    auto base = static_cast<uint32_t>(text.tokens.size());
    text.drafts = planned->drafts[index];
    text.parents = planned->parents[index];
    for (uint32_t i = 0; i < text.drafts.size(); ++i) {
        uint32_t parent = text.parents[i];
        const Cell &before = parent == QUIRE_MASK_ROOT ? root : text.cells[base + parent];
        text.cells.push_back(before.followed_by(text.drafts[i]));
    }
    auto known = static_cast<uint32_t>(text.cells.size());
    uint32_t first = result.first_position, count = result.compute_count;
    trace("  %u runs: %u found, computes %u from %u of %u", text.id, result.hit_tokens, count,
          first, known);
    bool may_be_less = text.swapped || stage_->shape.groups.size() > 1 || is_loose_;
    bool is_right = result.hit_tokens != 0
                        ? first == result.hit_tokens && (text.computed == 0 || is_loose_)
                    : may_be_less ? first <= text.computed
                                  : first == text.computed;
    if (!is_right || count == 0 || first + count > known) {
        fail("result", "text %u of %u computed and %u known tokens: %u found, %u from %u", text.id,
             text.computed, known, result.hit_tokens, count, first);
    }
    if (item.max_compute == 0 && first + count != known) {
        fail("result", "text %u: not all of %u tokens are computed", text.id, known);
    }
    tally_->hits += result.hit_tokens;
    text.computed = first + count;
    text.swapped = false;
    text.unmoved = UINT32_MAX;
    Row row;
    row.text = text.id;
    row.first = first;
    row.cells.assign(text.cells.begin(), text.cells.begin() + text.computed);
    planned->rows.push_back(std::move(row));
}

void World::abort(Planned *planned) {
    quire_status status = q_.step_abort(stage_->cache, planned->handle, &error_);
    if (status != QUIRE_OK) fail("books-need-no-device", "step_abort: %s", error_.message);
    ++tally_->aborted;
    texts_ = planned->before;
}

bool World::commit(Planned *planned) {
    uint64_t struck = library_.strikes();
    quire_status status =
        q_.step_commit(stage_->cache, planned->handle, stage_->batches[planned->queue], &error_);
    if (status == QUIRE_OK) return true;
    trace("commit: %d %s", status, error_.message);
    bool is_stopped = is_shaken() || library_.strikes() != struck;
    if (status == QUIRE_E_DEVICE_LOST && is_stopped) {
        Step step = number(planned);
        step.rows = std::move(planned->rows);
        take_undone(step, planned->before);
        return false;
    }
    if (status == QUIRE_E_BUSY || (status == QUIRE_E_LIMIT && is_loose_)) {
        ++tally_->busy;
    } else {
        may_fail(status, "step_commit");
    }
    abort(planned);
    return false;
}

void World::read_tables(Planned *planned) {
    for (const Row &row : planned->rows) {
        const Text &text = *find(row.text);
        std::vector<std::vector<int32_t>> tables;
        auto places = static_cast<uint32_t>(row.cells.size());
        uint32_t wanted = (places + stage_->shape.block_tokens - 1) / stage_->shape.block_tokens;
        for (uint32_t g = 0; g < stage_->shape.groups.size(); ++g) {
            std::vector<int32_t> ids(wanted);
            uint32_t count = 0;
            quire_status status = q_.step_blocks(stage_->cache, 0, text.seq, g, 0, ids.data(),
                                                 wanted, &count, &error_);
            if (status < 0 || count < wanted) {
                fail("table", "text %u, group %u: %u entries of %u, %s", text.id, g, count, wanted,
                     status < 0 ? error_.message : "");
            }
            tables.push_back(std::move(ids));
        }
        planned->tables.push_back(std::move(tables));
    }
}

// The step of a commit, whose sequences depend on it from now on.
Step World::number(Planned *planned) {
    Step step;
    step.handle = planned->handle;
    step.number = ++commits_;
    step.queue = planned->queue;
    step.slot = planned->slot;
    for (Text &text : texts_) {
        bool ran = std::any_of(planned->rows.begin(), planned->rows.end(),
                               [&](const Row &row) { return row.text == text.id; });
        bool given = std::count(planned->preempted.begin(), planned->preempted.end(), text.id) != 0;
        if (ran || given) text.touched = step.number;
        if (!given) continue;
        for (Step &earlier : steps_) earlier.rewritten.push_back(text.id);
    }
    return step;
}

void World::run(Planned *planned) {
    Step step = number(planned);
    read_tables(planned);
    step.is_spoilt = stage_->shape.faults && rng_.percent(8);
    bool is_whole =
        stage_->enqueue(step.queue, step.slot, planned->rows, planned->tables, step.is_spoilt);
    if (!is_whole) {
        error_ = stage_->error;
        trace("kernels: %s", error_.message);
        if (!is_shaken()) fail("works-without-faults", "kernels: %s", error_.message);
    }
    step.is_dead = !is_whole || step.is_spoilt;
    step.is_spoilt = step.is_dead;
    ++tally_->steps;
    tally_->rows += planned->rows.size();
    step.rows = std::move(planned->rows);
    step.tables = std::move(planned->tables);
    steps_.push_back(std::move(step));
}

void World::step(bool finishes_all) {
    if (rng_.percent(75)) finish_all();
    accept_drafts();
    Planned planned;
    planned.queue = finishes_all ? 0 : rng_.below(stage_->shape.queues);
    planned.may_preempt = finishes_all || rng_.percent(60);
    if (!take_slot(&planned.slot)) return;
    // A settling may have emptied the world.
    for (Text &text : texts_) {
        bool is_elsewhere = std::any_of(steps_.begin(), steps_.end(), [&](const Step &step) {
            return !step.is_finished && text.touched == step.number && step.queue != planned.queue;
        });
        if (is_elsewhere || planned.items.size() == kMostRows) continue;
        if (!finishes_all && rng_.percent(35)) continue;
        add_item(&planned, &text, finishes_all);
    }
    planned.before = texts_;
    trace("step on queue %u, %zu items", planned.queue, planned.items.size());
    if (!begin(&planned)) {
        if (!sync_all()) settle();
        return;
    }
    if (rng_.percent(20) && !finishes_all) preempt_one(&planned);
    take_preempted(&planned);
    for (size_t i = 0; i < planned.items.size(); ++i) take_result(&planned, i);
    if (!finishes_all && rng_.percent(6)) return abort(&planned);
    if (!commit(&planned)) return;
    run(&planned);
    if (finishes_all || rng_.percent(80)) finish_all();
}

}  // namespace gpupaths
