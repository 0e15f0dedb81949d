// SPDX-License-Identifier: Apache-2.0

#include "failing.hpp"

#include <set>

#include "cpu_table.hpp"
#include "quire/queue.h"

namespace {

const quire_backend_api *cpu = nullptr;
quire_backend_api table{};
uint32_t copies_left = 0, signals_left = 0, reads_left = 0;  // 0: none fails
uint32_t calls_left = 0;                                     // of any slot that returns a status
quire_status answer = QUIRE_E_DEVICE_LOST;                   // what that call returns
std::set<quire_be_fence *> failed_fences;

bool due(uint32_t *left) { return *left != 0 && --*left == 0; }

// A slot of the cpu backend that may be the one to fail.
template <auto Slot>
struct Fails;
template <typename... Arguments, quire_status (*quire_backend_api::*Slot)(Arguments...)>
struct Fails<Slot> {
    static quire_status call(Arguments... arguments) {
        if (due(&calls_left)) return answer;
        return (cpu->*Slot)(arguments...);
    }
};
template <auto Slot>
void plant() {
    if (table.*Slot != nullptr) table.*Slot = Fails<Slot>::call;
}

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error) {
    if (due(&copies_left)) return QUIRE_E_DEVICE_LOST;
    if (due(&calls_left)) return answer;
    return cpu->copy(queue, copies, count, error);
}

quire_status fence_signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                          quire_error *error) {
    if (due(&signals_left)) return QUIRE_E_DEVICE_LOST;
    if (due(&calls_left)) return answer;
    return cpu->fence_signal(queue, fence, value, error);
}

quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error) {
    if (due(&reads_left)) failed_fences.insert(fence);
    if (due(&calls_left)) return answer;
    if (failed_fences.count(fence) == 0) return cpu->fence_read(fence, value, error);
    *value = QUIRE_FENCE_FAILED;
    return QUIRE_OK;
}

}  // namespace

extern "C" {

QUIRE_EXPORT void quire_failing_plant(uint32_t copies, uint32_t signals, uint32_t reads) {
    copies_left = copies;
    signals_left = signals;
    reads_left = reads;
    if (reads == 0) failed_fences.clear();
}

QUIRE_EXPORT uint32_t quire_failing_plant_call(uint32_t calls) {
    uint32_t left = calls_left;
    calls_left = calls;
    return left;
}

QUIRE_EXPORT void quire_failing_answer(quire_status status) { answer = status; }

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    quire_status status = quire::test::find_cpu_table(host, &cpu, error);
    if (status < 0) return status;
    table = *cpu;
    table.name = "failing";
    table.copy = copy;
    table.fence_signal = fence_signal;
    table.fence_read = fence_read;
    plant<&quire_backend_api::probe>();
    plant<&quire_backend_api::device_open>();
    plant<&quire_backend_api::device_props>();
    plant<&quire_backend_api::query_attention>();
    plant<&quire_backend_api::mem_alloc>();
    plant<&quire_backend_api::queue_bind>();
    plant<&quire_backend_api::fence_create>();
    plant<&quire_backend_api::fence_signal_host>();
    plant<&quire_backend_api::fence_wait_host>();
    plant<&quire_backend_api::fence_wait>();
    plant<&quire_backend_api::fill>();
    plant<&quire_backend_api::kv_write>();
    plant<&quire_backend_api::plan_create>();
    plant<&quire_backend_api::attention>();
    plant<&quire_backend_api::quiesce>();
    plant<&quire_backend_api::merge>();
    plant<&quire_backend_api::move_tokens>();
    plant<&quire_backend_api::native_signal>();
    plant<&quire_backend_api::native_wait>();
    plant<&quire_backend_api::mem_import>();
    *out = &table;
    return QUIRE_OK;
}
}
