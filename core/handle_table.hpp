// SPDX-License-Identifier: Apache-2.0
//
// handle_table: 64-bit handles of records: type 8 | generation 24 | index 32.
//
// A generation is odd while its record lives, and is mixed with the cache's own number, so that a
// handle that was ended, forged, or made by another cache is told apart. A slot whose generation
// would wrap is retired: no handle ever means a second record.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "host_memory.hpp"

namespace quire {

enum class HandleType : uint8_t { sequence = 1, step = 2, name_space = 3 };

class HandleTable {
 public:
    static constexpr uint32_t kNone = 0xFFFFFFFF;
    static constexpr uint32_t kGenerationBits = 24;
    static constexpr uint32_t kGenerationMask = (1u << kGenerationBits) - 1;

    HandleTable(const HostAllocator *host, HandleType type, uint32_t salt)
        : slots_(host), type_(type), salt_(salt & kGenerationMask & ~1u) {}

    [[nodiscard]] bool create(uint32_t capacity) {
        if (!slots_.create(capacity)) return false;
        // Lowest index first, as a person reading a log would expect.
        for (uint32_t i = 0; i < capacity; ++i)
            slots_[i] = Slot{0, i + 1 < capacity ? i + 1 : kNone};
        free_ = capacity != 0 ? 0 : kNone;
        return true;
    }

    uint32_t capacity() const { return static_cast<uint32_t>(slots_.size()); }
    uint32_t live() const { return live_; }

    // kNone when all are in use.
    uint32_t take() {
        uint32_t index = free_;
        if (index == kNone) return kNone;
        free_ = slots_[index].next;
        slots_[index].generation |= 1;
        ++live_;
        return index;
    }

    void end(uint32_t index) {
        QUIRE_ASSERT(is_live(index));
        Slot &slot = slots_[index];
        slot.generation = (slot.generation + 1) & kGenerationMask;
        --live_;
        if (slot.generation == 0) return;  // wrapped: retired
        slot.next = free_;
        free_ = index;
    }

    // A handle that another table gave out: its slot lives under it here too. For a table of which
    // take() is never called. REQUIRES: could_be(handle), and its slot does not live.
    void adopt(uint64_t handle_value) {
        slots_[static_cast<uint32_t>(handle_value)].generation = generation_of(handle_value);
        ++live_;
    }
    // Could it be a living record's handle, of whatever table?
    bool could_be(uint64_t handle_value) const {
        return static_cast<uint32_t>(handle_value) < slots_.size() &&
               handle_value >> 56 == static_cast<uint8_t>(type_) &&
               (generation_of(handle_value) & 1) != 0;
    }

    bool is_live(uint32_t index) const {
        return index < slots_.size() && (slots_[index].generation & 1) != 0;
    }

    uint64_t handle(uint32_t index) const {
        uint64_t generation = slots_[index].generation ^ salt_;
        return uint64_t{static_cast<uint8_t>(type_)} << 56 | generation << 32 | index;
    }

    // The record's index, or kNone for a handle that is not one of the living.
    uint32_t find(uint64_t handle_value) const {
        uint32_t index = static_cast<uint32_t>(handle_value);
        if (index >= slots_.size()) return kNone;
        return (slots_[index].generation & 1) != 0 && handle(index) == handle_value ? index : kNone;
    }

 private:
    uint32_t generation_of(uint64_t handle_value) const {
        return (static_cast<uint32_t>(handle_value >> 32) & kGenerationMask) ^ salt_;
    }

    struct Slot {
        uint32_t generation;  // odd = live
        uint32_t next;
    };

    Array<Slot> slots_;
    HandleType type_;
    uint32_t salt_;
    uint32_t free_ = kNone;
    uint32_t live_ = 0;
};

}  // namespace quire
