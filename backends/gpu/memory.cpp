// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include <cinttypes>
#include <cstring>

#include "queue.hpp"
#include "schedule.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

Result zero(Device &device, const Allocation &made) {
    if (made.host != nullptr) {
        std::memset(made.host, 0, made.size_bytes);
        return 0;
    }
    const Driver &driver = *device.context.driver;
    Stream stream = device.service->stream;
    if (Result result = driver.fill(stream, made.address, 0, made.size_bytes)) return result;
    return driver.stream_wait(stream);
}

}  // namespace

quire_status allocate(Device &device, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                      void **host_pointer, quire_error *error) {
    constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // so that rounding up never overflows
    std::lock_guard lock(device.mutex);
    if (quire_status status = device.check_open(error)) return status;
    Entered entered(device.context);
    if (quire_status status = device.check_in(entered, error)) return status;
    const Driver &driver = *device.context.driver;
    bool is_host = kind == QUIRE_BE_MEMORY_HOST;
    if (size_bytes > kMostBytes) {
        return fail(error, QUIRE_E_DEVICE_MEMORY,
                    "cannot allocate %" PRIu64 " bytes: more than any memory has", size_bytes);
    }
    sweep(device);
    Allocation made{};
    Result result = device.allocations.make(size_bytes, is_host, &made);
    if (!device.is_good(result)) {
        if (device.is_lost) return fail_driver(driver, result, "memory", error);
        return fail(error, QUIRE_E_DEVICE_MEMORY,
                    "cannot allocate %" PRIu64 " bytes of %s memory: %s (%d)", size_bytes,
                    is_host ? "host" : "device", driver.describe(result), result);
    }
    result = zero(device, made);
    if (!device.is_good(result)) {
        device.allocations.drop(made);
        return fail_driver(driver, result, "to zero memory", error);
    }
    *address = made.address;
    *host_pointer = made.host;
    return QUIRE_OK;
}

bool free_memory(Device &device, uint64_t address, uint64_t size_bytes, uint32_t kind) {
    std::lock_guard lock(device.mutex);
    bool is_host = kind == QUIRE_BE_MEMORY_HOST;
    if (!device.allocations.release(address, size_bytes, is_host)) return false;
    Entered entered(device.context);
    if (entered.is_in()) sweep(device);
    return true;
}

}  // namespace quire::gpu
