// SPDX-License-Identifier: Apache-2.0
//
// binding: the memory of a cache on a device: one pool a group, and the host tier's blocks.
//
// Vendor-free: it knows addresses and the backend's table of functions. A bookkeeping-only cache
// has none.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "device.hpp"
#include "geometry.hpp"
#include "ledger.hpp"

namespace quire {

class Binding {
 public:
    explicit Binding(const HostAllocator *host) : descriptors_(host), moves_(host) {}
    ~Binding();

    // Asks the backend whether it serves every group, and allocates. error: the backend's words.
    Status create(Device *device, const Geometry &geometry, quire_error *error);

    Device *device() const { return device_; }
    const quire_be_pool &pool(uint32_t group) const { return pools_[group]; }
    uint64_t pool_bytes() const;
    uint64_t host_bytes() const;

    // Room for the descriptors of that many copies, so that enqueue cannot fail for memory.
    bool reserve(uint64_t copies) { return descriptors_.reserve(copies) && moves_.reserve(copies); }
    // Enqueues a step's copies in their order; independent neighbours go in one call.
    Status enqueue(Queue *queue, const Array<quire_block_copy> &copies, Ledger *ledger,
                   quire_error *error);

 private:
    struct HostMemory {
        uint64_t address;
        uint64_t size_bytes;
    };

    quire_be_copy describe(const quire_block_copy &copy) const;
    Status move(Queue *queue, const Array<quire_block_copy> &copies, uint64_t *i,
                quire_error *error);
    bool joins_run(const quire_block_copy &copy, Ledger *ledger);

    Device *device_ = nullptr;
    uint32_t group_count_ = 0;
    quire_be_pool pools_[kMaxGroups] = {};
    HostMemory host_[kMaxGroups] = {};
    Array<quire_be_copy> descriptors_;
    Array<quire_be_move> moves_;
    uint32_t run_ = 0;  // number of the current run of independent copies
};

}  // namespace quire
