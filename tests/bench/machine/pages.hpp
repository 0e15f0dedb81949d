// SPDX-License-Identifier: Apache-2.0
//
// pages: memory of the benchmark's own, in huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::bench {

// Zeroed, and not touched: the first write to a page brings it.
//
// Errors   throws Failure when the system has no such memory.
class Pages {
 public:
    explicit Pages(uint64_t size_bytes);
    ~Pages();
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;

    std::byte *bytes() const { return bytes_; }
    uint64_t size_bytes() const { return size_bytes_; }

    // Writes numbers that differ into all of it, so that every page has memory of its own.
    void fill();

 private:
    std::byte *bytes_;
    uint64_t size_bytes_;
};

}  // namespace quire::bench
