// SPDX-License-Identifier: Apache-2.0
//
// load_requests: what loads ask the store: first which blocks it has, where it does not know that
// from memory, then for their values.

#include "core/tiers/cache_tier.hpp"

namespace quire {

// Passes over what the load knows, or does not need. False: it has nothing more to ask.
bool CacheTier::has_to_ask(Load *load) const {
    const Geometry &geometry = books_.geometry;
    for (; load->next < load->length * geometry.group_count; ++load->next) {
        const uint32_t group = load->next % geometry.group_count;
        const uint32_t index = load->next / geometry.group_count;
        const bool is_needed = geometry.groups[group].windowed || index >= load->first;
        if (is_needed && load->known(group, index) == QUIRE_STORE_UNKNOWN) return true;
    }
    return false;
}

// The load that began first and has more to ask for; nullptr: none has.
Load *CacheTier::next_load() const {
    Load *next = nullptr;
    for (uint32_t slot = 0; slot < Loads::kMost; ++slot) {
        Load &load = books_.loads[slot];
        if (load.handle == 0 || load.is_ready) continue;
        if (!load.is_asking && load.next == load.blocks.size()) continue;
        if (load.is_asking && !has_to_ask(&load)) continue;
        if (next == nullptr || load.serial < next->serial) next = &load;
    }
    return next;
}

// Fills a request for the load's next block. False: no more can be under way.
bool CacheTier::fill_request(Load *load, LoadRequests *out) {
    const uint32_t groups = books_.geometry.group_count;
    const uint32_t at = load->next;
    const uint32_t group = load->is_asking ? at % groups : load->group_of(at);
    const uint32_t index = load->is_asking ? at / groups : load->index_of(at);
    const uint32_t kind = load->is_asking ? QUIRE_STORE_FIND : QUIRE_STORE_GET;
    const uint64_t size = load->is_asking ? 0 : blocks_.size_bytes(group);
    const uint64_t bytes = link_->transfers.bytes(QUIRE_STORE_GET);
    if (load->is_asking ? link_->transfers.count(kind) == kMostAsked
                        : bytes != 0 && bytes + size > desc_.max_load_bytes) {
        return false;
    }
    Transfer *t = link_->transfers.take(kind, size);
    if (t == nullptr) return false;
    t->load = books_.loads.slot_of(*load);
    t->serial = load->serial;
    t->entry = group * load->stride + index;
    const Digest &tenant = *keys_.tenant(books_.sequences[load->sequence].root);
    quire_store_request &request = out->requests[out->count];
    request = quire_store_request{};
    request.kind = kind;
    request.cookie = t->cookie;
    request.label = blocks_.label(load->names[index], group, tenant);
    request.pieces = load->is_asking ? nullptr : &t->piece;
    request.piece_count = load->is_asking ? 0 : 1;
    out->next[out->count] = at;
    out->transfers[out->count++] = t;
    load->awaited += load->is_asking ? 1 : 0;
    ++load->next;
    return true;
}

// Asks for the load's next blocks. False: the store takes no more for now.
bool CacheTier::ask_for(Load *load) {
    LoadRequests asked;
    while (asked.count != kAtOnce) {
        if (load->is_asking ? !has_to_ask(load) : load->next == load->blocks.size()) break;
        if (!load->is_asking && !is_awaited(*load, load->next)) {
            ++load->next;
        } else if (!fill_request(load, &asked)) {
            break;
        }
    }
    if (asked.count == 0) return !load->is_asking && load->next == load->blocks.size();
    uint32_t taken = 0;
    quire_error why{};
    why.struct_size = sizeof why;
    Status given = link_->submit(asked.requests, asked.count, &taken, &why);
    for (uint32_t i = asked.count; i-- > taken;) {
        load->next = asked.next[i];
        load->awaited -= load->is_asking ? 1 : 0;
        link_->transfers.end(asked.transfers[i]);
    }
    if (!given.ok() && taken != 0) {
        note_fault(given, &why);
    } else if (!given.ok()) {
        ++books_.loads.counts.loads_failed;
        books_.loads.fail(load);
    }
    return given.ok() && taken == asked.count;
}

void CacheTier::ask_for_loads() {
    if (fault_.is_broken()) return;
    while (books_.loads.count() != 0) {
        Load *load = next_load();
        if (load == nullptr || !ask_for(load)) return;
    }
}

// The store says whether it has a block.
void CacheTier::take_found(const Transfer &transfer, const quire_store_answer &answer, Load *load) {
    const uint32_t group = load->group_of(transfer.entry), index = load->index_of(transfer.entry);
    const bool is_there = answer.outcome == QUIRE_STORE_DONE;
    load->found_in_store[transfer.entry] = is_there ? QUIRE_STORE_PRESENT : QUIRE_STORE_ABSENT;
    const Digest &tenant = *keys_.tenant(books_.sequences[load->sequence].root);
    const bool is_unsure = answer.outcome > QUIRE_STORE_DAMAGED;
    load->has_failed |= is_unsure;
    if (!is_there && !is_unsure)
        books_.told.remove(blocks_.label(load->names[index], group, tenant).key);
    if (is_there || books_.geometry.groups[group].windowed) {
        --load->awaited;
    } else {
        cut(load, index);
    }
    if (!is_enough(load->length, load->found)) return miss(load);
    if (load->awaited == 0 && !has_to_ask(load)) end_asking(load);
}

// All is known: the load goes on, or ends.
void CacheTier::end_asking(Load *load) {
    const uint32_t length = best_length(*load);
    const uint64_t shorts = books_.loads.counts.loads_short;
    load->is_asking = false;
    if (is_enough(length, load->found) && take_blocks(length, load)) return;
    if (books_.loads.counts.loads_short == shorts) return miss(load);
    books_.loads.fail(load);
}

}  // namespace quire
