// SPDX-License-Identifier: Apache-2.0
//
// load_progress: asks for what loads lack, and takes the store's answers.

#include "core/tiers/cache_tier.hpp"

namespace quire {

// The load that waits for the answer; nullptr: it has ended, or does without that block.
Load *CacheTier::load_of(const Transfer &transfer) {
    if (transfer.kind != QUIRE_STORE_GET && transfer.kind != QUIRE_STORE_FIND) return nullptr;
    Load &load = books_.loads[transfer.load];
    if (load.handle == 0 || load.serial != transfer.serial) return nullptr;
    if (load.is_asking != (transfer.kind == QUIRE_STORE_FIND)) return nullptr;
    return load.index_of(transfer.entry) < load.length ? &load : nullptr;
}

void CacheTier::reap() {
    uint32_t count = kAtOnce;
    while (count == kAtOnce && budget_ != 0 && !fault_.is_broken()) {
        quire_store_answer answers[kAtOnce] = {};
        count = 0;
        Status reaped = link_->reap(answers, kAtOnce, &count, fault_.words());
        if (!reaped.ok()) return note_fault(reaped);
        for (uint32_t i = 0; i < count && !fault_.is_broken(); ++i) take_answer(answers[i]);
    }
}

void CacheTier::take_answer(const quire_store_answer &answer) {
    if (answer.kind == 0) return take_notice(answer);
    Transfer *transfer = link_->transfers.find(answer.cookie, answer.kind);
    if (transfer == nullptr || answer.outcome > QUIRE_STORE_CANCELLED)
        return note_fault(fail(QUIRE_E_BACKEND,
                               "the store broke its contract: reap gave an answer "
                               "to no request, or an unknown outcome"));
    quire_cache_tier_stats &counts = books_.loads.counts;
    if (Load *load = load_of(*transfer); load != nullptr) {
        if (load->is_asking) {
            take_found(*transfer, answer, load);
        } else {
            take_value(*transfer, answer, load);
        }
    } else if (answer.kind == QUIRE_STORE_PUT) {
        const bool is_done = answer.outcome == QUIRE_STORE_DONE;
        ++(is_done ? counts.blocks_written : counts.blocks_refused);
        counts.bytes_written += is_done ? transfer->piece.size_bytes : 0;
        end_put(*transfer, answer);
    } else if (answer.kind == QUIRE_STORE_FLUSH) {
        flush_.answered();
    }
    link_->transfers.end(transfer);
}

// Loads ask find, so a notice is for readers of events alone.
void CacheTier::take_notice(const quire_store_answer &notice) {
    if (notice.outcome == QUIRE_STORE_NOTICE_GONE) books_.told.remove(notice.label.key);
    if (notice.outcome == QUIRE_STORE_NOTICE_LOST) books_.told.remove_all();
}

// True if the value is the block that the load awaits; counts what is wrong with it.
bool CacheTier::is_right(const Transfer &transfer, const Load &load) {
    const uint32_t group = load.group_of(transfer.entry), index = load.index_of(transfer.entry);
    const BlockName block{*keys_.tenant(books_.sequences[load.sequence].root), load.names[index],
                          group, index};
    const quire_token *tokens =
        load.tokens.data() + uint64_t{index} * books_.geometry.span.tokens();
    const auto verdict = blocks_.judge(block, tokens, transfer.bytes.data(), transfer.bytes.size());
    quire_cache_tier_stats &counts = books_.loads.counts;
    counts.values_damaged += verdict == StoredBlocks::Verdict::damaged ? 1 : 0;
    counts.values_foreign += verdict == StoredBlocks::Verdict::foreign ? 1 : 0;
    return verdict == StoredBlocks::Verdict::right;
}

void CacheTier::take_value(const Transfer &transfer, const quire_store_answer &answer, Load *load) {
    quire_cache_tier_stats &counts = books_.loads.counts;
    switch (answer.outcome) {
        case QUIRE_STORE_DONE:
            spend(transfer.piece.size_bytes);
            if (is_right(transfer, *load)) break;
            return lose(load, transfer.entry);
        case QUIRE_STORE_DAMAGED:
            ++counts.values_damaged;
            return lose(load, transfer.entry);
        case QUIRE_STORE_FOREIGN:
        case QUIRE_STORE_SIZE:
            ++counts.values_foreign;
            return lose(load, transfer.entry);
        case QUIRE_STORE_MISS:
            return lose(load, transfer.entry);
        default:
            load->has_failed = true;
            return do_without(load, load->index_of(transfer.entry));
    }
    blocks_.fill(load->group_of(transfer.entry), load->blocks[transfer.entry],
                 transfer.bytes.data(), transfer.bytes.size());
    counts.bytes_loaded += transfer.piece.size_bytes;
    if (--load->awaited == 0) end_wait(load);
}

// A follower says that it has the first `whole` blocks of a load, and no more. A load that has
// ended meanwhile, or of which the follower has reported before, is none of its business.
void CacheTier::take_outcome(uint32_t follower, uint64_t serial, uint32_t whole) {
    Load *load = link_ != nullptr ? books_.loads.find_serial(serial) : nullptr;
    const uint64_t bit = uint64_t{1} << follower;
    if (load == nullptr || !load->is_told || load->is_ready || (load->reporters & bit) != 0) return;
    load->reporters |= bit;
    --load->unreported;
    --load->awaited;
    if (whole < load->length) return do_without(load, whole);
    if (load->awaited == 0) end_wait(load);
}

void CacheTier::end_wait(Load *load) {
    load->is_ready = true;
    load->expiry_ns = now_ns() + desc_.load_expiry_ns;
    ++books_.loads.counts.loads_ready;
    ++books_.loads.ended;
}

// Too little is left of the load.
void CacheTier::miss(Load *load) {
    quire_cache_tier_stats &counts = books_.loads.counts;
    ++(load->has_failed ? counts.loads_failed : counts.loads_missed);
    books_.loads.fail(load);
}

// The store does not have the value of an entry.
void CacheTier::lose(Load *load, uint64_t entry) {
    const uint32_t group = load->group_of(entry), index = load->index_of(entry);
    const Digest &tenant = *keys_.tenant(books_.sequences[load->sequence].root);
    books_.told.remove(blocks_.label(load->names[index], group, tenant).key);
    do_without(load, index);
}

// A value of the block `index` is not to be had. The blocks before it still make a hit, unless they
// are too few, or a window needs blocks for it that the load does not have.
void CacheTier::do_without(Load *load, uint32_t index) {
    const bool is_missed = books_.geometry.any_window || !is_enough(index, load->found);
    cut(load, is_missed ? 0 : index);
    if (is_missed) {
        miss(load);
    } else if (load->awaited == 0) {
        end_wait(load);
    }
}

// Gives back the host blocks from `length` on. Requests that are under way for them have no load
// now.
void CacheTier::cut(Load *load, uint32_t length) {
    for (uint32_t slot = 0; slot < Transfers::kMost; ++slot) {
        const Transfer &t = link_->transfers[slot];
        if (t.cookie == 0 || load_of(t) != load) continue;
        load->awaited -= load->index_of(t.entry) >= length ? 1 : 0;
    }
    for (uint32_t g = 0; !load->is_asking && g < books_.geometry.group_count; ++g) {
        for (uint32_t i = length; i < load->length; ++i) {
            const uint64_t entry = uint64_t{g} * load->stride + i;
            if (load->blocks[entry] == kNullBlock) continue;
            const bool was_to_be_asked_for = entry >= load->next && is_awaited(*load, entry);
            load->awaited -= was_to_be_asked_for ? 1 : 0;
            books_.loads.drop_block(load, entry);
            ++books_.loads.counts.blocks_lost;
        }
    }
    books_.loads.note_cut(*load, length);
    load->length = length;
    load->tokens.shrink(uint64_t{length} * books_.geometry.span.tokens());
    load->names.shrink(length);
}

void CacheTier::expire() {
    const uint64_t now = now_ns();
    for (uint32_t slot = 0; slot < Loads::kMost; ++slot) {
        Load &load = books_.loads[slot];
        if (load.handle == 0 || load.is_taken) continue;
        if (!load.is_ready && now >= load.deadline_ns) {
            ++books_.loads.counts.loads_late;
            books_.loads.fail(&load);
        } else if (load.is_ready && now >= load.expiry_ns) {
            ++books_.loads.counts.loads_expired;
            books_.loads.drop(&load);
        }
    }
}

// Tells the store of requests that no load waits for any more. Their memory stays until they end.
void CacheTier::cancel_orphans() {
    if (link_->transfers.count(QUIRE_STORE_GET) + link_->transfers.count(QUIRE_STORE_FIND) == 0)
        return;
    for (uint32_t slot = 0; slot < Transfers::kMost; ++slot) {
        Transfer &t = link_->transfers[slot];
        const bool is_of_load = t.kind == QUIRE_STORE_GET || t.kind == QUIRE_STORE_FIND;
        if (t.cookie == 0 || !is_of_load || t.is_cancelled || load_of(t) != nullptr) continue;
        t.is_cancelled = true;
        quire_error ignored{};
        ignored.struct_size = sizeof ignored;
        (void)link_->cancel(t.cookie, &ignored);
    }
}

}  // namespace quire
