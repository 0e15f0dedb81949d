// SPDX-License-Identifier: Apache-2.0
//
// lru: a pool of blocks known by 64-bit names alone, of which the one that was released longest ago
// is evicted first. Blocks of the request under way are held, and not evicted.
//
// Threads: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace quire::cli {

class Lru {
 public:
    explicit Lru(uint32_t capacity) : capacity_(capacity) {
        uint64_t buckets = 1;
        while (buckets < uint64_t{capacity} * 2 && buckets < uint64_t{1} << 31) buckets *= 2;
        buckets_.assign(buckets, kNone);
        mask_ = static_cast<uint32_t>(buckets - 1);
    }

    // Finds a block and holds it.
    bool find(uint64_t name) {
        for (uint32_t i = buckets_[slot(name)]; i != kNone; i = entries_[i].chain) {
            if (entries_[i].name != name) continue;
            if (!entries_[i].is_held) {
                leave(i);
                hold(i);
            }
            return true;
        }
        return false;
    }

    // Adds a block that is not there, and holds it. REQUIRES: not all are held.
    void add(uint64_t name) {
        uint32_t i = 0;
        if (used_ < capacity_) {
            i = used_++;
            entries_.emplace_back();
        } else {
            i = evict();
        }
        entries_[i].name = name;
        entries_[i].chain = buckets_[slot(name)];
        buckets_[slot(name)] = i;
        hold(i);
    }

    // The request is over: what it found and added enters the list, in this order of age.
    enum class Oldest { first, last };
    void release(Oldest oldest) {
        if (oldest == Oldest::last) std::reverse(held_.begin(), held_.end());
        for (uint32_t i : held_) {
            entries_[i].prev = newest_;
            entries_[i].next = kNone;
            (newest_ != kNone ? entries_[newest_].next : oldest_) = i;
            newest_ = i;
            entries_[i].is_held = false;
        }
        held_.clear();
    }

    uint64_t size() const { return used_; }
    uint64_t evictions() const { return evictions_; }

 private:
    static constexpr uint32_t kNone = 0xFFFFFFFF;

    struct Entry {
        uint64_t name;
        uint32_t chain, prev, next;
        bool is_held;
    };

    uint32_t slot(uint64_t name) const {
        return static_cast<uint32_t>(name * 0x9E3779B97F4A7C15ull >> 32) & mask_;
    }

    void hold(uint32_t i) {
        entries_[i].is_held = true;
        held_.push_back(i);
    }

    void leave(uint32_t i) {
        Entry &e = entries_[i];
        (e.prev != kNone ? entries_[e.prev].next : oldest_) = e.next;
        (e.next != kNone ? entries_[e.next].prev : newest_) = e.prev;
    }

    uint32_t evict() {
        uint32_t i = oldest_;
        ++evictions_;
        leave(i);
        uint32_t *link = &buckets_[slot(entries_[i].name)];
        while (*link != i) link = &entries_[*link].chain;
        *link = entries_[i].chain;
        return i;
    }

    std::vector<Entry> entries_;
    std::vector<uint32_t> buckets_;
    std::vector<uint32_t> held_;
    uint32_t capacity_;
    uint32_t mask_ = 0;
    uint64_t evictions_ = 0;
    uint32_t used_ = 0;
    uint32_t oldest_ = kNone;
    uint32_t newest_ = kNone;
};

}  // namespace quire::cli
