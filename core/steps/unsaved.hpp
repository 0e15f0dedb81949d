// SPDX-License-Identifier: Apache-2.0
//
// unsaved: nodes of the prefix tree that are to be written to a tier, in the order of their steps.
//
// A ring of fixed size: a node that finds it full is not written, and is counted. A node may be
// gone, or be another one, when its turn comes: its generation tells.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/host_memory.hpp"

namespace quire {

class Unsaved {
 public:
    struct Entry {
        uint64_t generation;
        uint32_t node;
    };

    explicit Unsaved(const HostAllocator *host) : entries_(host) {}

    // takes_published: nodes are noted when they are published; takes_found: when an item found
    // them; neither: by whoever owns the queue.
    [[nodiscard]] bool open(bool takes_published, bool takes_found) {
        if (!entries_.create(kCapacity)) return false;
        begin_ = end_ = dropped_ = 0;
        takes_published_ = takes_published;
        takes_found_ = takes_found;
        return true;
    }
    // Takes no more; what is there stays.
    void stop() { takes_published_ = takes_found_ = false; }
    void close() {
        stop();
        entries_.clear();
        begin_ = end_ = 0;
    }
    bool takes_published() const { return takes_published_; }
    bool takes_found() const { return takes_found_; }

    void note(uint32_t node, uint64_t generation) {
        if (end_ - begin_ == kCapacity) {
            ++dropped_;
            return;
        }
        entries_[end_++ % kCapacity] = Entry{generation, node};
    }
    uint64_t count() const { return end_ - begin_; }
    // REQUIRES: count() != 0.
    const Entry &front() const { return entries_[begin_ % kCapacity]; }
    void pop() { ++begin_; }
    uint64_t dropped() const { return dropped_; }

 private:
    static constexpr uint64_t kCapacity = 65536;  // 1 MiB of entries

    Array<Entry> entries_;
    uint64_t begin_ = 0;  // counts of entries that left and entered
    uint64_t end_ = 0;
    uint64_t dropped_ = 0;
    bool takes_published_ = false;
    bool takes_found_ = false;
};

}  // namespace quire
