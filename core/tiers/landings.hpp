// SPDX-License-Identifier: Apache-2.0
//
// landings: blocks that are copied from the devices to host memory, for a tier to write.
//
// The queues are the tier's own, so a copy waits for no step and no step waits for it. Whoever
// begins one judges afterwards whether the block still held then what it was copied for.
//
// Ownership: refers to the books; owns its queues and what they copy to.
// Threads: none; Cache holds its lock.
#pragma once

#include <memory>

#include "core/device/backend_call.hpp"
#include "core/device/counted_queue.hpp"
#include "core/steps/cache_books.hpp"

namespace quire {

class Landings {
 public:
    // Blocks that are copied at once: at least the fewest, and more if they are small.
    static constexpr uint32_t kFewest = 4, kMost = 64;

    enum class Begun { yes, full, refused };
    enum class State { unused, copying, landed };

    explicit Landings(CacheBooks *books) : books_(*books) {}
    Landings(const Landings &) = delete;
    Landings &operator=(const Landings &) = delete;
    ~Landings() { leave(); }

    // A tier is attached: devices that refused are asked again.
    void open() { is_refused_ = false; }
    // Begins to copy a block of the device. *slot: below kMost, the caller's until end(). refused:
    // a device refuses, now or before; then no copy is under way any more, and those that were
    // count as blocks_dropped.
    Begun begin(uint32_t group, uint32_t block, uint32_t *slot);
    // copying: not yet; unused: a device refused, and all copies are gone.
    State look(uint32_t slot);
    // Where each shard's part of a landed block lies, [shard]; it stays there until end().
    void find_parts(uint32_t slot, const uint8_t *parts[kMaxShards]) const;
    void end(uint32_t slot);

    bool is_used(uint32_t slot) const { return shores_ != nullptr && shores_->used[slot].is_used; }
    uint32_t count() const { return count_; }  // under way
    // Ends all copies, and gives up queues and memory. Waits for the devices.
    void leave();

 private:
    static constexpr uint64_t kBytes = uint64_t{4} << 20;

    struct Landing {
        bool is_used = false;
        uint64_t reached[kMaxShards] = {};
    };
    // Where the blocks of one shard arrive: [landing_count][stride].
    struct Shore {
        const Device *device = nullptr;
        uint64_t address = 0;
        uint8_t *bytes = nullptr;
        CountedQueue queue;
    };
    struct Shores {
        uint64_t stride = 0;  // bytes of a landing on each
        uint32_t landing_count = 0;
        Landing used[kMost];
        uint32_t count = 0;
        Shore of[kMaxShards];
    };

    bool create();
    void refuse();
    void drop_all();
    Status copy(uint32_t group, uint32_t block, uint32_t slot, quire_error *error);

    CacheBooks &books_;
    bool is_refused_ = false;
    uint32_t count_ = 0;
    std::unique_ptr<Shores> shores_;
};

}  // namespace quire
