// SPDX-License-Identifier: Apache-2.0

#include "hanging.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "cpu_table.hpp"
#include "quire/device.h"

namespace {

const quire_backend_api *cpu = nullptr;
quire_backend_api table{};
std::atomic<uint32_t> planted{0}, inside{0}, given_back{0};

// Never destroyed: threads may hang here when the process ends.
struct Gate {
    std::mutex mutex;
    std::condition_variable opened;
    uint64_t round = 0;
};
Gate &gate() {
    static Gate *one = new Gate;
    return *one;
}

bool has(uint32_t what) { return (planted.load() & what) != 0; }

quire_status hang() {
    std::unique_lock<std::mutex> lock(gate().mutex);
    uint64_t round = gate().round;
    ++inside;
    gate().opened.wait(lock, [&] { return gate().round != round; });
    --inside;
    return QUIRE_E_DEVICE_LOST;
}

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error) {
    return has(kCopiesHang) ? hang() : cpu->copy(queue, copies, count, error);
}

quire_status fence_signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                          quire_error *error) {
    if (has(kSignalsHang)) return hang();
    return has(kFencesNeverSignal) ? QUIRE_OK : cpu->fence_signal(queue, fence, value, error);
}

quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error) {
    return has(kReadsFail) ? QUIRE_E_DEVICE_LOST : cpu->fence_read(fence, value, error);
}

quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error) {
    return has(kWaitsHang) ? hang() : cpu->fence_wait_host(fence, value, timeout_ns, error);
}

void mem_free(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind) {
    ++given_back;
    cpu->mem_free(device, address, size_bytes, kind);
}

void queue_release(quire_be_queue *queue) {
    ++given_back;
    cpu->queue_release(queue);
}

void fence_destroy(quire_be_fence *fence) {
    ++given_back;
    cpu->fence_destroy(fence);
}

void device_close(quire_be_device *device) {
    ++given_back;
    cpu->device_close(device);
}

}  // namespace

extern "C" {

QUIRE_EXPORT void quire_hanging_plant(uint32_t what) { planted = what; }
QUIRE_EXPORT uint32_t quire_hanging_inside(void) { return inside; }
QUIRE_EXPORT uint32_t quire_hanging_given_back(void) { return given_back; }

QUIRE_EXPORT void quire_hanging_release(void) {
    planted = 0;
    std::lock_guard<std::mutex> lock(gate().mutex);
    ++gate().round;
    gate().opened.notify_all();
}

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    quire_status status = quire::test::find_cpu_table(host, &cpu, error);
    if (status < 0) return status;
    table = *cpu;
    table.name = "hanging";
    table.copy = copy;
    table.fence_signal = fence_signal;
    table.fence_read = fence_read;
    table.fence_wait_host = fence_wait_host;
    table.mem_free = mem_free;
    table.queue_release = queue_release;
    table.fence_destroy = fence_destroy;
    table.device_close = device_close;
    *out = &table;
    return QUIRE_OK;
}
}
