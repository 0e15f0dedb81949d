// SPDX-License-Identifier: Apache-2.0

#include "decoder.hpp"

#include "failure.hpp"
#include "ranks.hpp"

namespace decoding {
namespace {

engine::CacheOptions cache_options(const engine::ModelConfig &config,
                                   const DecoderOptions &options) {
    const auto q_heads = static_cast<uint32_t>(config.head_count);
    const auto kv_heads = static_cast<uint32_t>(config.kv_head_count);
    const uint32_t words_a_row = (options.max_tree + 31) / 32;
    return {.backend = options.backend,
            .device_index = options.device_index,
            .layer_count = static_cast<uint32_t>(config.layer_count),
            .q_heads = q_heads,
            .kv_heads = kv_heads,
            .head_dim = static_cast<uint32_t>(config.head_dim()),
            .pool_blocks = options.pool_blocks,
            .block_tokens = options.block_tokens,
            .max_rows = options.max_texts,
            .max_query_tokens = static_cast<uint32_t>(config.seq_len) + options.max_texts,
            .max_sequences = 2 * options.max_texts + 1,
            .max_sequence_tokens = static_cast<uint32_t>(config.seq_len),
            .host_bytes = 0,
            .kv_dtype = options.kv_dtype,
            .shards = {engine::heads_of(0, 1, q_heads, kv_heads)},
            .flags = options.cache_flags,
            .max_mask_words = options.max_tree * words_a_row};
}

// A draft's position is one after that of the draft it follows.
std::vector<size_t> positions_of(const Turn &turn, size_t first_position, size_t count) {
    std::vector<size_t> positions;
    const size_t firm = count - turn.parents.size();
    for (size_t i = 0; i < count; ++i) {
        const bool draft = i >= firm;
        const uint32_t parent = draft ? turn.parents[i - firm] : 0;
        const bool first = draft && parent == QUIRE_MASK_ROOT;
        positions.push_back(!draft  ? first_position + i
                            : first ? first_position + firm
                                    : positions[firm + parent] + 1);
    }
    return positions;
}

}  // namespace

Decoder::Decoder(const quire_api &api, const engine::Model &model, const DecoderOptions &options)
    : model_(model),
      options_(options),
      cache_(api, cache_options(model.config(), options)),
      forward_(model, cache_, engine::Fault::none) {}

quire_seq Decoder::fork(quire_seq seq) { return cache_.fork_sequence(seq, length(seq)); }

// Appends an item, its tokens, and after them the tree of its drafts.
void Decoder::add_item(const Turn &turn, std::vector<quire_step_item> &items,
                       std::vector<quire_token> &words) const {
    quire_step_item item{};
    item.seq = turn.seq;
    item.token_offset = static_cast<uint32_t>(words.size());
    item.token_count = static_cast<uint32_t>(turn.tokens.size());
    words.insert(words.end(), turn.tokens.begin(), turn.tokens.end());
    if (!turn.parents.empty()) {
        item.draft_count = item.mask_rows = static_cast<uint32_t>(turn.parents.size());
        item.mask_kind = QUIRE_MASK_PARENTS;
        item.mask_offset = static_cast<uint32_t>(words.size());
        words.insert(words.end(), turn.parents.begin(), turn.parents.end());
    }
    items.push_back(item);
}

std::span<const float> Decoder::step(std::span<const Turn> turns) {
    std::vector<quire_step_item> items;
    std::vector<quire_token> words;
    for (const Turn &turn : turns) {
        add_item(turn, items, words);
    }
    engine::Step step(cache_, QUIRE_PREEMPT_RECOMPUTE, items, words);
    std::vector<std::vector<size_t>> positions;
    std::vector<engine::ForwardRow> rows;
    for (size_t i = 0; i < turns.size(); ++i) {
        const quire_step_result &result = step.results()[i];
        if (result.outcome != QUIRE_ITEM_RUN) {
            throw engine::Failure("the pool needs " + std::to_string(result.blocks_short) +
                                  " more blocks for " + std::to_string(turns.size()) +
                                  " texts. Give more --pool-blocks.");
        }
        // Tokens found in the cache need not be computed: the last `count` tokens remain.
        const size_t count = result.compute_count;
        const std::span<const uint32_t> tokens(turns[i].tokens);
        positions.push_back(positions_of(turns[i], result.first_position, count));
        rows.push_back({.tokens = tokens.last(count),
                        .first_position = result.first_position,
                        .wants_logits = true,
                        .wants_all = turns[i].wants_all,
                        .positions = positions.back()});
    }
    step.commit();
    const std::span<const float> logits = forward_.run(rows);
    step.finish();
    ++steps_;
    return logits;
}

}  // namespace decoding
