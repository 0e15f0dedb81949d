// SPDX-License-Identifier: Apache-2.0
//
// block_mover: moves bytes from one device's memory to another's, through host memory.
//
// Why two buffers per stage: host memory belongs to one backend, and another backend's copies
// cannot reach it. So a piece is copied down into the source's buffer, then once by the processor,
// then up from the target's buffer. Stages are a ring: while one comes down, the one before it is
// copied, and the one before that goes up. Within one device object the bytes are copied directly.
//
// Its queues are its own: it waits for none of the caller's work, and none of that waits for it.
//
// Invariant: no buffer is given back while a device may still use it.
//
// Threads: none; one thread at a time.
#pragma once

#include "core/base/host_memory.hpp"
#include "core/device/counted_queue.hpp"

namespace quire {

class BlockMover {
 public:
    explicit BlockMover(const HostAllocator *host) {
        for (Stage &stage : stages_) stage.down.bind(host), stage.up.bind(host);
    }
    ~BlockMover();
    BlockMover(const BlockMover &) = delete;
    BlockMover &operator=(const BlockMover &) = delete;

    // total_bytes: how much will be moved; a small move then takes little memory.
    Status create(const Device *from, const Device *to, uint64_t total_bytes, quire_error *error);
    // Moves the bytes at `src` on the source to `dst` on the target. Neither range may overlap one
    // that is being moved at the same time.
    Status move(uint64_t src, uint64_t dst, uint64_t size_bytes, quire_error *error);
    // Returns when all bytes have arrived.
    Status finish(quire_error *error);
    bool is_abandoned() const {
        return from_ != nullptr && (from_->is_abandoned() || to_->is_abandoned());
    }

    BlockMover *next = nullptr;  // in the list of kept movers

 private:
    static constexpr uint32_t kStages = 3;
    static constexpr uint64_t kSlotBytes = uint64_t{4} << 20;
    static constexpr uint64_t kMaxCopies = 4096;
    static constexpr uint64_t kAlignment = 64;  // of a piece in a buffer

    struct Memory {
        uint64_t address = 0;
        uint8_t *bytes = nullptr;
    };
    struct Stage {
        Memory from, to;
        uint64_t used_bytes = 0;
        Array<quire_be_copy> down, up;  // within one device: only down
        uint64_t down_value = 0;        // 0: none of its pieces is coming down
        uint64_t up_value = 0;
    };

    bool is_direct() const { return from_ == to_; }
    Stage &stage() { return stages_[current_]; }
    bool extends(const Stage &s, uint64_t src, uint64_t dst) const;
    Status send(quire_error *error);
    Status forward(Stage *s, quire_error *error);

    const Device *from_ = nullptr;
    const Device *to_ = nullptr;
    uint64_t slot_bytes_ = 0;
    uint32_t current_ = 0;
    Stage stages_[kStages];
    CountedQueue down_;
    CountedQueue up_;
};

}  // namespace quire
