// SPDX-License-Identifier: Apache-2.0
//
// follower_loads: the loads of which the leader's log told: what the store has of them goes to the
// host blocks that the leader chose, and how far that went is reported.

#include "core/tiers/follower_tier.hpp"

namespace quire {

// All orders of a load come one after another, each for another block, of the same tenant.
Status FollowerTier::check_load(const TierOrder &order) {
    const uint32_t length = order.index + 1;
    uint64_t most = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g)
        most += books_.geometry.groups[g].host_blocks;
    bool fits = order.count != 0 && order.count <= most;
    if (missing_ == 0) {
        fits = fits && order.serial > checked_last_ && checked_count_ < kMostLoads;
        if (fits) checked_[checked_count_++] = CheckedLoad{order.serial, length};
        missing_ = order.count;
        checked_last_ = order.serial;
    } else {
        const bool is_later = order.group != before_.group ? order.group > before_.group
                                                           : order.index > before_.index;
        fits = fits && is_later && order.serial == before_.serial && order.count == before_.count &&
               order.tenant == before_.tenant;
        if (fits && length > checked_[checked_count_ - 1].length)
            checked_[checked_count_ - 1].length = length;
    }
    if (!fits)
        return fail(QUIRE_E_ARG, "damaged log: load {} of {} blocks", order.serial, order.count);
    before_ = order;
    --missing_;
    return Status{};
}

Status FollowerTier::check_end(const TierOrder &order) {
    uint32_t at = 0;
    while (at < checked_count_ && checked_[at].serial != order.serial) ++at;
    const bool fits = order.serial != 0 && at < checked_count_ &&
                      order.index < checked_[at].length && order.group == 0 && order.block == 0 &&
                      order.count == 0 && order.tenant == Digest{} && order.name == Digest{};
    if (!fits) {
        return fail(QUIRE_E_ARG, "damaged log: load {} cannot end at block {}", order.serial,
                    order.index);
    }
    checked_[at].length = order.index;
    if (order.index == 0) checked_[at] = checked_[--checked_count_];
    return Status{};
}

FollowerTier::FollowedLoad *FollowerTier::find(uint64_t serial) {
    for (FollowedLoad &load : loads_) {
        if (load.serial == serial) return &load;
    }
    return nullptr;
}

// Without a store, or memory, the load is a miss.
void FollowerTier::take_load(const TierOrder &order, const uint8_t *tokens, uint64_t step) {
    FollowedLoad *load = find(order.serial);
    if (load == nullptr) {
        load = find(0);
        QUIRE_ASSERT(load != nullptr);
        load->serial = last_serial_ = order.serial;
        load->step = step;
        load->length = load->whole = load->next = load->awaited = 0;
        load->is_decided = load->is_reported = false;
        load->tenant = order.tenant;
        missing_ = order.count;
        books_.loads.counts.loads_begun += link_ != nullptr ? 1 : 0;
    }
    overwrite(order.group, order.block, true);
    const bool is_lost = load->whole != load->length;
    if (order.index >= load->length) load->length = order.index + 1;
    const uint64_t block_tokens = books_.geometry.block_tokens;
    const uint64_t count = load->tokens.size();
    bool ok = !is_lost && is_serving();
    if (ok && blocks_.holds(order.group)) {
        ok = load->tokens.reserve(count + block_tokens) &&
             load->entries.push_growing(
                 Entry{order.name, order.group, order.index, order.block, false});
        load->awaited += ok ? 1 : 0;
    }
    if (ok) {
        load->whole = load->length;
        load->tokens.resize_within(load->entries.size() * block_tokens);
        if (load->tokens.size() != count)
            std::memcpy(load->tokens.data() + count, tokens, block_tokens * sizeof(quire_token));
    } else {
        load->whole = load->awaited = 0;
    }
    if (--missing_ == 0 && load->awaited == 0) decide(load);
}

