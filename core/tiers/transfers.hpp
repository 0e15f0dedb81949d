// SPDX-License-Identifier: Apache-2.0
//
// transfers: requests that a store has taken, each with the memory of its value.
//
// Memory that a store may still write stays here until its answer is reaped, whatever became of the
// load that wanted it. It is then used for the next request.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/host_memory.hpp"
#include "quire/tier.h"

namespace quire {

struct Transfer {
    uint64_t cookie = 0;  // 0: unused
    uint32_t kind = 0;    // QUIRE_STORE_*
    uint32_t load = 0;    // GET and FIND: the load's slot; PUT: a node
    uint64_t serial = 0;  // of the load; the node's generation
    uint32_t entry = 0;   // of the load; a group
    bool is_cancelled = false;
    quire_store_piece piece{};
    Array<uint8_t> bytes;
};

class Transfers {
 public:
    static constexpr uint32_t kMost = 256;

    explicit Transfers(const HostAllocator &host) : host_(host) {
        for (Transfer &t : slots_) t.bytes.bind(&host_);
    }
    Transfers(const Transfers &) = delete;
    Transfers &operator=(const Transfers &) = delete;

    // An unused one with memory for the value; nullptr: all are used, or there is no memory.
    Transfer *take(uint32_t kind, uint64_t size_bytes);
    // The one that the answer is for; nullptr: none.
    Transfer *find(uint64_t cookie, uint32_t kind);
    // It was reaped, or the store did not take it.
    void end(Transfer *transfer);

    uint32_t count() const { return count_; }
    // Of one kind.
    uint32_t count(uint32_t kind) const { return counts_[kind]; }
    // Bytes of the values under way.
    uint64_t bytes(uint32_t kind) const { return kind == QUIRE_STORE_GET ? get_ : put_; }
    Transfer &operator[](uint32_t slot) { return slots_[slot]; }

 private:
    uint64_t &sum_of(uint32_t kind) { return kind == QUIRE_STORE_GET ? get_ : put_; }

    HostAllocator host_;
    Transfer slots_[kMost];
    uint64_t cookies_ = 0;
    uint64_t get_ = 0;
    uint64_t put_ = 0;
    uint32_t count_ = 0;
    uint32_t counts_[QUIRE_STORE_COMPACT + 1] = {};  // by kind
};

}  // namespace quire
