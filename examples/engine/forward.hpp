// SPDX-License-Identifier: Apache-2.0
//
// forward: the network over a committed step: every layer's K and V go through Quire, all else is
// the engine's. Compare dense_run, which does the same with contiguous K and V.
//
// Every shard of the cache has the projections and the attention of its heads; what comes out is
// put side by side, over processes too. All else every process computes for itself, so the numbers
// are those of one device, to the bit.
//
// Threads: one.

#pragma once

#include "cache.hpp"
#include "model.hpp"
#include "ops.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace engine {

// Test aids: what must not go unnoticed.
enum class Fault { none, zero_attention, wrong_block };

struct ForwardRow {
    std::span<const uint32_t> tokens;  // to compute now
    size_t first_position = 0;
    bool wants_logits = false;  // behind its last token
    bool wants_all = false;     // behind each of its tokens
    // Where each token stands in its text; empty: one behind another, from first_position on.
    std::span<const size_t> positions = {};
};

class Forward {
 public:
    // others: the ranks that hold the other heads, and what each rank holds; NULL: there are none.
    Forward(const Model &model, Cache &cache, Fault fault, Ranks *others = nullptr,
            std::vector<HeadRange> ranges = {});

    // At rank 0: tells the others of the committed step, whose rows they compute too.
    void announce(const Step &step, std::span<const ForwardRow> rows);

    // Test aid: makes a step whose log nobody gets, when it is due.
    void drop_log_if_asked();

    // Computes the rows of the committed step, in the order of its batch.
    //
    // Returns  logits [rows, or tokens, that want them][vocab_size], valid until the next run.
    std::span<const float> run(std::span<const ForwardRow> rows);

 private:
    void load(std::span<const ForwardRow> rows);
    void run_layer(size_t index);
    void project(const Shard &shard, const LayerWeights &layer);
    void attend(size_t index);
    std::span<const float> classify(std::span<const ForwardRow> rows);

    const Model &model_;
    Cache &cache_;
    Fault fault_;
    Ranks *others_;
    std::vector<HeadRange> ranges_;  // by rank
    RopeTable rope_;
    std::vector<size_t> positions_;  // [query tokens]
    std::vector<float> x_, normed_, attended_, projected_, gate_, up_, logits_;
};

}  // namespace engine