// Late answers find no load, or a shorter one.
void FollowerTier::take_end(const TierOrder &order) {
    FollowedLoad *load = find(order.serial);
    QUIRE_ASSERT(load != nullptr);
    if (order.index != 0) {
        load->length = order.index;
        return shorten(load, order.index);
    }
    if (!load->is_decided) {
        ++ended_;
        ++books_.loads.counts.loads_cancelled;
    }
    load->serial = 0;
    load->entries.shrink(0);
    load->tokens.shrink(0);
}

// The store lacks block `whole`, or the leader does not want it.
void FollowerTier::shorten(FollowedLoad *load, uint32_t whole) {
    if (whole >= load->whole) return;
    load->whole = whole;
    if (load->is_decided) return;
    load->awaited = 0;
    for (const Entry &entry : load->entries)
        load->awaited += !entry.is_settled && entry.index < whole ? 1 : 0;
    if (load->awaited == 0) decide(load);
}

void FollowerTier::decide(FollowedLoad *load) {
    load->is_decided = true;
    load->entries.shrink(0);
    load->tokens.shrink(0);
    if (link_ == nullptr) return;
    ++ended_;
    quire_cache_tier_stats &counts = books_.loads.counts;
    ++(load->whole == load->length ? counts.loads_ready : counts.loads_missed);
}

void FollowerTier::give_up_loads() {
    for (FollowedLoad &load : loads_) {
        if (load.serial != 0 && !load.is_decided) shorten(&load, 0);
    }
}

// The load that waits for the answer; nullptr: it has ended, or does without that block.
FollowerTier::FollowedLoad *FollowerTier::load_of(const Transfer &transfer) {
    if (transfer.kind != QUIRE_STORE_GET) return nullptr;
    FollowedLoad &load = loads_[transfer.load];
    if (load.serial == 0 || load.serial != transfer.serial || load.is_decided) return nullptr;
    return load.entries[transfer.entry].index < load.whole ? &load : nullptr;
}

bool FollowerTier::is_right(const Transfer &transfer, const FollowedLoad &load,
                            const Entry &entry) {
    const BlockName block{load.tenant, entry.name, entry.group, entry.index};
    const quire_token *tokens =
        load.tokens.data() + uint64_t{transfer.entry} * books_.geometry.block_tokens;
    const auto verdict = blocks_.judge(block, tokens, transfer.bytes.data(), transfer.bytes.size());
    quire_cache_tier_stats &counts = books_.loads.counts;
    counts.values_damaged += verdict == StoredBlocks::Verdict::damaged ? 1 : 0;
    counts.values_foreign += verdict == StoredBlocks::Verdict::foreign ? 1 : 0;
    return verdict == StoredBlocks::Verdict::right;
}

void FollowerTier::take_value(const Transfer &transfer, const quire_store_answer &answer,
                              FollowedLoad *load) {
    Entry &entry = load->entries[transfer.entry];
    quire_cache_tier_stats &counts = books_.loads.counts;
    const uint32_t outcome = answer.outcome;
    counts.values_damaged += outcome == QUIRE_STORE_DAMAGED ? 1 : 0;
    counts.values_foreign += outcome == QUIRE_STORE_FOREIGN || outcome == QUIRE_STORE_SIZE ? 1 : 0;
    if (outcome == QUIRE_STORE_DONE) spend(transfer.piece.size_bytes);
    if (outcome != QUIRE_STORE_DONE || !is_right(transfer, *load, entry)) {
        ++counts.blocks_lost;
        return shorten(load, entry.index);
    }
    blocks_.fill(entry.group, entry.block, transfer.bytes.data(), transfer.bytes.size());
    counts.bytes_loaded += transfer.piece.size_bytes;
    entry.is_settled = true;
    if (--load->awaited == 0) decide(load);
}

// The load that was told of first and has more to ask for. The steps before its log must have run,
// because they may still use its host blocks.
FollowerTier::FollowedLoad *FollowerTier::next_load() {
    FollowedLoad *next = nullptr;
    for (FollowedLoad &load : loads_) {
        if (load.serial == 0 || load.is_decided || load.next == load.entries.size()) continue;
        if (!books_.timeline.done(load.step - 1)) continue;
        if (next == nullptr || load.serial < next->serial) next = &load;
    }
    return next;
}

