// SPDX-License-Identifier: Apache-2.0
//
// decoder: runs a few texts, one step at a time: their new tokens in, logits out.
//
// Why not the engine's scheduler: beam search, drafts and best-of-n decide after each step which
// texts continue, so they drive the steps themselves. They fork, truncate, accept and end texts in
// the cache, each with one call.
//
// Threads: one.

#pragma once

#include "cache.hpp"
#include "forward.hpp"
#include "model.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace decoding {

struct DecoderOptions {
    std::string backend = "cpu";
    uint32_t device_index = 0;
    uint32_t pool_blocks = 256;  // including the null block
    uint32_t block_tokens = 16;
    uint32_t max_texts = 1;
    uint32_t max_tree = 0;         // drafts in a step that form a tree
    std::string kv_dtype = "f32";  // one of engine::kv_dtype_names()
    uint32_t cache_flags = 0;      // QUIRE_CACHE_*
};

// A text's part of a step. Its last parents.size() tokens are drafts.
struct Turn {
    quire_seq seq = 0;
    std::vector<uint32_t> tokens;
    // For each draft, the draft that it follows, or QUIRE_MASK_ROOT for the token before the
    // drafts. Empty: no token is a draft.
    std::vector<uint32_t> parents;
    bool wants_all = false;  // logits after each token, not only the last
};

class Decoder {
 public:
    Decoder(const quire_api &api, const engine::Model &model, const DecoderOptions &options);

    quire_seq begin() { return cache_.create_sequence(); }
    // A copy of the text so far; it takes no memory until one of the two continues.
    quire_seq fork(quire_seq seq);
    void end(quire_seq seq) { cache_.end_sequence(seq); }
    void truncate(quire_seq seq, size_t token_count) { cache_.truncate_sequence(seq, token_count); }
    void accept(quire_seq seq, std::span<const uint32_t> path) { cache_.accept_path(seq, path); }
    size_t length(quire_seq seq) const { return cache_.sequence_info(seq).known_tokens; }

    // Computes all turns at once.
    //
    // Returns  logits [turns, or tokens where all were wanted][vocab_size], valid until the next
    //          step.
    // Errors   throws Failure if the pool is short of blocks.
    std::span<const float> step(std::span<const Turn> turns);

    size_t vocab_size() const { return model_.config().vocab_size; }
    size_t longest_text() const { return model_.config().seq_len; }
    size_t block_tokens() const { return options_.block_tokens; }
    std::vector<int32_t> blocks(quire_seq seq) const { return cache_.blocks(seq); }
    size_t held_blocks() const { return cache_.stats().blocks_held; }
    size_t steps() const { return steps_; }
    // Lets Quire verify its invariants.
    void check() const { cache_.check(); }

 private:
    void add_item(const Turn &turn, std::vector<quire_step_item> &items,
                  std::vector<quire_token> &words) const;

    const engine::Model &model_;
    DecoderOptions options_;
    engine::Cache cache_;
    engine::Forward forward_;
    size_t steps_ = 0;
};

}  // namespace decoding
