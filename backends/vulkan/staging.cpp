// SPDX-License-Identifier: Apache-2.0

#include "staging.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device.hpp"
#include "queue.hpp"

namespace quire::vulkan {

void Staging::release() {
    landings_.clear();
    taken_.clear();
    ring_.release();
}

// Room after the newest piece, or at the ring's beginning; never right up to the oldest one, so
// that a full ring and an empty one differ.
bool Staging::find_room(uint64_t size_bytes, uint64_t *offset) {
    // All other holders have let go.
    while (!taken_.empty() && taken_.front().use_count() == 1) taken_.pop_front();
    // Their reads and writes of the piece happened before this.
    std::atomic_thread_fence(std::memory_order_acquire);
    *offset = 0;
    if (taken_.empty()) return size_bytes <= kRingBytes;
    uint64_t first = taken_.front()->offset;
    uint64_t end = taken_.back()->offset + taken_.back()->size_bytes;
    if (end <= first) {
        *offset = end;
        return size_bytes < first - end;
    }
    if (size_bytes <= kRingBytes - end) {
        *offset = end;
        return true;
    }
    return size_bytes < first;
}

PieceHold Staging::take(Context &context, uint64_t size_bytes) {
    constexpr uint64_t kAlignment = 64;
    uint64_t wanted = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (ring_.size_bytes() == 0) {
        Buffer made;
        if (made.make(context, kRingBytes, BufferKind::host) != VK_SUCCESS) {
            return take_own(context, wanted);
        }
        ring_ = std::move(made);
    }
    uint64_t offset = 0;
    if (!find_room(wanted, &offset)) return take_own(context, wanted);
    auto piece = std::make_shared<Piece>();
    piece->buffer = ring_.handle();
    piece->offset = offset;
    piece->size_bytes = wanted;
    piece->host = ring_.host() + offset;
    taken_.push_back(piece);
    return piece;
}

PieceHold Staging::take_own(Context &context, uint64_t size_bytes) {
    auto piece = std::make_shared<Piece>();
    if (piece->own.make(context, size_bytes, BufferKind::host) != VK_SUCCESS) return nullptr;
    piece->buffer = piece->own.handle();
    piece->offset = 0;
    piece->size_bytes = size_bytes;
    piece->host = piece->own.host();
    return piece;
}

PieceHold Staging::find(const unsigned char *host, uint64_t size_bytes, uint64_t *offset,
                        uint64_t *run_bytes) const {
    const unsigned char *end = host + size_bytes;
    for (auto one = landings_.rbegin(); one != landings_.rend(); ++one) {
        // A newer one that begins later ends the run.
        if (one->to > host) {
            end = std::min<const unsigned char *>(end, one->to);
        } else if (host < one->to + one->size_bytes) {
            *offset = static_cast<uint64_t>(host - one->to);
            *run_bytes = std::min(one->size_bytes - *offset, static_cast<uint64_t>(end - host));
            return one->piece;
        }
    }
    *run_bytes = static_cast<uint64_t>(end - host);
    return nullptr;
}

void Staging::land() {
    if (landings_.empty()) return;
    // Each queue is asked once: what it reaches meanwhile precedes nothing that was seen before.
    std::vector<std::pair<const Queue *, uint64_t>> reached;
    auto turn_of = [&](const Queue *queue) {
        for (const auto &[asked, turn] : reached) {
            if (asked == queue) return turn;
        }
        reached.emplace_back(queue, queue->read_timeline());
        return reached.back().second;
    };
    std::erase_if(landings_, [&](const Landing &one) {
        if (one.queue->has_failed_at(one.turn)) return true;
        if (turn_of(one.queue) < one.turn) return false;
        std::memcpy(one.to, one.piece->host, one.size_bytes);
        return true;
    });
}

void Staging::forget(const unsigned char *host, uint64_t size_bytes) {
    std::erase_if(landings_, [&](const Landing &one) {
        return one.to < host + size_bytes && host < one.to + one.size_bytes;
    });
}

}  // namespace quire::vulkan
