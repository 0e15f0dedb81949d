// SPDX-License-Identifier: Apache-2.0
//
// follower_writes: blocks that the leader's tier keeps, which this process copies to the host and
// gives to its own store.

#include "core/tiers/follower_tier.hpp"

namespace quire {

void FollowerTier::take_write(const TierOrder &order, const uint8_t *tokens, uint64_t step) {
    if (!is_serving() || desc_.write == QUIRE_TIER_WRITE_NONE || !blocks_.holds(order.group))
        return;
    const bool is_host = order.kind == kOrderWriteHost;
    close_gap();
    const uint64_t count = waiting_tokens_.size();
    const uint64_t block_tokens = books_.geometry.block_tokens;
    if (waiting_.size() - first_waiting_ == kMostWaiting) {
        ++books_.loads.counts.blocks_dropped;
        return;
    }
    const FollowedWrite write{
        {order.tenant, order.name, order.group, order.index}, order.block, is_host, false, step};
    if (!waiting_tokens_.reserve(count + block_tokens) || !waiting_.push_growing(write)) {
        ++books_.loads.counts.blocks_dropped;
        return;
    }
    waiting_tokens_.resize_within(count + block_tokens);
    std::memcpy(waiting_tokens_.data() + count, tokens, block_tokens * sizeof(quire_token));
    is_awaited_[is_host ? 1 : 0][order.group][order.block] = 1;
}

void FollowerTier::overwrite(uint32_t group, uint32_t block, bool is_host) {
    Array<uint8_t> &is_awaited = is_awaited_[is_host ? 1 : 0][group];
    if (is_awaited.size() == 0 || is_awaited[block] == 0) [[likely]]
        return;
    is_awaited[block] = 0;
    auto make_void = [&](FollowedWrite *write) {
        write->is_void |=
            write->block.group == group && write->number == block && write->is_host == is_host;
    };
    for (uint64_t i = first_waiting_; i < waiting_.size(); ++i) make_void(&waiting_[i]);
    for (uint32_t slot = 0; slot < Landings::kMost; ++slot) {
        if (landings_.is_used(slot)) make_void(&landed_[slot]);
    }
}

bool FollowerTier::is_known(const FollowedWrite &write) {
    if (is_remote_) return false;  // others may have removed it; the store looks for it first
    const quire_store_label label = blocks_.label(write.block);
    uint8_t found = QUIRE_STORE_UNKNOWN;
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    return link_->find(&label, 1, &found, &ignored).ok() && found == QUIRE_STORE_PRESENT;
}

// Gives a block to the store, whose part of each shard lies at parts[shard]. False: not now.
bool FollowerTier::put(const FollowedWrite &write, const quire_token *tokens,
                       const uint8_t *const *parts) {
    const uint64_t size = blocks_.size_bytes(write.block.group);
    const uint64_t under_way = link_->transfers.bytes(QUIRE_STORE_PUT);
    if (under_way != 0 && under_way + size > desc_.max_write_bytes) return false;
    Transfer *t = link_->transfers.take(QUIRE_STORE_PUT, size);
    if (t == nullptr) return false;
    blocks_.write(write.block, tokens, parts, t->bytes.data());
    spend(size);
    quire_store_request request{};
    request.kind = QUIRE_STORE_PUT;
    request.cookie = t->cookie;
    request.label = blocks_.label(write.block);
    request.pieces = &t->piece;
    request.piece_count = 1;
    uint32_t taken = 0;
    quire_error why{};
    why.struct_size = sizeof why;
    Status given = link_->submit(&request, 1, &taken, &why);
    if (given.ok() && taken == 1) return true;
    books_.loads.counts.blocks_refused += given.ok() ? 0 : 1;
    if (taken == 0) {
        link_->transfers.end(t);
    } else {
        note_fault(given, &why);
    }
    return !given.ok();
}

bool FollowerTier::put_host_block(const FollowedWrite &write, const quire_token *tokens) {
    const uint8_t *parts[kMaxShards] = {};
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        if (books_.shards[i].holds(write.block.group))
            parts[i] = books_.shards[i].host_block(write.block.group, write.number);
    }
    return put(write, tokens, parts);
}

