// SPDX-License-Identifier: Apache-2.0

#include "scheduler.hpp"

#include "failure.hpp"
#include "tokenizer.hpp"

#include <algorithm>
#include <string>

namespace engine {
namespace {

size_t blocks_for(size_t token_count, size_t block_tokens) {
    return (token_count + block_tokens - 1) / block_tokens;
}

}  // namespace

Scheduler::Scheduler(std::span<const Request> requests, Cache &cache, Forward &forward,
                     const SchedulerOptions &options, Comparison *comparison)
    : requests_(requests),
      cache_(cache),
      forward_(forward),
      options_(options),
      comparison_(comparison) {
    require_room();
}

// A text that has the whole pool to itself must fit, or preemption could never help it.
void Scheduler::require_room() const {
    for (const Request &request : requests_) {
        // The last generated token is never computed, so it needs no slot.
        const size_t tokens = request.prompt.size() + request.generate_limit - 1;
        const size_t needed = blocks_for(tokens, options_.block_tokens) + 1;
        if (needed > options_.pool_blocks) {
            throw Failure("request " + std::to_string(request.id) + " grows to " +
                          std::to_string(tokens) + " tokens and needs a pool of " +
                          std::to_string(needed) +
                          " blocks (including the null block), but "
                          "the pool has " +
                          std::to_string(options_.pool_blocks) +
                          ". Give a larger --pool-blocks or fewer --steps.");
        }
    }
}

bool Scheduler::step() {
    arrive();
    if (running_.empty() && waiting_.empty() && next_request_ == requests_.size()) {
        return false;
    }
    Plan plan;
    plan.chunk_left = options_.chunk_tokens;
    is_loading_ = false;
    forward_.drop_log_if_asked();
    for (Text *text : running_) {
        append_item(plan, *text);
    }
    Step step(cache_, options_.preempt, plan.items, plan.tokens);
    for (size_t i = 0; i < plan.texts.size(); ++i) {
        take_result(plan, *plan.texts[i], step.results()[i]);
    }
    const bool preempted = demote_preempted(plan, step);
    if (!preempted) {
        admit(plan, step);
    }
    ++totals_.steps;
    if (plan.rows.empty() && !preempted) {
        if (is_loading_ && forward_.leads()) {
            wait_for_load_of_ranks(step);
        } else if (is_loading_) {
            cache_.wait_for_load();
        } else {
            wait_for_arrivals();
        }
        return true;  // the empty step undoes itself
    }
    step.commit();
    observe(plan);
    const std::vector<ForwardRow> rows = forward_rows(plan);
    forward_.announce(step, rows);
    const std::span<const float> logits =
        rows.empty() ? std::span<const float>{} : forward_.run(rows);
    step.finish();
    if (is_loading_) {
        forward_.take_reports(false);
    }
    sample(plan, logits);
    return true;
}

// The other ranks learn from the step's log what to load.
void Scheduler::wait_for_load_of_ranks(Step &step) {
    step.commit();
    forward_.announce(step, {});
    step.finish();
    forward_.take_reports(true);
    cache_.wait_for_load();
}

void Scheduler::arrive() {
    while (next_request_ < requests_.size() &&
           requests_[next_request_].arrival_step <= totals_.steps) {
        const Request &request = requests_[next_request_++];
        arrived_.push_back(Clock::now());
        texts_.push_back(std::make_unique<Text>());
        texts_.back()->request = &request;
        texts_.back()->tokens = request.prompt;
        waiting_.push_back(texts_.back().get());
        if (options_.restored != 0) {
            Text &text = *texts_.back();
            text.seq = options_.restored;
            text.known = text.computed = text.tokens.size() - 1;
        }
    }
}

// False if the text must compute more than one token and this step's chunk is used up.
bool Scheduler::append_item(Plan &plan, Text &text) const {
    size_t compute = 1;
    if (text.remaining() > 1) {
        compute = std::min(text.remaining(), plan.chunk_left);
        if (compute == 0) {
            return false;
        }
        plan.chunk_left -= compute;
    }
    quire_step_item item{};
    item.seq = text.seq;
    item.token_offset = static_cast<uint32_t>(plan.tokens.size());
    item.token_count = static_cast<uint32_t>(text.tokens.size() - text.known);
    item.max_compute = static_cast<uint32_t>(compute);
    item.flags = options_.may_load ? uint32_t{QUIRE_ITEM_MAY_LOAD} : 0;
    plan.tokens.insert(plan.tokens.end(),
                       text.tokens.begin() + static_cast<std::ptrdiff_t>(text.known),
                       text.tokens.end());
    plan.items.push_back(item);
    plan.texts.push_back(&text);
    return true;
}

void Scheduler::take_result(Plan &plan, Text &text, const quire_step_result &result) {
    if (result.outcome != QUIRE_ITEM_RUN) {
        blocks_short_ = result.blocks_short;
        is_loading_ |= result.outcome == QUIRE_ITEM_LOADING;
        return;
    }
    if (text.computed > result.first_position) {
        totals_.repeated_tokens += text.computed - result.first_position;
    }
    text.known = text.tokens.size();
    text.computed = size_t{result.first_position} + result.compute_count;
    plan.rows.resize(std::max(plan.rows.size(), size_t{result.row} + 1));
    plan.rows[result.row] = {&text, result.first_position, result.compute_count};
}

// Texts that lost their blocks wait at the front of the queue, in order of admission.
bool Scheduler::demote_preempted(const Plan &plan, const Step &step) {
    bool demoted = false;
    for (const quire_preemption &preemption : step.preempted()) {
        const auto is_victim = [&](const Text *text) { return text->seq == preemption.seq; };
        const bool back_already =
            std::ranges::any_of(plan.rows, [&](const Row &row) { return is_victim(row.text); });
        if (back_already) {
            continue;
        }
        demoted = true;
        if (const auto found = std::ranges::find_if(running_, is_victim); found != running_.end()) {
            waiting_.push_front(*found);
            running_.erase(found);
        }
        if (const auto found = std::ranges::find_if(waiting_, is_victim);
            found != waiting_.end() && preemption.how == QUIRE_PREEMPT_RECOMPUTE) {
            (*found)->computed = 0;
        }
    }
    return demoted;
}

void Scheduler::admit(Plan &plan, Step &step) {
    while (!waiting_.empty() && plan.rows.size() < options_.max_rows) {
        Text &text = *waiting_.front();
        if (text.seq == 0) {
            text.seq = cache_.create_sequence();
        }
        plan.items.clear();
        plan.tokens.clear();
        const size_t chunk_before = plan.chunk_left;
        if (!append_item(plan, text)) {
            return;
        }
        const size_t row_count = plan.rows.size();
        take_result(plan, text, step.add(plan.items.front(), plan.tokens));
        if (plan.rows.size() == row_count) {
            return;
        }
        if (text.computed > 0 && plan.items.front().max_compute > 1) {
            // Tokens found in the prefix tree are not computed: the rest of the chunk stays free.
            plan.chunk_left = chunk_before - plan.rows.back().compute_count;
        }
        waiting_.pop_front();
        start_running(text);
        if (demote_preempted(plan, step)) {
            return;
        }
    }
}

void Scheduler::start_running(Text &text) {
    if (text.admission == 0) {
        text.admission = ++admissions_;
    }
    const auto behind = std::ranges::upper_bound(running_, text.admission, {}, &Text::admission);
    running_.insert(behind, &text);
}

// Called after an empty step: if no text runs or waits, the next request has not arrived yet;
// otherwise no text can ever go on.
void Scheduler::wait_for_arrivals() const {
    if (running_.empty() && waiting_.empty()) {
        return;
    }
    throw Failure("no text can continue: the next one needs " + std::to_string(blocks_short_) +
                  " more blocks in a pool of " + std::to_string(options_.pool_blocks) +
                  ", and no text can be preempted for it. Give a larger --pool-blocks, or more "
                  "--host-bytes when swapping.");
}

void Scheduler::observe(const Plan &plan) {
    totals_.peak_running = std::max(totals_.peak_running, plan.rows.size());
    totals_.peak_held_blocks =
        std::max(totals_.peak_held_blocks, static_cast<size_t>(cache_.stats().blocks_held));
    const size_t reserved = blocks_for(options_.max_text_tokens, options_.block_tokens);
    totals_.peak_contiguous_blocks =
        std::max(totals_.peak_contiguous_blocks, plan.rows.size() * reserved);
    for (const Row &row : plan.rows) {
        const quire_seq_info info = cache_.sequence_info(row.text->seq);
        const size_t slots = size_t{info.blocks_held} * options_.block_tokens;
        const size_t wasted = slots - std::min(slots, size_t{info.computed_tokens});
        totals_.table_slots += slots;
        totals_.wasted_slots += wasted;
        totals_.worst_wasted_slots = std::max(totals_.worst_wasted_slots, wasted);
        totals_.computed_tokens += row.compute_count;
    }
}

std::vector<ForwardRow> Scheduler::forward_rows(const Plan &plan) const {
    std::vector<ForwardRow> rows;
    for (const Row &row : plan.rows) {
        const std::span<const uint32_t> tokens(row.text->tokens);
        rows.push_back({.tokens = tokens.subspan(row.first_position, row.compute_count),
                        .first_position = row.first_position,
                        .wants_logits = row.text->remaining() == 0});
    }
    return rows;
}

// Only a text whose last token was computed is extended; the others are still within their prompts.
void Scheduler::sample(const Plan &plan, std::span<const float> logits) {
    const auto wants_logits = [](const Row &row) { return row.text->remaining() == 0; };
    const auto row_count = std::ranges::count_if(plan.rows, wants_logits);
    if (row_count == 0) {
        return;
    }
    const size_t vocab_size = logits.size() / static_cast<size_t>(row_count);
    std::vector<Text *> texts;
    for (const Row &row : plan.rows) {
        if (wants_logits(row)) {
            texts.push_back(row.text);
        }
    }
    for (size_t i = 0; i < texts.size(); ++i) {
        const std::span<const float> own = logits.subspan(i * vocab_size, vocab_size);
        if (texts[i]->generated() == 0 && texts[i]->sample == 0) {
            const std::chrono::duration<double> waited =
                Clock::now() - arrived_[texts[i]->request->id];
            totals_.first_token_seconds.push_back(waited.count());
            fork_samples(*texts[i], own);
        }
        extend(*texts[i], own);
    }
}

// The prompt is computed; every further sample shares all its blocks and draws its own token.
void Scheduler::fork_samples(Text &text, std::span<const float> logits) {
    for (uint32_t sample = 1; sample < text.request->sample_count; ++sample) {
        texts_.push_back(std::make_unique<Text>(text));
        Text &fork = *texts_.back();
        fork.sample = sample;
        fork.seq = cache_.fork_sequence(text.seq, text.tokens.size());
        fork.admission = 0;
        if (running_.size() < options_.max_rows) {
            start_running(fork);
        } else {
            waiting_.push_front(&fork);  // it holds blocks, so it goes before texts that hold none
        }
        extend(fork, logits);
    }
}

void Scheduler::extend(Text &text, std::span<const float> logits) {
    const DrawKey key{options_.seed, text.request->id, text.sample,
                      static_cast<uint32_t>(text.tokens.size())};
    const Choice choice = choose(logits, text.request->temperature, key);
    const uint32_t token =
        comparison_ == nullptr
            ? choice.token
            : comparison_->settle(text.request->id, text.sample, text.generated(), choice);
    ++totals_.generated_tokens;
    if (ends_text(token)) {
        finish(text);
        return;
    }
    text.tokens.push_back(token);
    if (text.generated() == text.request->generate_limit) {
        finish(text);
    }
}

void Scheduler::finish(Text &text) {
    if (options_.on_finish) {
        options_.on_finish(text.seq);
    }
    cache_.end_sequence(text.seq);
    std::erase(running_, &text);
    std::erase(waiting_, &text);
    finished_.push_back(&text);
    ++totals_.texts_done;
    const auto siblings = std::ranges::count_if(
        finished_, [&](const Text *other) { return other->request == text.request; });
    totals_.requests_done += static_cast<size_t>(siblings) == text.request->sample_count ? 1 : 0;
}

std::span<const uint32_t> Scheduler::generated(uint32_t request, uint32_t sample) const {
    for (const Text *text : finished_) {
        if (text->request->id == request && text->sample == sample) {
            return std::span(text->tokens).subspan(text->request->prompt.size());
        }
    }
    return {};
}

}  // namespace engine
