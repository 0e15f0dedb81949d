// SPDX-License-Identifier: Apache-2.0
//
// pages: memory that the benchmark owns, in huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::bench {

// Zeroed and untouched: the first write to a page maps it.
//
// Errors   throws Failure if the system has not enough memory.
class Pages {
 public:
    explicit Pages(uint64_t size_bytes);
    ~Pages();
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;

    std::byte *bytes() const { return bytes_; }
    uint64_t size_bytes() const { return size_bytes_; }

    // Writes different numbers into all of it, so that every page has memory of its own.
    void fill();

 private:
    std::byte *bytes_;
    uint64_t size_bytes_;
};

}  // namespace quire::bench
