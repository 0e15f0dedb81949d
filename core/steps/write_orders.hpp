// SPDX-License-Identifier: Apache-2.0
//
// write_orders: cached blocks that a leader's tier keeps, and of which no log has told the
// followers' tiers yet.
//
// There is one per block at most, so the list is bounded by the pools. It outlives the tier: a
// detach may write more than the logs before it could tell of.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/host_memory.hpp"
#include "core/base/sha256.hpp"

namespace quire {

struct WriteOrder {
    uint64_t generation;  // of the node when it was ordered
    uint32_t node;
    uint32_t group;
    uint32_t named;  // the block, as the node names it
    uint32_t index;  // in its sequence
    Digest tenant;
    Digest name;
};

class WriteOrders {
 public:
    explicit WriteOrders(const HostAllocator *host) : orders_(host) {}

    // A tier of a leader is attached: what an earlier one ordered is forgotten, because the new one
    // writes it again under its own names. is_needed: followers want to know.
    void open(bool is_needed) {
        orders_.shrink(0);
        is_open_ = is_needed;
    }
    void close() { is_open_ = false; }
    // Without memory followers will not have the block, and loads end before it.
    void note(const WriteOrder &order) {
        if (is_open_) (void)orders_.push_growing(order);
    }

    uint64_t count() const { return orders_.size(); }
    const WriteOrder *begin() const { return orders_.begin(); }
    const WriteOrder *end() const { return orders_.end(); }
    // A log tells of them.
    void clear() { orders_.shrink(0); }

 private:
    Array<WriteOrder> orders_;
    bool is_open_ = false;
};

}  // namespace quire
