// SPDX-License-Identifier: Apache-2.0
//
// chooser_tier: operations on the store below a cache, and prompts that it may hold.
#include <algorithm>

#include "chooser.hpp"
#include "store.hpp"

namespace sim {

void Chooser::tier_op() {
    const uint32_t pick = tier_rng_.below(100);
    if (!world_->tier_attached()) {
        if (world_->open || !tier_rng_.percent(60)) return;
        const uint32_t block = world_->config.block_tokens;
        push(OpKind::attach,
             {tier_rng_.percent(4)    ? tier_rng_.below(5)
              : tier_rng_.percent(80) ? 1u
                                      : 2u,
              tier_rng_.percent(70) ? 0 : tier_rng_.range(1, 3 * block),
              tier_rng_.percent(50) ? 0 : tier_rng_.range(1, 300),
              tier_rng_.percent(50) ? 0 : tier_rng_.range(1, 100),
              tier_rng_.percent(70) ? 0 : tier_rng_.range(1, 4000),
              tier_rng_.percent(70) ? 0 : tier_rng_.range(1, 4000), tier_rng_.percent(10)});
        return;
    }
    if (pick < 25 && !calm_) {
        const bool wrong = tier_rng_.percent(store_percent_);
        const uint32_t how = wrong ? tier_rng_.below(kStoreHows) : 0;
        push(OpKind::store, {how,
                             how >= kStoreAuto       ? tier_rng_.below(2)
                             : tier_rng_.percent(40) ? 0
                                                     : tier_rng_.range(1, 4),
                             tier_rng_.percent(50) ? 0 : tier_rng_.range(1, 1u << 16)});
    } else if (pick < 30 && !calm_) {
        push(OpKind::store, {kStoreAuto, tier_rng_.below(2)});
    } else if (pick < 42) {
        push(OpKind::poll, {tier_rng_.below(3)});
    } else if (pick < 50) {
        push(OpKind::copies, {tier_rng_.percent(60) ? 0 : tier_rng_.range(1, 6)});
    } else if (pick < 54) {
        push(OpKind::elapse,
             {tier_rng_.percent(80) ? tier_rng_.range(1, 40) : tier_rng_.range(100, 12000)});
    } else if (pick < 57) {
        if (!world_->sequences.empty())
            push(OpKind::cancel_load,
                 {world_->sequences[tier_rng_.below(world_->sequences.size())]->id});
    } else if (pick < 58 || world_->tier_is_dead()) {
        push(OpKind::detach, {tier_rng_.below(3)});
    } else if (pick < 59) {
        push(OpKind::restart, {tier_rng_.percent(80)});
    } else if (pick < 80) {
        resend();
    } else if (!world_->open) {
        tier_recall();
    }
}

// Sends the item of a load again, or one with other tokens.
void Chooser::resend() {
    for (const auto &seq : world_->sequences) {
        if (!seq->load.live || seq->has_item || tier_rng_.percent(30)) continue;
        Op op = seq->load.op;
        if (tier_rng_.percent(8)) op.f[2] += 1;
        if (tier_rng_.percent(5)) op.f[11] = 0;
        push(OpKind::item, {}) = op;
        if (world_->open) {
            push(OpKind::add, {0});
            return;
        }
        push(OpKind::begin, {next_step_++, tier_rng_.below(world_->config.queues),
                             on(Feature::may_preempt) && tier_rng_.percent(30) ? 1u : 0u, 0});
        if (tier_rng_.percent(70)) push(OpKind::commit, {0});
        if (tier_rng_.percent(60)) push(OpKind::finish, {next_step_ - 1, 0});
        return;
    }
}

// A prompt that was there before, or will be: its sequence ends soon, and mostly with its prefix,
// so that only the store has it.
void Chooser::tier_recall() {
    const Config &c = world_->config;
    if (world_->sequences.size() >= c.max_sequences || tier_rng_.percent(15)) {
        for (const auto &seq : world_->sequences)
            if (tier_rng_.percent(40)) push(OpKind::end, {seq->id, tier_rng_.percent(70)});
        return;
    }
    const uint32_t id = next_seq_++;
    const Namespace &space =
        world_->namespaces[tier_rng_.percent(50) ? 0 : tier_rng_.below(world_->namespaces.size())];
    const uint32_t doc = tier_rng_.percent(90) ? tier_rng_.below(c.documents) : 1000 + id;
    const uint32_t adapter = on(Feature::keys) && tier_rng_.percent(15) ? 1 : 0;
    const uint32_t spans = on(Feature::spans) && tier_rng_.percent(15) ? tier_rng_.range(1, 3) : 0;
    push(OpKind::create, {id, space.id, adapter, 0, spans, 2, 0, doc});
    push(OpKind::item, {id, tier_rng_.range(1, c.max_tokens), doc, 0, 0, 0, 0, 0, 0, 0, 0, 1});
    push(OpKind::begin, {next_step_++, tier_rng_.below(c.queues),
                         on(Feature::may_preempt) && tier_rng_.percent(30) ? 1u : 0u, 0});
    if (tier_rng_.percent(80)) push(OpKind::commit, {0});
    if (tier_rng_.percent(70)) push(OpKind::finish, {next_step_ - 1, 0});
    if (tier_rng_.percent(50))
        for (uint32_t q = 0; q < c.queues * c.shards; ++q) push(OpKind::advance, {q, 0});
    for (int i = 0; i < 3 && tier_rng_.percent(75); ++i) {
        push(OpKind::poll, {tier_rng_.below(3)});
        push(OpKind::copies, {0});
        if (tier_rng_.percent(60)) push(OpKind::store, {0, 0, tier_rng_.below(1u << 16)});
    }
    if (tier_rng_.percent(25)) push(OpKind::end, {id, tier_rng_.percent(75)});
}

}  // namespace sim