// Begins to copy a block from the device. False: not now.
bool FollowerTier::begin_landing(const FollowedWrite &write, const quire_token *tokens) {
    uint32_t slot = 0;
    const Landings::Begun begun = landings_.begin(write.block.group, write.number, &slot);
    if (begun == Landings::Begun::full) return false;
    if (begun == Landings::Begun::refused) {
        ++books_.loads.counts.blocks_dropped;
        return true;
    }
    landed_[slot] = write;
    const uint64_t block_tokens = books_.geometry.block_tokens;
    std::memcpy(landed_tokens_.data() + slot * block_tokens, tokens, block_tokens * sizeof *tokens);
    return true;
}

// Takes a copy that has ended. False: the store takes no more for now.
bool FollowerTier::end_landing(uint32_t slot) {
    const FollowedWrite &write = landed_[slot];
    if (fault_.is_broken() || is_stopped_) {
        ++books_.loads.counts.blocks_dropped;
    } else if (write.is_void) {
        ++books_.loads.counts.blocks_evicted;
    } else {
        const uint8_t *parts[kMaxShards] = {};
        landings_.find_parts(slot, parts);
        const quire_token *tokens =
            landed_tokens_.data() + uint64_t{slot} * books_.geometry.block_tokens;
        if (!put(write, tokens, parts)) return false;
    }
    landings_.end(slot);
    return true;
}

// Moves what waits to the front once that frees half of the list.
void FollowerTier::close_gap() {
    const uint64_t left = waiting_.size() - first_waiting_;
    if (first_waiting_ < left || first_waiting_ == 0) return;
    const uint64_t block_tokens = books_.geometry.block_tokens;
    std::memmove(waiting_.data(), waiting_.data() + first_waiting_, left * sizeof(FollowedWrite));
    std::memmove(waiting_tokens_.data(), waiting_tokens_.data() + first_waiting_ * block_tokens,
                 left * block_tokens * sizeof(quire_token));
    waiting_.shrink(left);
    waiting_tokens_.shrink(left * block_tokens);
    first_waiting_ = 0;
}

void FollowerTier::pop_front() {
    if (++first_waiting_ != waiting_.size()) return;
    waiting_.shrink(0);
    waiting_tokens_.shrink(0);
    first_waiting_ = 0;
}

// Takes the first that waits. False: it has to wait.
bool FollowerTier::write_front() {
    const FollowedWrite write = waiting_[first_waiting_];
    const quire_token *tokens =
        waiting_tokens_.data() + first_waiting_ * books_.geometry.block_tokens;
    quire_cache_tier_stats &counts = books_.loads.counts;
    if (fault_.is_broken() || is_stopped_) {
        ++counts.blocks_dropped;
    } else if (write.is_void) {
        ++counts.blocks_evicted;
    } else if (!books_.timeline.done(write.step - 1)) {
        if (!is_detaching_) return false;
        ++counts.blocks_dropped;
    } else if (is_known(write)) {
        ++counts.blocks_known;
    } else {
        const bool is_begun =
            write.is_host ? put_host_block(write, tokens) : begin_landing(write, tokens);
        if (!is_begun) return false;
    }
    pop_front();
    return true;
}

void FollowerTier::write() {
    for (uint32_t slot = 0; landings_.count() != 0 && slot < Landings::kMost; ++slot) {
        if (!landings_.is_used(slot) || budget_ == 0) continue;
        const Landings::State state = landings_.look(slot);
        if (state == Landings::State::unused) break;
        if (state == Landings::State::landed && !end_landing(slot)) break;
    }
    while (first_waiting_ != waiting_.size() && budget_ != 0 && write_front())
        spend(sizeof(FollowedWrite));
}

}  // namespace quire
