// SPDX-License-Identifier: Apache-2.0

#include "allocations.hpp"

namespace quire::gpu {

void Allocations::close() {
    for (const auto &[address, allocation] : live_) free(allocation);
    for (const Allocation &allocation : released_) free(allocation);
    live_.clear();
    released_.clear();
}

Result Allocations::make(uint64_t size_bytes, bool is_host, Allocation *out) {
    Allocation made{};
    made.size_bytes = size_bytes;
    // From here on nothing may throw, here or in release().
    released_.reserve(live_.size() + released_.size() + 1);
    ByAddress fresh;
    fresh.emplace(0, made);
    if (Result result = query_driver(is_host, &made)) return result;
    auto node = fresh.extract(fresh.begin());
    node.key() = made.address;
    node.mapped() = made;
    live_.insert(std::move(node));
    *out = made;
    return 0;
}

void Allocations::drop(const Allocation &made) {
    live_.erase(made.address);
    free(made);
}

bool Allocations::release(uint64_t address, uint64_t size_bytes, bool is_host) {
    auto found = live_.find(address);
    if (found == live_.end() || found->second.size_bytes != size_bytes ||
        (found->second.host != nullptr) != is_host) {
        return false;
    }
    released_.push_back(found->second);
    live_.erase(found);
    return true;
}

Result Allocations::free_released() {
    Result worst = 0;
    for (const Allocation &allocation : released_) {
        Result result = free(allocation);
        if (result != 0 && (worst == 0 || driver_->is_fatal(result))) worst = result;
    }
    released_.clear();
    return worst;
}

Result Allocations::query_driver(bool is_host, Allocation *made) {
    constexpr uint64_t kAlignment = 4096;
    uint64_t size_bytes = made->size_bytes + (kAlignment - 1);
    Result result = is_host
                        ? driver_->host_alloc(&made->driver_host, &made->driver_address, size_bytes)
                        : driver_->memory_alloc(&made->driver_address, size_bytes);
    if (result != 0) return result;
    made->address = (made->driver_address + (kAlignment - 1)) / kAlignment * kAlignment;
    if (!is_host) return 0;
    uint64_t skipped = made->address - made->driver_address;
    made->host = static_cast<unsigned char *>(made->driver_host) + skipped;
    return 0;
}

Result Allocations::free(const Allocation &allocation) {
    return allocation.host != nullptr ? driver_->host_free(allocation.driver_host)
                                      : driver_->memory_free(allocation.driver_address);
}

}  // namespace quire::gpu
