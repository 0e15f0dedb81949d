// SPDX-License-Identifier: Apache-2.0
//
// fence: raises a fence, and checks one after a stream's wait for it.
//
// Only kernels of one device write a fence's `value`, and the host never does (calls.hpp), so this
// maximum needs no atomics between host and device.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"

namespace quire::gpu {

QUIRE_DEVICE inline void pass(const FenceCall &call) {
    system_fence();
    if (call.head.record != 0) {
        store<uint64_t>(call.head.record + offsetof(QueueRecord, reached), call.place);
    }
}

// If work before it failed, the fence fails too.
QUIRE_KERNEL(quire_fence_signal, 1, FenceCall, call) {
    uint64_t value = has_fault(call.head) ? kFenceFailed : call.value;
    system_fence();
    system_atomic_max(call.fence + offsetof(FenceWords, value), value);
    pass(call);
}

// The stream goes on because the fence was reached, or because it never will be.
QUIRE_KERNEL(quire_fence_passed, 1, FenceCall, call) {
    system_fence();
    auto value = load<uint64_t>(call.fence + offsetof(FenceWords, value));
    auto by_host = load<uint64_t>(call.fence + offsetof(FenceWords, by_host));
    if (value == kFenceFailed || by_host == kFenceFailed) {
        raise_fault(call.head, kFaultFence, 0, {});
    }
    pass(call);
}

}  // namespace quire::gpu
