// SPDX-License-Identifier: Apache-2.0
//
// dense_run: the same network with contiguous K and V per layer, which a paged run must equal.
//
// Why it knows nothing of Quire: a reference that shares blocks, tables or kernels with the code it
// judges would share its mistakes. It shares only weights, `ops` and `sampler` with the paged run.
//
// Threads: one DenseRun per thread; the model may be shared.

#pragma once

#include "model.hpp"
#include "ops.hpp"
#include "request.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace engine {

class DenseRun {
 public:
    explicit DenseRun(const Model &model);

    // Feeds `token` at `position`, overwriting what an earlier text left there and after it.
    //
    // position  [0, min(seq_len, positions fed so far)].
    void feed(uint32_t token, size_t position);

    // The logits after the last token fed; valid until the next feed.
    std::span<const float> logits();

    // Generates every sample of `request`: the prompt is fed once, each sample continues from it.
    std::vector<Generated> generate(const Request &request, uint64_t seed);

 private:
    void attend(size_t layer, size_t position);
    Generated continue_prompt(const Request &request, uint32_t sample, uint64_t seed,
                              std::span<const float> prompt_logits);

    const Model &model_;
    RopeTable rope_;
    std::vector<float> keys_, values_;  // [layer][seq_len][kv_dim]
    std::vector<float> x_, normed_, q_, attended_, projected_, gate_, up_, scores_, logits_;
};

// The dense texts of all requests, [request][sample], computed on `thread_count` threads.
std::vector<std::vector<Generated>> dense_texts(const Model &model,
                                                std::span<const Request> requests, uint64_t seed,
                                                unsigned thread_count);

}  // namespace engine
