// SPDX-License-Identifier: Apache-2.0
//
// buffers: memory that transfers read from and write to, aligned to kUnitBytes, in a bounded pool.
//
// Invariants
//   (1) in_use + free <= budget, except that one buffer of any size may be in use alone
// Used buffers are kept: fresh memory costs a page fault for each 4 KiB.
//
// Threads: none; the store's mutex guards it.
#pragma once

#include <cstdint>
#include <vector>

namespace quire::disk {

struct Buffer {
    uint8_t *bytes = nullptr;
    uint64_t size_bytes = 0;
};

class Buffers {
 public:
    explicit Buffers(uint64_t budget_bytes);
    Buffers(const Buffers &) = delete;
    Buffers &operator=(const Buffers &) = delete;
    ~Buffers();

    // A buffer of at least this size. Without bytes: wait until one was given back, or, if none is
    // in use, the machine has no memory.
    Buffer take(uint64_t size_bytes);
    void give_back(Buffer *buffer);
    bool are_in_use() const { return in_use_bytes_ != 0; }

 private:
    const uint64_t budget_bytes_;
    uint64_t in_use_bytes_ = 0;
    uint64_t free_bytes_ = 0;
    std::vector<Buffer> free_;
};

}  // namespace quire::disk
