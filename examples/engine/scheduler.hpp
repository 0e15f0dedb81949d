// SPDX-License-Identifier: Apache-2.0
//
// scheduler: continuous batching: which texts are in the next step, and what happens to them after.
//
// One step: the running texts ask first, oldest first. When one needs room, Quire preempts a newer
// one, which then waits at the front of the queue and keeps its tokens. Only a step that preempted
// no text admits others: first the preempted ones, then new requests. A prompt is computed in
// chunks beside the decoding texts. A request for n samples is computed once and forked at the end
// of its prompt.
//
// Invariants: (1) a text is in exactly one of running_, waiting_, finished_
//             (2) known <= tokens.size(), and computed <= known; Quire has the same numbers
//
// Threads: one.  Units: tokens unless named otherwise.

#pragma once

#include "cache.hpp"
#include "comparison.hpp"
#include "forward.hpp"
#include "request.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace engine {

struct SchedulerOptions {
    size_t max_rows = 0;
    size_t chunk_tokens = 0;  // of prompts, in one step, over all texts
    size_t block_tokens = 0;
    size_t pool_blocks = 0;      // including the null block
    size_t max_text_tokens = 0;  // the model's seq_len
    uint32_t preempt = 0;        // QUIRE_PREEMPT_*
    uint64_t seed = 0;
    // A sequence that holds all tokens but the last of the only request's prompt; 0: none.
    quire_seq restored = 0;
    bool may_load = false;  // prefixes, from the cache's tier
    // Called with each text that is finished, while Quire still has its sequence.
    std::function<void(quire_seq seq)> on_finish = {};
};

struct Totals {
    size_t steps = 0;
    size_t requests_done = 0;
    size_t texts_done = 0;
    size_t generated_tokens = 0;
    size_t computed_tokens = 0;  // of prompts and texts; recomputed ones count each time
    size_t repeated_tokens = 0;  // computed again though their text was not preempted
    size_t peak_running = 0;
    size_t peak_held_blocks = 0;
    size_t peak_contiguous_blocks = 0;  // what the same texts would reserve at max_text_tokens each
    size_t table_slots = 0;             // of all texts in all steps
    size_t wasted_slots = 0;            // of these, the slots after the last token
    size_t worst_wasted_slots = 0;      // of one text
    std::vector<double> first_token_seconds;  // one per request, from its arrival
};

// One sample of a request while it is generated.
struct Text {
    const Request *request = nullptr;
    uint32_t sample = 0;
    quire_seq seq = 0;             // 0: not yet known to Quire
    uint64_t admission = 0;        // from 1 on, kept when preempted; 0: not yet
    std::vector<uint32_t> tokens;  // prompt and text
    size_t known = 0;              // of these, given to Quire
    size_t computed = 0;

    size_t remaining() const { return tokens.size() - computed; }
    size_t generated() const { return tokens.size() - request->prompt.size(); }
};

class Scheduler {
 public:
    // comparison  NULL: texts are not compared.
    // Errors      throws Failure if a request can never fit into the pool.
    Scheduler(std::span<const Request> requests, Cache &cache, Forward &forward,
              const SchedulerOptions &options, Comparison *comparison);

    // Runs one step; false if every text is finished.
    bool step();

    const Totals &totals() const { return totals_; }
    size_t running_count() const { return running_.size(); }

    // The tokens that a finished text has generated.
    std::span<const uint32_t> generated(uint32_t request, uint32_t sample) const;

 private:
    using Clock = std::chrono::steady_clock;

    // A text in the step, and its row in the batch.
    struct Row {
        Text *text = nullptr;
        size_t first_position = 0;
        size_t compute_count = 0;
    };
    struct Plan {
        std::vector<Text *> texts;
        std::vector<quire_step_item> items;
        std::vector<quire_token> tokens;
        size_t chunk_left = 0;
        std::vector<Row> rows;
    };

    void require_room() const;
    void arrive();
    bool append_item(Plan &plan, Text &text) const;
    void take_result(Plan &plan, Text &text, const quire_step_result &result);
    bool demote_preempted(const Plan &plan, const Step &step);
    void admit(Plan &plan, Step &step);
    void start_running(Text &text);
    void wait_for_arrivals() const;
    void wait_for_load_of_ranks(Step &step);
    void observe(const Plan &plan);
    std::vector<ForwardRow> forward_rows(const Plan &plan) const;
    void sample(const Plan &plan, std::span<const float> logits);
    void fork_samples(Text &text, std::span<const float> logits);
    void extend(Text &text, std::span<const float> logits);
    void finish(Text &text);

    std::span<const Request> requests_;
    Cache &cache_;
    Forward &forward_;
    SchedulerOptions options_;
    Comparison *comparison_;

    size_t next_request_ = 0;
    std::vector<Clock::time_point> arrived_;  // [next_request_]
    std::vector<std::unique_ptr<Text>> texts_;
    uint64_t admissions_ = 0;
    std::vector<Text *> running_;  // by admission: an older text may preempt a newer one
    std::deque<Text *> waiting_;
    std::vector<Text *> finished_;
    uint32_t blocks_short_ = 0;  // of the text that was last refused
    bool is_loading_ = false;    // it waits for its prefix
    Totals totals_;
};

}  // namespace engine
