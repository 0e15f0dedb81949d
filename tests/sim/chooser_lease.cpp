// SPDX-License-Identifier: Apache-2.0
//
// chooser_lease: operations on leases.
#include <algorithm>

#include "chooser.hpp"

namespace sim {

void Chooser::lease_op() {
    const Config &c = world_->config;
    Rng &rng = lease_rng_;
    const auto groups = static_cast<uint32_t>(c.groups.size());
    if (world_->leases.empty() || (world_->leases.size() < 4 && rng.percent(8))) {
        const Namespace &space = world_->namespaces[rng.below(world_->namespaces.size())];
        push(OpKind::lease, {next_lease_++, space.id, on(Feature::keys) && rng.percent(20) ? 1u : 0,
                             on(Feature::keys) && rng.percent(10) ? 1u : 0});
        return;
    }
    const uint32_t id = world_->leases[rng.below(world_->leases.size())]->id;
    const uint32_t doc = rng.percent(90) ? rng.below(c.documents) : 2000 + next_lease_;
    const uint32_t group = rng.below(groups);
    const uint32_t pick = rng.below(100);
    const uint32_t draw = rng.below(1u << 16);
    if (pick < 6) {
        push(OpKind::unlease, {id});
    } else if (pick < 14) {
        push(OpKind::match, {id, doc, rng.below(c.max_tokens + 1), rng.below(2)});
    } else if (pick < 18 && on(Feature::reset)) {
        push(OpKind::forget, {id, group, draw});
    } else if (pick < 22 && on(Feature::reset)) {
        push(OpKind::evict, {group, rng.below(6)});
    } else if (!world_->open) {
        push(OpKind::begin, {next_step_++, rng.below(c.queues), 0, 0});
    } else if (pick < 40) {
        push(OpKind::take, {id, group, rng.range(1, 4)});
    } else if (pick < 62) {
        push(OpKind::give, {id, group, draw, rng.percent(10) ? rng.range(1, 60) : 0});
    } else if (pick < 68) {
        push(OpKind::pin, {id, group, draw, rng.percent(15)});
    } else if (pick < 82) {
        push(OpKind::match, {id, doc, rng.below(c.max_tokens + 1), QUIRE_MATCH_PIN});
    } else {
        push(OpKind::publish, {id, doc, rng.range(1, std::max(1u, c.max_tokens / c.block_tokens))});
    }
}

}  // namespace sim
