// SPDX-License-Identifier: Apache-2.0

#include "core/device/counted_queue.hpp"

#include "core/device/backend_call.hpp"
#include "quire/queue.h"

namespace quire {

// Leaves the queue and fence of an abandoned device as they are: its work may run for ever.
CountedQueue::~CountedQueue() {
    settle();
    if (device_ != nullptr && device_->is_abandoned()) return;
    if (fence_ != nullptr) call_void<&quire_backend_api::fence_destroy>(*device_->api, fence_);
    if (queue_ != nullptr) call_void<&quire_backend_api::queue_release>(*device_->api, queue_);
}

Status CountedQueue::create(const Device *device, quire_error *error) {
    device_ = device;
    const quire_backend_api &api = *device->api;
    const quire_native none{};
    QUIRE_TRY(call<&quire_backend_api::queue_bind>(api, error, device->handle, &none, &queue_));
    if (queue_ == nullptr) return function_lied(api, error, "queue_bind returned no queue");
    QUIRE_TRY(
        call<&quire_backend_api::fence_create>(api, error, device->handle, uint64_t{0}, &fence_));
    if (fence_ == nullptr) return function_lied(api, error, "fence_create returned no fence");
    return Status{};
}

Status CountedQueue::copy(const quire_be_copy *copies, uint32_t count, quire_error *error) {
    if (device_->is_abandoned()) return fail(QUIRE_E_STALE, "a shard's device was abandoned");
    QUIRE_TRY(call<&quire_backend_api::copy>(*device_->api, error, queue_, copies, count));
    unmarked_ = true;
    return Status{};
}

Status CountedQueue::after(quire_be_fence *fence, uint64_t value, quire_error *error) {
    if (device_->is_abandoned()) return fail(QUIRE_E_STALE, "a shard's device was abandoned");
    QUIRE_TRY(call<&quire_backend_api::fence_wait>(*device_->api, error, queue_, fence, value));
    unmarked_ = true;
    return Status{};
}

Status CountedQueue::hold(quire_be_queue *other, uint64_t value, quire_error *error) {
    return call<&quire_backend_api::fence_wait>(*device_->api, error, other, fence_, value);
}

Status CountedQueue::mark(uint64_t *value, quire_error *error) {
    QUIRE_TRY(mark_as(marked_ + 1, error));
    *value = marked_;
    return Status{};
}

Status CountedQueue::mark_as(uint64_t value, quire_error *error) {
    QUIRE_TRY(call<&quire_backend_api::fence_signal>(*device_->api, error, queue_, fence_, value));
    unmarked_ = false;
    marked_ = value;
    return Status{};
}

Status CountedQueue::wait(uint64_t value, quire_error *error) {
    if (value <= reached_) return Status{};
    Status waited =
        call<&quire_backend_api::fence_wait_host>(*device_->api, error, fence_, value, UINT64_MAX);
    if (waited.code == QUIRE_S_TIMEOUT) {
        return function_lied(*device_->api, error, "fence_wait_host timed out of an infinite wait");
    }
    if (waited.ok()) reached_ = value;
    return waited;
}

Status CountedQueue::look(uint64_t value, bool *reached, quire_error *error) {
    *reached = value <= reached_;
    if (*reached) return Status{};
    uint64_t now = 0;
    QUIRE_TRY(call<&quire_backend_api::fence_read>(*device_->api, error, fence_, &now));
    if (now == QUIRE_FENCE_FAILED) return fail(QUIRE_E_DEVICE_LOST, "a copy to the host failed");
    *reached = now >= value;
    if (*reached) reached_ = value;
    return Status{};
}

// Waits for its own fence if that still works, else until everything on the device has ended.
void CountedQueue::settle() {
    if ((!unmarked_ && marked_ == reached_) || device_->is_abandoned()) return;
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    uint64_t value = marked_;
    bool marked = !unmarked_ || mark(&value, &ignored).ok();
    if (!marked || !wait(value, &ignored).ok()) await_idle(*device_);
    unmarked_ = false;
    reached_ = marked_;
}

}  // namespace quire
