// SPDX-License-Identifier: Apache-2.0
//
// engine: a bookkeeping-only cache and the few operations that the cases perform on it.
#pragma once

#include "tests/bench/manager/client.hpp"

namespace quire::bench {

inline constexpr uint32_t kBlockTokens = 16;

// `count` tokens, none of which another `first` produces.
inline std::vector<uint32_t> prompt(uint32_t first, uint32_t count) {
    std::vector<uint32_t> out(count);
    for (uint32_t i = 0; i < count; ++i) out[i] = first * 2654435761u + i;
    return out;
}

// Items of one step.
struct Items {
    std::vector<quire_step_item> items;
    std::vector<uint32_t> tokens;

    void add(quire_seq seq, const std::vector<uint32_t> &more) {
        quire_step_item item{};
        item.seq = seq;
        item.token_offset = static_cast<uint32_t>(tokens.size());
        item.token_count = static_cast<uint32_t>(more.size());
        items.push_back(item);
        tokens.insert(tokens.end(), more.begin(), more.end());
    }
    uint32_t count() const { return static_cast<uint32_t>(items.size()); }
};

class Engine : public Client {
 public:
    using Client::Client;

    quire_step begin(const Items &of, uint32_t flags = 0) {
        auto desc = described<quire_step_desc>();
        desc.flags = flags;
        desc.preempt = QUIRE_PREEMPT_RECOMPUTE;
        std::vector<quire_step_result> results(of.items.size());
        quire_step step = 0;
        must(api.step_begin(cache, &desc, of.items.data(), of.count(), sizeof(quire_step_item),
                            of.tokens.data(), static_cast<uint32_t>(of.tokens.size()),
                            results.data(), sizeof(quire_step_result), &step, error()));
        for (const quire_step_result &result : results) {
            if (result.outcome == QUIRE_ITEM_RUN) continue;
            std::fprintf(stderr, "an item must wait: the case has too few blocks\n");
            std::exit(1);
        }
        return step;
    }
    void commit(quire_step step) { must(api.step_commit(cache, step, nullptr, error())); }
    void finish(quire_step step, uint32_t outcome = QUIRE_STEP_OK) {
        must(api.step_finish(cache, step, nullptr, outcome, error()));
    }
    void abort(quire_step step) { must(api.step_abort(cache, step, error())); }
    void run(const Items &of) {
        quire_step step = begin(of);
        commit(step);
        finish(step);
    }
    // Creates a sequence with a prompt and computes it.
    quire_seq computed(const std::vector<uint32_t> &tokens, const quire_seq_desc *desc = nullptr) {
        quire_seq seq = desc != nullptr ? create(*desc) : create({});
        Items one;
        one.add(seq, tokens);
        run(one);
        return seq;
    }
    quire_seq create(quire_seq_desc desc) {
        desc.struct_size = sizeof desc;
        quire_seq seq = 0;
        must(api.seq_create(cache, &desc, &seq, error()));
        return seq;
    }
    void end(quire_seq seq, uint32_t flags = 0) { must(api.seq_end(cache, seq, flags, error())); }
    quire_seq fork(quire_seq seq, uint32_t tokens) {
        quire_seq out = 0;
        must(api.seq_fork(cache, seq, tokens, &out, error()));
        return out;
    }
    quire_namespace name_space() {
        auto desc = described<quire_namespace_desc>();
        desc.key_bytes = uint64_t{1} << 40;
        quire_namespace out = 0;
        must(api.namespace_create(cache, &desc, &out, error()));
        return out;
    }
    void destroy(quire_namespace ns) { must(api.namespace_destroy(cache, ns, error())); }
};

inline Shape with(uint32_t blocks, uint32_t max_sequences = 64) {
    Shape shape;
    shape.blocks = blocks;
    shape.max_sequences = max_sequences;
    return shape;
}

}  // namespace quire::bench
