// SPDX-License-Identifier: Apache-2.0
//
// queue: a stream of the driver's, and what it says of itself.
//
// Held      a wait for what neither the host nor a stream's work will signal yet stays here, on the
//           host, and so does all behind it: a stream that waits may hold up other streams, its
//           signaller's too, for GPUs have few hardware queues. Whoever signals gives it to the
//           stream (quire_be_device::pump()). So all that streams were given comes to its end by
//           itself, and closing drops the rest.
//
// What has to do with fences has a place on its queue, counted from 1; the queue's record in pinned
// memory tells the host which was passed last, and what a kernel found wrong.
//
// Bound     a queue on an engine's own stream gives it all in each call, so that it keeps its place
//           among what the engine enqueues there, and is never held: a wait for what nobody has
//           signalled is refused. The stream stays the engine's.
// Captured  what an engine captures of its stream runs at each launch of its graph, so only what
//           means the same then may be enqueued: launches that read all but addresses and shapes
//           from the device's memory (begin_replayable()). The rest is refused. The graph holds
//           addresses of the queue's scratch memory, record and fault word: they live as long as
//           the device. Meanwhile nobody can ask how far the stream is (Work::unknown).
// Release   waits for nothing; what was enqueued runs on. The queue stays with its device, which
//           gives it to the next who wants one: a driver may wait when a stream is destroyed.
// Faults    a kernel that finds an index outside its pool sets the queue's fault word; kernels
//           behind it do nothing, fences behind it read all ones, and later calls on the queue say
//           what was found, but for signals, which fail their fences. Fills and large copies behind
//           it may still run.
//
// Invariants
//   (1) once failed, every fence that the queue signals fails
//   (2) a call that fails has enqueued nothing; where it had, the queue has failed, but for what a
//       graph got: whoever captures was told
//   (3) the first of what is held is a wait
//
// Threads: any; all fields belong to the device's mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "cells.hpp"
#include "command.hpp"
#include "enqueue.hpp"
#include "kernels.hpp"
#include "piece_ring.hpp"
#include "quire/plugin/backend.h"

namespace quire::gpu {

quire_status queue_bind(quire_be_device *device, const quire_native *native, quire_be_queue **out,
                        quire_error *error);
void queue_release(quire_be_queue *queue);
quire_status fence_signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                          quire_error *error);
quire_status fence_wait(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                        quire_error *error);

// What a queue's work goes to.
struct StreamChoice {
    bool is_urgent = false;  // of a stream of ours
    bool is_bound = false;   // to an engine's own
    Stream bound = nullptr;
    uint64_t owner = 0;  // of it (owner_of())
};

// What a queue's stream still has to do, the least first.
enum class Work {
    none,
    unknown,  // asking would break what the engine captures, or the stream is another thread's own
              // or no more
    some,
};

// Makes a queue that nobody counts. REQUIRES: the context is current, the mutex held or the device
// not yet known to anybody.
quire_status make_queue(quire_be_device *device, const StreamChoice &choice, quire_be_queue **out,
                        quire_error *error);

// By one call of the driver where it has one that takes them, else by a call each; once it refused
// one for more than want of memory, it is not asked again. Where it is refused, *is_begun says
// whether some may have been made. REQUIRES: as make_queue().
Result give_copies(quire_be_device *device, Stream stream, const Copies &copies, bool *is_begun);

}  // namespace quire::gpu

struct quire_be_queue {
    quire_be_device *device = nullptr;
    std::atomic<uint32_t> references{2};  // the caller's, and the device's
    quire::gpu::Stream stream = nullptr;
    bool is_bound = false;  // the stream is an engine's
    uint64_t owner = 0;     // the one thread that may use it; 0: any
    quire::gpu::Cell record;
    quire::gpu::Cell word;  // of device memory: not 0 once a kernel found a fault
    uint64_t place = 0;     // handed out last
    uint64_t reached = 0;
    std::deque<quire::gpu::Command> held;  // not given to the stream
    uint64_t scratch = 0;                  // address, of attention
    uint64_t scratch_bytes = 0;
    std::vector<uint64_t> outgrown;  // scratch that calls may still use
    quire::gpu::PieceRing pieces;
    bool is_released = false;
    char why[192] = {};  // it failed

    void drop_reference();

    // REQUIRES, of all below: the device's mutex is held; of those that call the driver: the
    // context is current.
    quire_status check_usable(quire_error *error);
    // Looks how far the device came, and learns of faults.
    void poll();
    bool has_passed(uint64_t at) const { return at <= reached; }
    bool has_failed() const { return why[0] != 0; }
    quire::gpu::Work work();
    // What it was given last has run, though it does not say so itself.
    void settle_failed();
    // Released, and another may have it who wants such a stream. All that it was given has run; on
    // an engine's stream the rest of it comes before what the other gives.
    bool is_spare_for(const quire::gpu::StreamChoice &choice);
    void fail(const char *reason);
    // Gives it to the stream. Where that is refused in part, or the fence it waits for has failed,
    // the queue fails.
    quire::gpu::Result give(const quire::gpu::Command &command);
    // Gives the stream what is held, as far as nothing stands against it; says whether there was
    // anything to do.
    bool advance();
    // Fences that it would signal fail.
    void drop_held();
    // At least so many bytes, which the calls on this queue use one after another.
    quire::gpu::Result reserve_scratch(uint64_t size_bytes);
    void close();

 private:
    quire::gpu::Result launch(quire::gpu::KernelName name, uint64_t group_count,
                              quire::gpu::Head *arguments);
    // Of the kernels that have to do with a fence: they get the next place.
    quire::gpu::Result launch_place(quire::gpu::KernelName name,
                                    const quire::gpu::Command &command);
    quire::gpu::Result wait(const quire::gpu::Command &command);
    // Where some were refused behind others the queue fails.
    quire::gpu::Result copy(const quire::gpu::Copies &copies);
};
