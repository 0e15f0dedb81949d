// SPDX-License-Identifier: Apache-2.0
//
// forward: runs the network over a committed step: every layer's K and V go through Quire, all else
// is the engine's. Compare dense_run, which does the same with contiguous K and V.
//
// Every shard of the cache computes the projections and the attention of its heads; the results are
// put side by side, across processes too. Every process computes everything else itself, so the
// numbers equal those of one device, to the bit.
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

// Test aids: faults that the checks must notice.
enum class Fault { none, zero_attention, wrong_block };

struct ForwardRow {
    std::span<const uint32_t> tokens;  // to compute now
    size_t first_position = 0;
    bool wants_logits = false;  // after its last token
    bool wants_all = false;     // after each of its tokens
    // Where each token stands in its text; empty: consecutive, from first_position on.
    std::span<const size_t> positions = {};
};

class Forward {
 public:
    // others  the ranks that hold the other heads; NULL: there are no others.
    // ranges  the heads that each rank holds.
    Forward(const Model &model, Cache &cache, Fault fault, Ranks *others = nullptr,
            std::vector<HeadRange> ranges = {});

    // At rank 0: announces the committed step to the other ranks, which compute its rows too.
    void announce(const Step &step, std::span<const ForwardRow> rows);

    // At rank 0: gives the cache what the other ranks report of their loads; `waits`: once these
    // have ended.
    void take_reports(bool waits);
    bool leads() const { return others_ != nullptr; }

    // Test aid: when it is due, makes a step whose log is not sent.
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
