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
    if (on(Feature::at_once) && at_once_rng_.percent(35)) return lease_at_once(id);
    uint32_t doc = rng.percent(90) ? rng.below(c.documents) : 2000 + next_lease_;
    if (on(Feature::leases_only) && lone_rng_.percent(40)) doc = leaving_document();
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
        push(OpKind::evict, {group, rng.below(6) * (c.uniform() ? 1 : 4)});
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
        push(OpKind::publish, {id, doc, rng.range(1, std::max(1u, c.max_tokens / c.span()))});
        if (!on(Feature::at_once)) return;
        Op &publish = queue_.back();
        if (!c.uniform()) publish.f[2] = at_once_rng_.range(1, std::min(2u, publish.f[2]));
        if (at_once_rng_.percent(10)) publish.f[3] = at_once_rng_.range(1, 5);
        if (at_once_rng_.percent(30)) publish.f[4] = at_once_rng_.range(1, 1u << 16);
    }
}

// Calls without a step.
void Chooser::lease_at_once(uint32_t id) {
    const Config &c = world_->config;
    Rng &rng = at_once_rng_;
    const auto groups = static_cast<uint32_t>(c.groups.size());
    const uint32_t group = rng.below(groups);
    uint32_t doc = rng.percent(90) ? rng.below(c.documents) : 3000 + rng.below(100);
    if ((on(Feature::partial) || on(Feature::leases_only)) && rng.percent(40))
        doc = leaving_document();
    const uint32_t tokens = rng.below(c.max_tokens + 1);
    const bool one = groups == 1 && c.groups[0].kind == QUIRE_GROUP_FULL;
    const uint32_t pick = rng.below(one || rng.percent(10) ? 100 : 70);
    if (pick < 25) {
        push(OpKind::find, {id, doc, tokens, QUIRE_MATCH_TOUCH});
        if (rng.percent(80)) push(OpKind::evict, {group, rng.range(1, 5) * (c.uniform() ? 1 : 4)});
    } else if (pick < 35) {
        push(OpKind::find, {id, doc, tokens, rng.percent(20) ? rng.range(3, 4) : 0});
    } else if (pick < 50) {
        push(OpKind::find, {id, doc, tokens, 2});
    } else if (pick < 65) {
        push(OpKind::give,
             {id, group, rng.below(1u << 16), rng.percent(10) ? rng.range(1, 60) : 0, 1});
    } else if (pick < 70) {
        push(OpKind::pin, {id, group, rng.below(1u << 16), rng.percent(15), 1});
    } else if (world_->open) {
        push(OpKind::insert, {id, doc, rng.range(1, 4)});
    } else {
        const uint32_t places = rng.range(1, std::max(1u, c.max_tokens / c.block_tokens));
        if (rng.percent(90))
            for (const Step &step : world_->committed) push(OpKind::finish, {step.id, 0});
        push(OpKind::begin, {next_step_, rng.below(c.queues), 0, 0});
        push(OpKind::take, {id, 0, places});
        push(OpKind::commit, {0});
        push(OpKind::finish, {next_step_++, 0});
        push(OpKind::insert, {id, doc, rng.percent(70) ? places : rng.range(1, places),
                              rng.below(2), rng.percent(20) ? rng.range(1, 7) : 0});
        if (on(Feature::leases_only)) {
            Op &insert = queue_.back();
            insert.f[5] = lone_rng_.percent(50);
            if (lone_rng_.percent(15)) insert.f[4] = lone_rng_.range(8, 12);
        }
        if (rng.percent(50)) push(OpKind::evict, {0, rng.range(1, 3)});
    }
}

// A cache without sequences.
void Chooser::lone_op() {
    if (lone_rng_.percent(lone_percent_)) return lease_op();
    if (world_->open)
        lone_planning();
    else
        lone_idle();
}

void Chooser::lone_planning() {
    Rng &rng = lone_rng_;
    const uint32_t pick = rng.below(100);
    if (pick < 8 && on(Feature::finish_open) && !world_->committed.empty())
        finish_one();
    else if (pick < 12)
        push(OpKind::unserved, {rng.below(8), rng.below(16)});
    else if (pick < 15)
        push(OpKind::refuse, {rng.below(16), rng.below(8), rng.below(1u << 16)});
    else if (rng.percent(abort_percent_))
        push(OpKind::abort, {});
    else
        push(OpKind::commit, {0});
}

void Chooser::lone_idle() {
    const Config &c = world_->config;
    Rng &rng = lone_rng_;
    if (!world_->committed.empty() &&
        (rng.percent(finish_percent_) || world_->committed.size() >= QUIRE_UNFINISHED_STEPS))
        return finish_one();
    const uint32_t pick = rng.below(100);
    const uint32_t space = world_->namespaces[rng.below(world_->namespaces.size())].id;
    if (pick < 12 && on(Feature::namespaces) && world_->namespaces.size() < 4) {
        push(OpKind::ns_create, {next_ns_++, rng.below(2),
                                 on(Feature::quota) && rng.percent(60) ? rng.range(2, 20) : 0});
    } else if (pick < 16 && on(Feature::namespaces)) {
        for (const auto &lease : world_->leases)
            if (lease->ns == space && rng.percent(80)) push(OpKind::unlease, {lease->id});
        push(OpKind::ns_destroy, {space});
    } else if (pick < 18 && on(Feature::reset)) {
        push(OpKind::reset, {});
    } else if (pick < 24 && on(Feature::migrate)) {
        for (const Step &step : world_->committed)
            if (rng.percent(90)) push(OpKind::finish, {step.id, 0});
        const uint32_t few = std::max(3u, c.groups[0].blocks * 2 / 3);
        // A leader keeps its number of blocks.
        const bool stays = (c.flags & QUIRE_CACHE_LOG) != 0 ? rng.percent(80) : rng.percent(20);
        push(OpKind::migrate, {stays ? 0 : rng.range(2, rng.percent(70) ? few : 40), 0,
                               rng.percent(10) ? rng.range(1, 5) : 0});
    } else if (pick < 25 && c.device != 0) {
        push(OpKind::attach, {rng.below(2), 1});
    } else if (pick < 30) {
        push(OpKind::unserved, {rng.below(8), rng.below(16)});
    } else if (pick < 33) {
        push(OpKind::refuse, {rng.below(16), rng.below(8), rng.below(1u << 16)});
    } else if (pick < 40) {
        push(OpKind::evict, {0, rng.range(1, 6)});
    } else if (pick < 50 && !world_->leases.empty() && on(Feature::reset)) {
        push(OpKind::forget,
             {world_->leases[rng.below(world_->leases.size())]->id, 0, rng.below(1u << 16)});
    } else {
        push(OpKind::begin, {next_step_++, rng.below(c.queues), 0, 0});
    }
}

}  // namespace sim
