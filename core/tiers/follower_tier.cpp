// SPDX-License-Identifier: Apache-2.0

#include "core/tiers/follower_tier.hpp"

#include "core/tiers/tier_terms.hpp"

namespace quire {

FollowerTier::FollowerTier(CacheBooks *books)
    : books_(*books),
      blocks_(books),
      landings_(books),
      landed_tokens_(&books->host),
      waiting_(&books->host),
      waiting_tokens_(&books->host) {
    for (FollowedLoad &load : loads_) {
        load.entries.bind(&books->host);
        load.tokens.bind(&books->host);
    }
    for (auto &of_tier : is_awaited_) {
        for (Array<uint8_t> &of_group : of_tier) of_group.bind(&books->host);
    }
}

Status FollowerTier::check(const quire_cache_tier_desc &desc, const quire_store_info &store,
                           bool is_read_only) const {
    if (link_ != nullptr) return fail(QUIRE_E_BUSY, "the cache has a tier: detach that first");
    return check_terms(books_, blocks_, desc, store, is_read_only);
}

Status FollowerTier::attach(const quire_cache_tier_desc &desc, const quire_store_info &store,
                            StoreLink *link) {
    const bool writes = desc.write != QUIRE_TIER_WRITE_NONE;
    bool ok =
        !writes || landed_tokens_.create(uint64_t{Landings::kMost} * books_.geometry.block_tokens);
    for (uint32_t g = 0; writes && g < books_.geometry.group_count; ++g) {
        ok = ok && is_awaited_[0][g].create(books_.geometry.groups[g].blocks) &&
             is_awaited_[1][g].create(books_.geometry.groups[g].host_blocks);
    }
    if (!ok) return no_host_memory();
    for (auto &of_tier : is_awaited_) {
        for (Array<uint8_t> &of_group : of_tier) {
            if (of_group.size() != 0) std::memset(of_group.data(), 0, of_group.size());
        }
    }
    desc_ = with_defaults(desc);
    blocks_.open(desc.fingerprint);
    is_remote_ = (store.flags & QUIRE_STORE_REMOTE) != 0;
    fault_.clear();
    flush_.clear();
    landings_.open();
    books_.loads.counts = quire_cache_tier_stats{};
    ended_ = 0;
    is_detaching_ = false;
    link_ = link;
    return Status{};
}

void FollowerTier::note_fault(const Status &status, const quire_error *words) {
    if (fault_.note(status, words)) give_up_loads();
}

void FollowerTier::make_progress(uint64_t most_bytes) {
    budget_ = most_bytes;
    if (!fault_.is_broken()) reap();
    if (!fault_.is_broken()) cancel_orphans();
    if (is_serving()) ask();
    write();
}

void FollowerTier::reap() {
    uint32_t count = kAtOnce;
    while (count == kAtOnce && budget_ != 0 && !fault_.is_broken()) {
        quire_store_answer answers[kAtOnce] = {};
        count = 0;
        Status reaped = link_->reap(answers, kAtOnce, &count, fault_.words());
        if (!reaped.ok()) return note_fault(reaped);
        for (uint32_t i = 0; i < count && !fault_.is_broken(); ++i) take_answer(answers[i]);
    }
}

void FollowerTier::take_answer(const quire_store_answer &answer) {
    if (answer.kind == 0) return;  // a notice, for readers of events: a follower has none
    Transfer *transfer = link_->transfers.find(answer.cookie, answer.kind);
    if (transfer == nullptr || answer.outcome > QUIRE_STORE_CANCELLED)
        return note_fault(fail(QUIRE_E_BACKEND,
                               "the store broke its contract: reap gave an answer "
                               "to no request, or an unknown outcome"));
    quire_cache_tier_stats &counts = books_.loads.counts;
    if (FollowedLoad *load = load_of(*transfer); load != nullptr) {
        take_value(*transfer, answer, load);
    } else if (answer.kind == QUIRE_STORE_PUT) {
        const bool is_done = answer.outcome == QUIRE_STORE_DONE;
        ++(is_done ? counts.blocks_written : counts.blocks_refused);
        counts.bytes_written += is_done ? transfer->piece.size_bytes : 0;
    } else if (answer.kind == QUIRE_STORE_FLUSH) {
        flush_.answered();
    }
    link_->transfers.end(transfer);
}

void FollowerTier::tell(quire_cache_tier_progress *out) const {
    for (const FollowedLoad &load : loads_) {
        if (load.serial == 0) continue;
        ++(load.is_decided ? out->loads_ready : out->loads_running);
    }
    out->loads_ended = ended_;
    out->blocks_queued = waiting_.size() - first_waiting_ + landings_.count() +
                         link_->transfers.count(QUIRE_STORE_PUT);
}

void FollowerTier::begin_detach() {
    is_detaching_ = true;
    give_up_loads();
}

bool FollowerTier::is_drained() {
    if (fault_.is_broken()) return true;
    return !awaits_content() && flush_.is_over(link_, fault_.words());
}

void FollowerTier::end_detach() {
    leave_devices();
    books_.loads.counts.blocks_dropped += waiting_.size() - first_waiting_;
    waiting_.clear();
    waiting_tokens_.clear();
    first_waiting_ = 0;
    landed_tokens_.clear();
    for (auto &of_tier : is_awaited_) {
        for (Array<uint8_t> &of_group : of_tier) of_group.clear();
    }
    link_ = nullptr;
}

// A load that is not decided yet is told to be a miss.
void FollowerTier::stop() {
    is_stopped_ = true;
    give_up_loads();
}

void FollowerTier::begin_check() {
    checked_count_ = 0;
    for (const FollowedLoad &load : loads_) {
        if (load.serial != 0) checked_[checked_count_++] = CheckedLoad{load.serial, load.length};
    }
    checked_last_ = last_serial_;
    missing_ = 0;
}

Status FollowerTier::check(const TierOrder &order, const uint8_t *tokens) {
    const Geometry &geometry = books_.geometry;
    if (order.reserved0 != 0 || order.group >= geometry.group_count ||
        (missing_ != 0 && order.kind != kOrderLoad)) {
        return fail(QUIRE_E_ARG, "damaged log: an order of kind {} for group {}", order.kind,
                    order.group);
    }
    const GroupGeometry &g = geometry.groups[order.group];
    const bool is_host = order.kind == kOrderLoad || order.kind == kOrderWriteHost;
    const uint32_t blocks = is_host ? g.host_blocks : g.blocks;
    const uint32_t most = g.size.blocks_of(geometry.max_sequence_tokens);
    if (order.kind == kOrderEnd) return check_end(order);
    if (order.block == kNullBlock || order.block >= blocks || order.index >= most)
        return fail(QUIRE_E_ARG, "damaged log: an order for block {}, number {} of a sequence",
                    order.block, order.index);
    for (uint32_t i = 0; i < geometry.block_tokens; ++i) {
        quire_token id = 0;
        std::memcpy(&id, tokens + uint64_t{i} * sizeof id, sizeof id);
        if (id == QUIRE_TOKEN_UNKNOWN)
            return fail(QUIRE_E_ARG, "damaged log: an order has a token without an id");
    }
    if (order.kind == kOrderLoad) return check_load(order);
    const bool is_write = order.kind == kOrderWrite || order.kind == kOrderWriteHost;
    if (is_write && order.serial == 0 && order.count == 0) return Status{};
    return fail(QUIRE_E_ARG, "damaged log: an order of kind {} has a serial or {} parts",
                order.kind, order.count);
}

Status FollowerTier::end_check() const {
    if (missing_ == 0) return Status{};
    return fail(QUIRE_E_ARG, "damaged log: a load lacks {} of its orders", missing_);
}

void FollowerTier::take(const TierOrder &order, const uint8_t *tokens, uint64_t step) {
    switch (order.kind) {
        case kOrderLoad:
            return take_load(order, tokens, step);
        case kOrderEnd:
            return take_end(order);
        default:
            return take_write(order, tokens, step);
    }
}

}  // namespace quire
