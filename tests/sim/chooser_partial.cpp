// SPDX-License-Identifier: Apache-2.0
//
// chooser_partial: prompts that leave a text which may be cached within a block.
#include <algorithm>

#include "chooser.hpp"

namespace sim {

// One that has a document's tokens up to a place, most often one that is no border of blocks; and
// few others have the same place, so that they meet again.
uint32_t Chooser::leaving_document() {
    const Config &c = world_->config;
    Rng &rng = partial_rng_;
    const uint32_t most = std::min(c.max_tokens, kLeavesAt);
    uint32_t place = rng.below(most + 1);
    if (rng.percent(20)) place -= place % c.block_tokens;
    const uint32_t variant = rng.percent(70) ? rng.below(3) : rng.below(100);
    return kLeaves | variant << (kLeavesShift + 8) | rng.below(c.documents) << kLeavesShift | place;
}

// A prompt, cached in whole or in part, more often than not, and sent at once. Where there is no
// room for a sequence, some end and leave their blocks cached.
void Chooser::revisit() {
    const Config &c = world_->config;
    Rng &rng = partial_rng_;
    if (world_->sequences.size() >= std::min(c.max_sequences, revisit_most_)) {
        for (const auto &seq : world_->sequences)
            if (rng.percent(50)) push(OpKind::end, {seq->id, rng.percent(4)});
        return;
    }
    const uint32_t count = rng.range(1, 2);
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t id = next_seq_++;
        const uint32_t space =
            world_->namespaces[rng.percent(75) ? 0 : rng.below(world_->namespaces.size())].id;
        const uint32_t key = on(Feature::keys) && rng.percent(15) ? rng.range(1, 2) : 0;
        const uint32_t spans = on(Feature::spans) && rng.percent(15) ? rng.range(1, 6) : 0;
        const uint32_t doc = rng.percent(60) ? leaving_document() : rng.below(c.documents);
        push(OpKind::create, {id, space, key, 0, spans, 2, 0, doc});
        uint32_t tokens = rng.range(1, c.max_tokens);
        if (rng.percent(30)) tokens = std::max(c.block_tokens, tokens - tokens % c.block_tokens);
        Op &item = push(OpKind::item, {id, std::min(tokens, c.max_tokens), doc});
        if (rng.percent(15)) item.f[3] = rng.range(1, 2 * c.block_tokens);
        if (on(Feature::limits) && rng.percent(25)) item.f[10] = rng.range(1, c.max_tokens);
        if (on(Feature::cache_tier)) item.f[11] = rng.percent(load_percent_);
    }
    push(OpKind::begin, {next_step_++, rng.percent(60) ? 0 : rng.below(c.queues),
                         on(Feature::may_preempt) && rng.percent(30) ? 1u : 0u,
                         on(Feature::swap) ? rng.below(3) : 2});
    if (rng.percent(70)) push(OpKind::commit, {0});
    if (rng.percent(50)) push(OpKind::finish, {next_step_ - 1, 0});
}

}  // namespace sim
