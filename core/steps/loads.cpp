// SPDX-License-Identifier: Apache-2.0

#include "core/steps/loads.hpp"

namespace quire {

bool Loads::open(LoadSource *source, const Geometry *geometry, uint32_t max_sequences,
                 uint64_t expiry_ns) {
    if (!of_.create(max_sequences)) return false;
    for (Load &load : slots_) {
        load.tokens.bind(host_);
        load.names.bind(host_);
        load.blocks.bind(host_);
        load.found_in_store.bind(host_);
    }
    geometry_ = geometry;
    source_ = source;
    expiry_ns_ = expiry_ns;
    counts = quire_cache_tier_stats{};
    ended = 0;
    stopped_ = false;
    return true;
}

void Loads::close() {
    drop_all();
    for (Load &load : slots_) {
        load.tokens.clear();
        load.names.clear();
        load.blocks.clear();
        load.found_in_store.clear();
    }
    of_.clear();
    source_ = nullptr;
}

Load *Loads::find(uint32_t sequence, uint64_t handle) {
    if (source_ == nullptr || of_[sequence].handle != handle) return nullptr;
    uint32_t slot = of_[sequence].slot;
    return slot != kNone ? &slots_[slot] : nullptr;
}

// Empties a load, or one that was not begun.
void Loads::give_up(Load *load) {
    load->is_asking = load->is_ready = load->is_taken = load->has_failed = load->is_told = false;
    load->length = load->awaited = load->unreported = 0;
    load->reporters = 0;
    load->tokens.shrink(0);
    load->names.shrink(0);
    load->blocks.shrink(0);
    load->found_in_store.shrink(0);
}

// Frees the slot. The sequence's place is for the caller to set.
void Loads::clear(Load *load) {
    load->handle = 0;
    load->serial = 0;
    give_up(load);
    --count_;
}

void Loads::drop(Load *load) {
    QUIRE_ASSERT(load->handle != 0 && !load->is_taken);
    of_[load->sequence] = Place{};
    for (uint32_t i = 0; i < load->blocks.size(); ++i) {
        if (load->blocks[i] != kNullBlock) drop_block(load, i);
    }
    note_cut(*load, 0);
    if (!load->is_ready) ++ended;
    clear(load);
}

void Loads::drop_block(Load *load, uint64_t entry) {
    const uint32_t group = load->group_of(entry);
    journal_.drop_host(group, load->blocks[entry], 0);
    load->blocks[entry] = kNullBlock;
    --held_[group];
}

// Between two logs there are at most as many as there were loads at the first of them.
void Loads::note_end(uint64_t serial, uint32_t length) {
    for (uint32_t i = 0; i < end_count_; ++i) {
        if (ends_[i].serial != serial) continue;
        ends_[i].length = length;
        return;
    }
    QUIRE_ASSERT(end_count_ < kMost);
    ends_[end_count_++] = LoadEnd{serial, length};
}

Load *Loads::next_untold(uint64_t serial) {
    if (count_ == 0) [[likely]]
        return nullptr;
    Load *next = nullptr;
    for (Load &load : slots_) {
        const bool is_due = load.handle != 0 && !load.is_told && load.unreported != 0;
        if (!is_due || load.serial <= serial) continue;
        if (next == nullptr || load.serial < next->serial) next = &load;
    }
    return next;
}

Load *Loads::find_serial(uint64_t serial) {
    for (Load &load : slots_) {
        if (load.handle != 0 && load.serial == serial) return &load;
    }
    return nullptr;
}

void Loads::fail(Load *load) {
    const Place spent{load->handle, kNone};
    const uint32_t sequence = load->sequence;
    drop(load);
    of_[sequence] = spent;
}

void Loads::drop_begun(uint64_t call) {
    for (Load &load : slots_) {
        if (load.handle != 0 && load.call == call && !load.is_taken) drop(&load);
    }
}

void Loads::drop_all() {
    for (Load &load : slots_) {
        if (load.handle == 0) continue;
        ++counts.loads_cancelled;
        drop(&load);
    }
}

void Loads::forget(uint32_t sequence, uint64_t handle) {
    if (source_ == nullptr || of_[sequence].handle != handle) return;
    if (Load *load = find(sequence, handle); load != nullptr) {
        ++counts.loads_cancelled;
        drop(load);
    }
    of_[sequence] = Place{};
}

void Loads::settle(Load *load) {
    source_->note_used(*load);
    ++(load->used != 0 ? counts.loads_used : counts.loads_cancelled);
    if (load->used > load->found)
        counts.tokens_loaded += uint64_t{load->used - load->found} * geometry_->span.tokens();
    of_[load->sequence] = Place{};
    for (uint32_t i = 0; i < load->blocks.size(); ++i) {
        if (load->blocks[i] != kNullBlock) --held_[load->group_of(i)];
    }
    note_cut(*load, 0);
    clear(load);
}

// True if the load is of the request's tokens, so that its first blocks serve the request. If the
// request may find less than the load brings, a window needs blocks that the load does not have.
bool Loads::is_of(const Load &load, const LoadRequest &request) const {
    const bool is_limited = request.blocks < load.length;
    if (is_limited && geometry_->any_window) return false;
    const uint32_t blocks = is_limited ? request.blocks : load.length;
    return token_pages_.equal(request.s->tokens, 0, load.tokens.data(),
                              geometry_->span.first_token(blocks));
}

LoadAdvice Loads::consult(const LoadRequest &request, uint64_t call, Load **out) {
    *out = nullptr;
    Load *load = find(request.sequence, request.handle);
    bool from_front = false;
    if (load != nullptr && !is_of(*load, request)) {
        ++counts.loads_cancelled;
        drop(load);
        load = nullptr;
    } else if (load != nullptr && load->is_ready && load->first > request.matched &&
               request.blocks > request.matched) {
        // The device has lost what the load was to continue. The next one leans on nothing.
        ++counts.loads_cancelled;
        drop(load);
        load = nullptr;
        from_front = true;
    }
    if (load != nullptr) {
        // Waiting would bring nothing that the item may find.
        if (!load->is_ready && request.blocks < load->length && request.blocks <= request.hit)
            return LoadAdvice::compute;
        if (!load->is_ready && source_->now_ns() < load->deadline_ns) return LoadAdvice::wait;
        if (!load->is_ready) {
            ++counts.loads_late;
            fail(load);
            return LoadAdvice::compute;
        }
        load->expiry_ns = source_->now_ns() + expiry_ns_;
        *out = load;
        return LoadAdvice::use;
    }
    if (stopped_ || of_[request.sequence].handle == request.handle) return LoadAdvice::compute;
    LoadRequest asked = request;
    asked.from_front = from_front;
    of_[request.sequence] = Place{request.handle, kNone};
    Load *slot = nullptr;
    for (Load &one : slots_) {
        if (one.handle == 0) slot = &one;
    }
    if (slot == nullptr) {
        ++counts.loads_short;
        return LoadAdvice::compute;
    }
    if (!source_->begin_load(asked, slot)) {
        give_up(slot);
        return LoadAdvice::compute;
    }
    slot->handle = request.handle;
    slot->sequence = request.sequence;
    slot->serial = ++serials_;
    slot->call = call;
    of_[request.sequence].slot = slot_of(*slot);
    ++count_;
    ++counts.loads_begun;
    return LoadAdvice::wait;
}

}  // namespace quire
