// SPDX-License-Identifier: Apache-2.0
//
// queue: a driver stream and the record it writes about its progress.
//
// Held      a wait for a value that neither the host nor submitted work will signal yet stays in
//           this queue on the host, and so does everything after it: GPUs have few hardware queues,
//           so a waiting stream may block other streams, including the one that would signal it.
//           Whoever signals the fence submits the held commands (schedule.hpp). So
//           everything submitted to streams finishes on its own, and closing drops the rest.
//
// Each command that uses a fence has a place on its queue, counted from 1. The queue's record in
// pinned memory tells the host which place was passed last, and what a kernel found wrong.
//
// Bound     a queue on an engine's own stream submits everything during the call, so that it keeps
//           its place among the engine's work there. It is never held: a wait for a value that has
//           not been signalled is refused. The stream stays the engine's.
// Captured  what an engine captures on its stream runs at each launch of its graph, so only calls
//           that mean the same then may be enqueued: launches that read everything except addresses
//           and shapes from device memory (begin_replayable()). The rest is refused. The graph
//           holds addresses of the queue's scratch memory, record and fault word: they live as long
//           as the device. During a capture the stream's progress cannot be queried
//           (Work::unknown).
// Release   waits for nothing; enqueued work runs on. The queue stays with its device, which hands
//           it to the next caller that wants one: a driver may wait when a stream is destroyed.
// Faults    a kernel that finds an index outside its pool sets the queue's fault word. Kernels
//           after it do nothing, fences after it read all ones, and later calls on the queue report
//           the fault, except signals, which fail their fences. Fills and large copies after it may
//           still run.
//
// Invariants
//   (1) once a queue has failed, every fence that it signals fails, but not while earlier work of
//       the queue still runs
//   (2) a failed call has enqueued nothing, or the queue has failed; except for commands that went
//       to a graph, where the call's error tells the engine
//   (3) the first held command is a wait
//
// Threads: any; all fields belong to the device's mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cells.hpp"
#include "command.hpp"
#include "kernels.hpp"
#include "marks.hpp"
#include "piece_ring.hpp"
#include "shared/objects.hpp"

namespace quire::gpu {

struct Device;
struct Fence;

// Which stream a queue runs on.
struct StreamChoice {
    bool is_urgent = false;  // for a stream of ours
    bool is_bound = false;   // to an engine's stream
    Stream bound = nullptr;
    uint64_t owner = 0;  // of the bound stream (owner_of())
};

// How much work a queue's stream still has, least first.
enum class Work {
    none,
    unknown,  // cannot be queried: that would break an engine's capture, or the stream is another
              // thread's own or no longer exists
    some,
};

// The rows of which the scratch memory's work list was made (decode.hpp), and for which calls.
struct ListedRows {
    uint64_t rows_id = 0;  // 0: there is no such list
    uint64_t plan = 0;     // its serial number
    uint64_t capture = 0;  // 0: not in a capture
    uint64_t scratch = 0, block_table = 0, lengths = 0, cu_q = 0, shared_prefix = 0;
    uint32_t block_table_stride = 0, row_count = 0, query_tokens = 0, block_count = 0;
    uint32_t block_tokens = 0, chunk_count = 0;

    bool operator==(const ListedRows &) const = default;
};

struct Queue {
    Device *device = nullptr;
    References references{2};  // the caller's, and the device's
    Stream stream = nullptr;
    bool is_bound = false;  // the stream is an engine's
    uint64_t owner = 0;     // the one thread that may use it; 0: any
    Cell record;
    Cell word;           // in device memory: nonzero once a kernel found a fault
    uint64_t place = 0;  // the last one assigned
    uint64_t reached = 0;
    std::deque<Command> held;  // not submitted to the stream
    uint64_t scratch = 0;      // address, for attention
    uint64_t scratch_bytes = 0;
    ListedRows listed;
    // A graph holds the scratch memory, and may be launched between any two calls.
    bool was_captured = false;
    std::vector<uint64_t> outgrown;  // scratch that calls may still use
    PieceRing pieces;
    EventRing events;
    bool is_released = false;
    char why[192] = {};  // why it failed; empty: it has not

    void drop_reference();

    // REQUIRES, for all below: the device's mutex is held; for those that call the driver, the
    // context is current.
    quire_status check_usable(quire_error *error);
    // Reads how far the device has come, and any fault.
    void poll();
    bool has_passed(uint64_t at) const { return at <= reached; }
    bool has_failed() const { return why[0] != 0; }
    Work work();
    // Once a failed queue's stream is idle, counts all its places as reached, even if no kernel
    // reported them.
    void settle_failed();
    // True if the queue is released, has not failed, and suits such a stream. Its last place was
    // reached; if the stream is our own it is idle, else what still runs precedes the new owner's
    // work.
    bool is_spare_for(const StreamChoice &choice);
    void fail(const char *reason);
    // Submits the command to the stream. If it is refused in part, or the fence it waits for has
    // failed, the queue fails.
    Result give(const Command &command);
    // Submits held commands as far as their waits allow; true if it did anything.
    bool advance();
    // Fences that held commands would signal fail, as fail_fence() says.
    void drop_held();
    // Lets a fence fail that this queue will not signal any more: once the work that its stream was
    // given before is over, because whoever sees the failure may reuse the memory.
    void fail_fence(Fence *fence);
    // At least this many bytes, shared by the calls on this queue one after another.
    Result reserve_scratch(uint64_t size_bytes);
    void close();

 private:
    Result launch(KernelName name, uint64_t group_count, Head *arguments);
    // For kernels that use a fence: they get the next place.
    Result launch_place(KernelName name, const Command &command);
    Result signal(const Command &command);
    Result wait(const Command &command);
    // If some copies were refused after others were made, the queue fails.
    Result copy(const Copies &copies);
};

// Makes a queue that live_objects does not count. REQUIRES: the context is current; the mutex is
// held or the device is not yet shared.
quire_status make_queue(Device *device, const StreamChoice &choice, Queue **out,
                        quire_error *error);

// Uses one batched driver call if the driver has one that accepts the copies, else one call per
// copy. If a batch is refused for any reason except lack of memory, batches are not tried again. On
// an error *is_begun says whether some copies may have been made. REQUIRES: as make_queue().
Result give_copies(Device *device, Stream stream, const Copies &copies, bool *is_begun);

}  // namespace quire::gpu

struct quire_be_queue : quire::gpu::Queue {};
