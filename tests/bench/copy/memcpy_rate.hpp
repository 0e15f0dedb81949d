// SPDX-License-Identifier: Apache-2.0
//
// memcpy_rate: the floor of a copy: memcpy of as many bytes by as many threads.
#pragma once

#include <cstdint>

#include "tests/bench/machine/pages.hpp"

namespace quire::bench {

enum class Destination { fresh, warm };  // never written before, or written just before

// Copies pieces of block_bytes from written memory to another, each thread its share.
class MemcpyRate {
 public:
    MemcpyRate(uint64_t size_bytes, uint64_t block_bytes, uint32_t threads);

    double seconds(Destination destination);

 private:
    uint64_t block_bytes_;
    uint32_t threads_;
    Pages from_;
    Pages warm_;
};

}  // namespace quire::bench
