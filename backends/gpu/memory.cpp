// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include <cinttypes>
#include <cstring>

#include "device.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

void Memory::free(const Allocation &allocation) {
    const Driver &driver = *device_->context.driver;
    device_->is_good(allocation.host != nullptr ? driver.host_free(allocation.driver_host)
                                                : driver.memory_free(allocation.driver_address));
}

void Memory::close() {
    for (const auto &[address, allocation] : allocations_) free(allocation);
    for (const Allocation &allocation : freed_) free(allocation);
    allocations_.clear();
    freed_.clear();
}

void Memory::sweep() {
    if (freed_.empty() || device_->has_held_queue()) return;
    for (const Allocation &allocation : freed_) free(allocation);
    freed_.clear();
}

Result Memory::ask_driver(bool is_host, Allocation *made) {
    constexpr uint64_t kAlignment = 4096;
    const Driver &driver = *device_->context.driver;
    uint64_t size_bytes = made->size_bytes + (kAlignment - 1);
    Result result = is_host
                        ? driver.host_alloc(&made->driver_host, &made->driver_address, size_bytes)
                        : driver.memory_alloc(&made->driver_address, size_bytes);
    if (result != 0) return result;
    made->address = (made->driver_address + (kAlignment - 1)) / kAlignment * kAlignment;
    if (!is_host) return 0;
    uint64_t skipped = made->address - made->driver_address;
    made->host = static_cast<unsigned char *>(made->driver_host) + skipped;
    return 0;
}

Result Memory::zero(const Allocation &made) {
    const Driver &driver = *device_->context.driver;
    if (made.host != nullptr) {
        std::memset(made.host, 0, made.size_bytes);
        return 0;
    }
    Stream stream = device_->service->stream;
    if (Result result = driver.fill(stream, made.address, 0, made.size_bytes)) return result;
    return driver.stream_wait(stream);
}

quire_status Memory::allocate(uint64_t size_bytes, uint32_t kind, uint64_t *address,
                              void **host_pointer, quire_error *error) {
    constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // so that rounding up never overflows
    const Driver &driver = *device_->context.driver;
    bool is_host = kind == QUIRE_BE_MEMORY_HOST;
    if (size_bytes > kMostBytes) {
        return fail(error, QUIRE_E_DEVICE_MEMORY,
                    "cannot allocate %" PRIu64 " bytes: more than any memory has", size_bytes);
    }
    Allocation made{};
    made.size_bytes = size_bytes;
    device_->sweep();
    // From here on nothing may throw, here or in release().
    freed_.reserve(allocations_.size() + freed_.size() + 1);
    Allocations fresh;
    fresh.emplace(0, made);
    Result result = ask_driver(is_host, &made);
    if (!device_->is_good(result)) {
        if (device_->is_lost) return fail_driver(driver, result, "memory", error);
        return fail(error, QUIRE_E_DEVICE_MEMORY,
                    "cannot allocate %" PRIu64 " bytes of %s memory: %s (%d)", size_bytes,
                    is_host ? "host" : "device", driver.describe(result), result);
    }
    result = zero(made);
    if (!device_->is_good(result)) {
        free(made);
        return fail_driver(driver, result, "to zero memory", error);
    }
    auto node = fresh.extract(fresh.begin());
    node.key() = made.address;
    node.mapped() = made;
    allocations_.insert(std::move(node));
    *address = made.address;
    *host_pointer = made.host;
    return QUIRE_OK;
}

bool Memory::release(uint64_t address, uint64_t size_bytes, uint32_t kind) {
    auto found = allocations_.find(address);
    if (found == allocations_.end() || found->second.size_bytes != size_bytes ||
        (found->second.host != nullptr) != (kind == QUIRE_BE_MEMORY_HOST)) {
        return false;
    }
    freed_.push_back(found->second);
    allocations_.erase(found);
    return true;
}

quire_status mem_alloc(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                       uint64_t *address, void **host_pointer, quire_error *error) {
    if (device == nullptr || address == nullptr || host_pointer == nullptr) {
        return fail(error, QUIRE_E_ARG, "device, address or host_pointer is NULL");
    }
    if (kind != QUIRE_BE_MEMORY_DEVICE && kind != QUIRE_BE_MEMORY_HOST) {
        return fail(error, QUIRE_E_ARG, "memory kind %u is neither DEVICE nor HOST", kind);
    }
    if (size_bytes == 0) {
        return fail(error, QUIRE_E_ARG, "size_bytes is 0; request at least 1 byte");
    }
    std::lock_guard lock(device->mutex);
    if (quire_status status = device->check_open(error)) return status;
    Entered entered(device->context);
    if (quire_status status = device->check_in(entered, error)) return status;
    quire_status status = device->memory.allocate(size_bytes, kind, address, host_pointer, error);
    if (status == QUIRE_OK) live_objects.fetch_add(1, std::memory_order_relaxed);
    return status;
}

void mem_free(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind) {
    if (device == nullptr) return;
    std::lock_guard lock(device->mutex);
    if (!device->memory.release(address, size_bytes, kind)) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    Entered entered(device->context);
    if (entered.is_in()) device->sweep();
}

}  // namespace quire::gpu
