// SPDX-License-Identifier: Apache-2.0
//
// fault: how a kernel reports an index out of range, or a failed fence.
//
// Only the first report counts: it takes the queue's fault word, which lies in device memory where
// every kernel checks it, and then tells the host in the queue's record. Later kernels on the queue
// do nothing.
//
// Threads: any of any block.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"

namespace quire::gpu {

struct Values {
    int32_t v[4];
};

QUIRE_DEVICE inline void raise_fault(const Head &head, uint32_t code, uint32_t index,
                                     Values values) {
    if (atomic_swap_if(head.fault, 0, code) != 0) return;
    uint64_t record = head.record;
    store<uint32_t>(record + offsetof(QueueRecord, index), index);
    for (uint32_t i = 0; i < 4; ++i) {
        store<int32_t>(record + offsetof(QueueRecord, values) + i * 4, values.v[i]);
    }
    system_fence();
    store<uint32_t>(record + offsetof(QueueRecord, code), code);
}

QUIRE_DEVICE inline bool has_fault(const Head &head) { return load<uint32_t>(head.fault) != 0; }

// True if the group does not exist or the queue has failed. All threads of the block get the same
// answer, though other groups of the kernel may raise a fault at any time. Call it first, while all
// threads are together.
QUIRE_DEVICE inline bool is_idle(const Head &head, SharedArray<uint32_t, 1> &idle) {
    if (thread_index() == 0) {
        idle[0] = group_index() >= head.group_count || has_fault(head) ? 1u : 0u;
    }
    barrier();
    return idle[0] != 0;
}

}  // namespace quire::gpu
