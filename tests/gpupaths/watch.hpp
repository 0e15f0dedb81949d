// SPDX-License-Identifier: Apache-2.0
//
// watch: a backend behind a table that passes every call on, and what a program may ask of it.
//
// Why a table in between: a program sees queues of the library, not of the backend. Through the
// table it enqueues a copy of a pool's bytes on the very queue that a step runs on, so that it sees
// what the step's kernels saw; and it can leave a call out, or refuse it.
//
// The module exports quire_watch(), which returns these functions.
//
// Threads: one at a time, as the program; the backend's own threads do not come here.
#pragma once

#include <cstdint>

#include "quire/plugin/backend.h"

namespace gpupaths {

// The kinds of calls that can be left out or refused. A copy of several parts is left out in its
// last part.
enum class Call : uint32_t {
    any,  // only to be refused
    copy_on_device,
    copy_to_host,
    copy_from_host,
    fill,
    fence_wait,
    fence_signal,
    kv_write,
    attention,
    move_tokens,
    mem_alloc,
    queue_bind,
    fence_create,
    plan_create,
    count
};

struct Watch {
    // The device that was opened last, and the queue that was bound last.
    quire_be_device *(*last_device)();
    quire_be_queue *(*last_queue)();
    // Waits until nothing runs on the device.
    quire_status (*quiesce)(quire_be_device *device, uint64_t timeout_ns, quire_error *error);
    // Enqueues copies past what is planted.
    quire_status (*read)(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                         quire_error *error);
    // The nth call of this kind from now on and the count - 1 after it do nothing, and succeed.
    void (*skip)(Call kind, uint64_t nth, uint64_t count);
    // The same, but they return `status`.
    void (*refuse)(Call kind, uint64_t nth, uint64_t count, quire_status status);
    // While it is set, calls are neither counted, left out nor refused.
    void (*pause)(bool is_paused);
    uint64_t (*skipped)();
    uint64_t (*refused)();
};

}  // namespace gpupaths
