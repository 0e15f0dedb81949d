// SPDX-License-Identifier: Apache-2.0
//
// touched_nodes: which nodes of the prefix tree may differ from what a reader was told of them. It
// serves records of told blocks as well.
//
// A node that the open step touches is held back until the step is over: until then it may change
// again, or become what it was.
//
// Invariants: (1) a node is at most once in the queue, and at most once among those held back;
// (2) so neither ever needs more room than there are nodes.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/host_memory.hpp"

namespace quire {

class TouchedNodes {
 public:
    explicit TouchedNodes(const HostAllocator *host) : queue_(host), held_(host), marks_(host) {}

    // Notes nothing before this. Makes room for a tree of this many nodes; what was noted stays.
    // False: no memory, and nothing changed.
    [[nodiscard]] bool watch(uint32_t node_capacity) {
        Array<uint32_t> queue(queue_.host()), held(queue_.host());
        Array<uint8_t> marks(queue_.host());
        if (!queue.create(node_capacity) || !held.create(node_capacity) ||
            !marks.create(node_capacity)) {
            return false;
        }
        for (uint32_t i = 0; i < size_; ++i) queue[i] = at(i);
        for (uint32_t i = 0; i < held_count_; ++i) held[i] = held_[i];
        for (uint64_t i = 0; i < marks.size(); ++i) marks[i] = i < marks_.size() ? marks_[i] : 0;
        queue_.swap(queue);
        held_.swap(held);
        marks_.swap(marks);
        first_ = 0;
        watches_ = true;
        return true;
    }
    bool watches() const { return watches_; }

    void touch(uint32_t node) {
        if (!watches_) [[likely]]
            return;
        note(node);
    }

    // A step was opened: what is touched from now on is held back until release().
    void hold() { holds_ = true; }
    void release() {
        holds_ = false;
        for (uint32_t i = 0; i < held_count_; ++i) {
            marks_[held_[i]] &= ~kHeld;
            note(held_[i]);
        }
        held_count_ = 0;
    }
    bool is_held(uint32_t node) const { return (marks_[node] & kHeld) != 0; }

    // Nodes in the queue; some of them may be held back again.
    uint32_t size() const { return size_; }
    // The node that is in the queue for the longest time. REQUIRES: size() is not 0.
    uint32_t front() const { return queue_[first_]; }
    void pop() {
        marks_[front()] &= ~kQueued;
        first_ = first_ + 1 == queue_.size() ? 0 : first_ + 1;
        --size_;
    }

 private:
    static constexpr uint8_t kQueued = 1, kHeld = 2;

    uint32_t at(uint32_t i) const { return queue_[(first_ + i) % queue_.size()]; }
    void note(uint32_t node) {
        uint8_t mark = holds_ ? kHeld : kQueued;
        if ((marks_[node] & mark) != 0) return;
        marks_[node] |= mark;
        if (holds_) {
            held_[held_count_++] = node;
        } else {
            queue_[(first_ + size_++) % queue_.size()] = node;
        }
    }

    Array<uint32_t> queue_;  // a ring
    Array<uint32_t> held_;
    Array<uint8_t> marks_;  // by node
    uint32_t first_ = 0, size_ = 0, held_count_ = 0;
    bool watches_ = false, holds_ = false;
};

}  // namespace quire
