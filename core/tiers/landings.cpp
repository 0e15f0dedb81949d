// SPDX-License-Identifier: Apache-2.0

#include "core/tiers/landings.hpp"

namespace quire {

// Makes queues and host memory on the devices that the cache is on.
bool Landings::create() {
    if (is_refused_) return false;
    if (shores_ != nullptr) return true;
    shores_.reset(new (std::nothrow) Shores);
    if (shores_ == nullptr) return false;
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            if (!books_.shards[i].holds(g)) continue;
            const auto stride = static_cast<uint64_t>(books_.shards[i].pool(g).block_stride);
            if (stride > shores_->stride) shores_->stride = stride;
        }
    }
    const uint64_t fit = kBytes / shores_->stride;
    shores_->landing_count = fit < kFewest ? kFewest
                             : fit > kMost ? kMost
                                           : static_cast<uint32_t>(fit);
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        Shore &shore = shores_->of[i];
        shore.device = books_.shards[i].device();
        ++shores_->count;
        void *pointer = nullptr;
        Status made = shore.queue.create(shore.device, &ignored);
        if (made.ok()) {
            made = allocate_memory(*shore.device, shores_->landing_count * shores_->stride,
                                   QUIRE_BE_MEMORY_HOST, &shore.address, &pointer, &ignored);
        }
        if (!made.ok()) {
            refuse();
            return false;
        }
        shore.bytes = static_cast<uint8_t *>(pointer);
    }
    return true;
}

// A device refused. Its queue is left at the detach, because only then a call may wait for it.
void Landings::refuse() {
    is_refused_ = true;
    drop_all();
}

void Landings::drop_all() {
    books_.loads.counts.blocks_dropped += count_;
    count_ = 0;
    if (shores_ == nullptr) return;
    for (Landing &landing : shores_->used) landing.is_used = false;
}

Status Landings::copy(uint32_t group, uint32_t block, uint32_t slot, quire_error *error) {
    for (uint32_t i = 0; i < shores_->count; ++i) {
        const Binding &binding = books_.shards[i];
        if (!binding.holds(group)) continue;
        quire_be_copy copy{};
        copy.dst = shores_->of[i].address + slot * shores_->stride;
        copy.src = binding.block_address(group, block);
        copy.size_bytes = static_cast<uint64_t>(binding.pool(group).block_stride);
        copy.kind = QUIRE_BE_COPY_D2H;
        QUIRE_TRY(shores_->of[i].queue.copy(&copy, 1, error));
        QUIRE_TRY(shores_->of[i].queue.mark(&shores_->used[slot].reached[i], error));
    }
    return Status{};
}

Landings::Begun Landings::begin(uint32_t group, uint32_t block, uint32_t *slot) {
    if (!create()) return Begun::refused;
    if (count_ == shores_->landing_count) return Begun::full;
    *slot = 0;
    while (shores_->used[*slot].is_used) ++*slot;
    shores_->used[*slot] = Landing{};
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    if (!copy(group, block, *slot, &ignored).ok()) {
        refuse();
        return Begun::refused;
    }
    shores_->used[*slot].is_used = true;
    ++count_;
    return Begun::yes;
}

Landings::State Landings::look(uint32_t slot) {
    for (uint32_t i = 0; i < shores_->count; ++i) {
        bool reached = false;
        quire_error ignored{};
        ignored.struct_size = sizeof ignored;
        if (!shores_->of[i].queue.look(shores_->used[slot].reached[i], &reached, &ignored).ok()) {
            refuse();
            return State::unused;
        }
        if (!reached) return State::copying;
    }
    return State::landed;
}

void Landings::find_parts(uint32_t slot, const uint8_t *parts[kMaxShards]) const {
    for (uint32_t i = 0; i < shores_->count; ++i)
        parts[i] = shores_->of[i].bytes + slot * shores_->stride;
}

void Landings::end(uint32_t slot) {
    QUIRE_ASSERT(shores_->used[slot].is_used);
    shores_->used[slot].is_used = false;
    --count_;
}

void Landings::leave() {
    drop_all();
    if (shores_ == nullptr) return;
    for (uint32_t i = 0; i < shores_->count; ++i) {
        Shore &shore = shores_->of[i];
        shore.queue.settle();
        if (shore.address == 0) continue;
        free_memory(*shore.device, shore.address, shores_->landing_count * shores_->stride,
                    QUIRE_BE_MEMORY_HOST);
    }
    shores_.reset();
}

}  // namespace quire
