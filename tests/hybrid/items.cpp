// SPDX-License-Identifier: Apache-2.0
//
// items: what a step asks for.
#include <algorithm>

#include "open_step.hpp"

namespace hybrid {

// How many new tokens an item brings.
uint32_t OpenStep::draw_count(const Sequence &sequence, uint32_t computed) {
    Rng &rng = world_.rng;
    const uint32_t known = static_cast<uint32_t>(sequence.tokens.size());
    const uint32_t room = world_.config.max_tokens - known;
    if (known == 0) {
        const uint32_t most = rng.chance(.5) ? room : 12;
        return rng.range(1, std::min(room, most));
    }
    if (room == 0) return 0;
    if (computed < known) return rng.below(std::min(room, 3u) + 1);
    const uint32_t most = rng.chance(.8) ? 2 : 10;
    return rng.range(1, std::min(room, most));
}

// known: with the item's tokens.
void OpenStep::draw_limits(quire_step_item *item, uint32_t known) {
    Rng &rng = world_.rng;
    const Config &config = world_.config;
    if (!config.recurrent && item->token_count != 0 && rng.chance(.25)) {
        item->draft_count = rng.range(1, item->token_count);
    } else if (rng.chance(.4)) {
        const uint32_t most = rng.chance(.5) ? 6 : config.span * 3;
        item->max_compute = rng.range(1, most);
    }
    if (world_.lookahead_serves && rng.chance(.25) && known < config.max_tokens &&
        (!config.recurrent || config.snapshots))
        item->lookahead = rng.range(1, std::min(4u, config.max_tokens - known));
    if (rng.chance(.15))
        item->max_hit_tokens = rng.chance(.4) ? uint32_t{QUIRE_NO_HITS} : rng.range(1, 20);
}

void OpenStep::draw_item(uint32_t index, ItemCall *call) {
    Rng &rng = world_.rng;
    Sequence &sequence = world_.sequences[index];
    const auto info = world_.info(sequence.handle);
    if ((info.flags & QUIRE_SEQ_IN_STEP) != 0) {
        world_.count("IN_STEP flag of a sequence preempted in the step");
        return;
    }
    const uint32_t known = static_cast<uint32_t>(sequence.tokens.size());
    const uint32_t count = draw_count(sequence, info.computed_tokens);
    if (known + count <= info.computed_tokens || known + count == 0) return;
    quire_step_item item{};
    item.seq = sequence.handle;
    item.token_offset = static_cast<uint32_t>(call->tokens.size());
    item.token_count = count;
    Row row;
    row.sequence = index;
    row.handle = sequence.handle;
    row.before = sequence;
    std::vector<uint32_t> tokens;
    if (known == 0) tokens = world_.stream_tokens(count, world_.config.calm ? 0 : rng.below(3), .5);
    for (uint32_t i = 0; known != 0 && i < count; ++i)
        tokens.push_back(rng.chance(.6) ? world_.stream_token(0, known + i) : world_.other_token());
    draw_limits(&item, known + count);
    const bool last_unnamed =
        !world_.config.calm && count != 0 && item.draft_count == 0 && rng.chance(.12);
    row.known = known + count;
    row.lookahead = item.lookahead;
    for (uint32_t i = 0; i < count; ++i) {
        const bool named = !last_unnamed || i + 1 < count;
        sequence.tokens.push_back(tokens[i]);
        sequence.named.push_back(named);
        call->tokens.push_back(named ? tokens[i] : uint32_t{QUIRE_TOKEN_UNKNOWN});
    }
    if (last_unnamed) world_.published_exactly = false;
    call->items.push_back(item);
    call->rows.push_back(row);
}

int32_t OpenStep::begin_or_add(const std::vector<quire_step_item> &items,
                               const std::vector<uint32_t> &tokens, quire_step_result *results,
                               uint64_t *handle) {
    const uint32_t count = static_cast<uint32_t>(items.size());
    if (open_)
        return world_.api->step_add(
            world_.cache, step_.handle, items.data(), count, sizeof(quire_step_item), tokens.data(),
            static_cast<uint32_t>(tokens.size()), results, sizeof *results, world_.message());
    return world_.api->step_begin(
        world_.cache, &desc_, items.data(), count, sizeof(quire_step_item), tokens.data(),
        static_cast<uint32_t>(tokens.size()), results, sizeof *results, handle, world_.message());
}

// An item of a sequence whose last step is unfinished on another queue.
void OpenStep::refuse_other_queue(const Sequence &sequence) {
    quire_step_item item{};
    item.seq = sequence.handle;
    item.token_count = 1;
    quire_step_result result{};
    uint64_t handle = step_.handle;
    const auto before = world_.snapshot();
    const int32_t status = begin_or_add({item}, {5}, &result, &handle);
    if (status >= 0)
        fail("other_queue", "an item of a sequence whose step ", sequence.last_step,
             " on another queue is unfinished was accepted: status ", status, " outcome ",
             result.outcome);
    world_.unchanged(before, "refused_changed", "step_begin on another queue");
    world_.count(join("other queue refused ", status));
}

void OpenStep::draw_items(ItemCall *call) {
    const uint32_t wanted = world_.rng.below(4);
    while (next_candidate_ < candidates_.size() && call->items.size() < wanted) {
        const uint32_t index = candidates_[next_candidate_++];
        if (world_.rng.chance(.25)) continue;
        const Sequence &sequence = world_.sequences[index];
        if (!world_.step_unfinished(sequence.last_step) || sequence.last_queue == step_.queue)
            draw_item(index, call);
        else if (world_.rng.chance(.1))
            refuse_other_queue(sequence);
    }
}

bool OpenStep::send(ItemCall *call) {
    call->results.resize(call->items.size() + 1);
    for (const auto &item : call->items) call->before.push_back(world_.info(item.seq));
    if (!open_ && !call->items.empty() && call->before[0].computed_tokens == 0) {
        const int32_t status =
            world_.api->prefix_probe(world_.cache, call->items[0].seq, call->tokens.data(),
                                     call->items[0].token_count, &call->probed, world_.message());
        if (status < 0) fail("probe", status, " ", world_.error.message);
        call->was_probed = true;
    }
    const int32_t status =
        begin_or_add(call->items, call->tokens, call->results.data(), &step_.handle);
    world_.trace(open_ ? "step_add" : "step_begin", " step ", step_.id, " queue ", step_.queue,
                 " items ", call->items.size(), " -> ", status, " ", world_.refusal(status));
    if (status == QUIRE_E_UNSUPPORTED && world_.config.recurrent && world_.lookahead_serves) {
        world_.count(join("lookahead with recurrent: ", world_.error.message));
        world_.lookahead_serves = false;
        for (const Row &row : call->rows) world_.sequences[row.sequence] = row.before;
        return false;
    }
    world_.require_ok("begin", status);
    call->opened = !open_;
    open_ = true;
    world_.open_step = step_.handle;
    return true;
}

}  // namespace hybrid