// Fills a request for the load's next block. False: no more can be under way.
bool FollowerTier::fill_request(FollowedLoad *load, Requests *out) {
    const Entry &entry = load->entries[load->next];
    const uint64_t size = blocks_.size_bytes(entry.group);
    const uint64_t bytes = link_->transfers.bytes(QUIRE_STORE_GET);
    if (bytes != 0 && bytes + size > desc_.max_load_bytes) return false;
    Transfer *t = link_->transfers.take(QUIRE_STORE_GET, size);
    if (t == nullptr) return false;
    t->load = static_cast<uint32_t>(load - loads_);
    t->serial = load->serial;
    t->entry = load->next;
    quire_store_request &request = out->requests[out->count];
    request = quire_store_request{};
    request.kind = QUIRE_STORE_GET;
    request.cookie = t->cookie;
    request.label = blocks_.label(BlockName{load->tenant, entry.name, entry.group, entry.index});
    request.pieces = &t->piece;
    request.piece_count = 1;
    out->next[out->count] = load->next++;
    out->transfers[out->count++] = t;
    return true;
}

// Asks for the load's next blocks. False: the store takes no more for now.
bool FollowerTier::ask_for(FollowedLoad *load) {
    Requests asked;
    while (asked.count != kAtOnce && load->next != load->entries.size()) {
        if (load->entries[load->next].index >= load->whole) {
            ++load->next;
        } else if (!fill_request(load, &asked)) {
            break;
        }
    }
    if (asked.count == 0) return load->next == load->entries.size();
    uint32_t taken = 0;
    quire_error why{};
    why.struct_size = sizeof why;
    Status given = link_->submit(asked.requests, asked.count, &taken, &why);
    for (uint32_t i = asked.count; i-- > taken;) {
        load->next = asked.next[i];
        link_->transfers.end(asked.transfers[i]);
    }
    if (!given.ok() && taken != 0) {
        note_fault(given, &why);
    } else if (!given.ok()) {
        ++books_.loads.counts.loads_failed;
        shorten(load, 0);
    }
    return given.ok() && taken == asked.count;
}

void FollowerTier::ask() {
    for (FollowedLoad *load = next_load(); load != nullptr; load = next_load())
        if (!ask_for(load) || fault_.is_broken()) return;
}

// Tells the store of requests that no load waits for any more. Their memory stays until they end.
void FollowerTier::cancel_orphans() {
    if (link_->transfers.count(QUIRE_STORE_GET) == 0) return;
    for (uint32_t slot = 0; slot < Transfers::kMost; ++slot) {
        Transfer &t = link_->transfers[slot];
        if (t.cookie == 0 || t.kind != QUIRE_STORE_GET || t.is_cancelled) continue;
        if (load_of(t) != nullptr) continue;
        t.is_cancelled = true;
        quire_error ignored{};
        ignored.struct_size = sizeof ignored;
        (void)link_->cancel(t.cookie, &ignored);
    }
}

uint64_t FollowerTier::report_bytes() const {
    uint64_t count = 0;
    for (const FollowedLoad &load : loads_)
        count += load.serial != 0 && load.is_decided && !load.is_reported ? 1 : 0;
    return count != 0 ? sizeof(ReportHeader) + count * sizeof(LoadOutcome) : 0;
}

void FollowerTier::write_report(uint64_t leader, uint64_t follower, uint8_t *out) {
    ReportHeader header{};
    header.leader = leader;
    header.follower = follower;
    header.number = ++reports_;
    for (FollowedLoad &load : loads_) {
        if (load.serial == 0 || !load.is_decided || load.is_reported) continue;
        load.is_reported = true;
        const LoadOutcome outcome{load.serial, load.whole, 0};
        std::memcpy(out + sizeof header + header.count++ * sizeof outcome, &outcome,
                    sizeof outcome);
    }
    seal_report(header, out);
}

}  // namespace quire
