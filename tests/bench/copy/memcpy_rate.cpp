// SPDX-License-Identifier: Apache-2.0

#include "memcpy_rate.hpp"

#include <cstring>

#include "tests/bench/machine/workers.hpp"

namespace quire::bench {

namespace {

double copy_seconds(const Pages &from, const Pages &to, uint64_t block_bytes, uint32_t threads) {
    return seconds_together(threads, [&](uint32_t worker) {
        Share share = share_of(from.size_bytes() / block_bytes, worker, threads);
        for (uint64_t i = share.begin; i < share.end; ++i) {
            std::memcpy(to.bytes() + i * block_bytes, from.bytes() + i * block_bytes, block_bytes);
        }
    });
}

}  // namespace

MemcpyRate::MemcpyRate(uint64_t size_bytes, uint64_t block_bytes, uint32_t threads)
    : block_bytes_(block_bytes), threads_(threads), from_(size_bytes), warm_(size_bytes) {
    from_.fill();
    warm_.fill();
    // A virtual machine may get memory only when it first touches it: that is not counted.
    seconds(Destination::fresh);
}

double MemcpyRate::seconds(Destination destination) {
    if (destination == Destination::warm) return copy_seconds(from_, warm_, block_bytes_, threads_);
    Pages fresh(from_.size_bytes());
    return copy_seconds(from_, fresh, block_bytes_, threads_);
}

}  // namespace quire::bench
