// SPDX-License-Identifier: Apache-2.0
//
// device: a device that does nothing until it is told to, behind the backend table of
// plugin/backend.h.
//
// Why: a real device runs early and nearly in order, so it hides missing waits. Here work lies in
// its queue until advance() runs some of it, fences are reached no earlier, and every access of
// four bytes is checked by vector clocks: it must happen after all that it conflicts with, in every
// order that queues, fences and what the host has read of them allow.
//
// Invariants:
//   (1) works of a queue run in the order of their enqueueing
//   (2) a wait runs when its fence has the value; it joins the fence's clock into the queue's
//   (3) work happens after all that the host knew when it enqueued it (host_clock)
//
// Threads: one per device; the library starts none. A finding in a callback is kept in `finding`,
// for nothing may be thrown through the library, and rethrown by World.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "content.hpp"
#include "finding.hpp"
#include "memory.hpp"
#include "quire/cache.h"
#include "quire/plugin/backend.h"
#include "rng.hpp"

namespace sim {

// A slot that an engine's kernel writes or reads: the addresses of its halves, and what is there.
struct KernelSlot {
    uint64_t low = 0;
    uint64_t high = 0;
    Content content = 0;
    uint32_t seq = 0;
    uint32_t place = 0;
    uint32_t group = 0;
};

// What an engine enqueues of one row of a step.
struct Kernel {
    uint32_t step = 0;
    uint8_t depends = 0;  // unfinished steps that its rows read from
    bool checked = true;  // false: a step that it depends on failed, so it reads anything
    std::vector<KernelSlot> writes;
    std::vector<KernelSlot> reads;
    // Words of a batch's tables that must be so when the kernel runs.
    std::vector<std::pair<uint64_t, int32_t>> words;
};

// What a device answers instead of working, or does instead of what it says.
enum FaultKind : uint32_t {
    kFaultNone = 0,
    kFaultMemory = 1,  // it is out of memory
    kFaultWork = 2,    // copies, fills and moves are refused
    kFaultFence = 3,   // signals and waits that are to be enqueued are refused
    kFaultAny = 4,     // both of these
    // Silent, so no random script has them: the oracle must find what they do.
    kFaultCorrupt = 5,  // one bit of a copy is wrong
    kFaultShort = 6,    // a copy ends half way
    kFaultLost = 7,     // a copy does not happen
    kFaultMute = 8,     // a signal that was enqueued does not happen
    // The engine's own mistake (World::leak): it never ends a sequence of `count` tokens, which it
    // makes while all work is finished, or with `after` when that is done.
    kFaultLeak = 9,
    // Loud again.
    kFaultRead = 10,   // reads of fences are refused
    kFaultGone = 11,   // the device is lost: every call is refused, and no work runs meanwhile
    kFaultHang = 12,   // a queue runs `after` works more, and no other
    kFaultClock = 14,  // silent: a call that enqueues a signal reads the time
    // The engine's own mistake: its weights are others, and the tier's fingerprint is not.
    kFaultWeights = 15,
    // Silent, in what the simulator reads of the library: a copy on write of another block; a hit
    // within a block that is one token longer.
    kFaultSource = 16,
    kFaultLonger = 17,
    // In what it does itself: a block that is inserted has other content; a find does not touch.
    kFaultFill = 18,
    kFaultTouch = 19,
    // And what else it does or reads: a find that is read as one block shorter, a block that is not
    // zeroed, blocks that it forgets without a word.
    kFaultShorter = 20,
    kFaultDirty = 21,
    kFaultForget = 22,
    kFaultSwapped = 23,    // two blocks of a place, as a match names them
    kFaultUnwritten = 25,  // a block of a lease that is not written on the devices
    kFaultApart = 24,      // a block less of what an eviction says
    kFaultUnheard = 26,    // a block less of what a follower's lease holds
    kFaultOther = 13,      // not planted: what else only a lost device refuses
};

// `count` calls of its kind fail: the first after `after` good ones, and then each after `every`.
struct Fault {
    uint32_t kind = kFaultNone;
    uint32_t after = 0;
    uint32_t count = 0;
    uint32_t every = 0;
    uint32_t queue = 0;  // that hangs
    quire_status status = QUIRE_E_DEVICE_LOST;
};

class Device {
 public:
    ~Device();
    // Replaces the fault before it, which may not have struck as often as it should.
    void plant(const Fault &fault) { fault_ = fault; }
    bool fault_armed() const { return fault_.count != 0; }
    bool gone() const {
        return fault_.kind == kFaultGone && fault_.after == 0 && fault_.count != 0;
    }
    // No work of the queue runs until another fault is planted.
    void hang(uint32_t queue) {
        fault_ = {};
        fault_.kind = kFaultHang;
        fault_.queue = queue;
    }
    bool hung() const { return fault_.kind == kFaultHang; }
    uint64_t allocated(uint32_t kind) const;
    // Whoever abandons it waits for nothing, and does not close it.
    void outlive() { outlived_ = true; }
    // Frees what no one can reach any more once its last work has run.
    void forget();
    // Calls that waited for work.
    uint64_t waits() const { return waits_; }
    // Calls that failed, and copies that went wrong.
    uint64_t strikes() const { return strikes_; }
    bool order_refused() const { return order_refused_; }  // a signal or a wait
    // Runs up to `count` works of the queue made as number `queue`; 0: all that can run.
    void advance(uint32_t queue, uint32_t count);
    // Runs all that can run, on all queues.
    void drain();
    bool idle() const;
    // Runs all that lies in the queues, for it may not run later; what cannot run is dropped.
    void end_works();
    // The host knows that nothing runs: what it enqueues from now on comes after all that did.
    void see_idle();
    uint32_t queue_count() const { return static_cast<uint32_t>(queues_.size()); }
    void enqueue(uint32_t queue, std::shared_ptr<Kernel> kernel);
    uint64_t works() const { return works_; }
    std::optional<Finding> finding;

    // The table of the backend; devices are those opened last on this thread.
    static const quire_backend_api *table();
    static Device *current();

 private:
    friend struct DeviceSlots;
    struct Cell {
        uint32_t writer = 0;
        uint32_t write_queue = 0;
        Clock write_clock = 0;
        bool is_copy = false;  // its last write was a copy
        VectorClock reads{};
        // As in Memory: a copy reads whole blocks, so a race with it makes noise of what it made.
        VectorClock copied{};
        std::array<uint64_t, kMaxQueues> copied_to{};
    };
    struct Allocation {
        uint64_t size = 0;
        uint32_t kind = 0;
        bool freed = false;  // kept, so that no other is there and work that uses it is found
        std::vector<Cell> cells;
    };
    struct Fence {
        Device *device = nullptr;
        uint64_t value = 0;
        std::vector<std::pair<uint64_t, VectorClock>> signals;  // that were reached, rising
        // What a wait for `wanted` happens after: the first signal that reached it.
        VectorClock after(uint64_t wanted) const {
            for (const auto &[reached, clock] : signals)
                if (reached >= wanted) return clock;
            return {};
        }
    };
    struct Work {
        std::function<void(uint32_t queue)> run;
        std::shared_ptr<Fence> wait;  // for this value
        uint64_t value = 0;
        VectorClock host{};
    };
    struct Queue {
        Device *device = nullptr;
        uint32_t index = 0;
        std::deque<Work> works;
        VectorClock clock{};
        bool released = false;  // what lies in it runs on
    };
    bool is_meant(uint32_t kind) const;
    bool hangs(const Queue &queue);
    // Whether the fault is of this kind, and its turn has come.
    bool strikes(uint32_t kind);
    quire_status answer(uint32_t kind);
    void push(Queue &queue, std::function<void(uint32_t)> run);
    bool step(Queue &queue);
    Cell *cell(uint64_t address);
    void read(uint64_t address, uint64_t size, uint32_t queue, const char *what);
    void write(uint64_t address, uint64_t size, uint32_t queue, const char *what);
    void copy(uint64_t dst, uint64_t src, uint64_t size, uint32_t queue);
    void spoil_copies(Cell &cell, const VectorClock &clock);
    void run_kernel(const Kernel &kernel, uint32_t queue);

    std::map<uint64_t, Allocation> allocations_;
    std::vector<std::unique_ptr<Queue>> queues_;
    VectorClock host_clock_{};
    uint64_t works_ = 0;
    uint32_t running_step_ = 0;
    Fault fault_;
    uint64_t strikes_ = 0;
    bool order_refused_ = false;
    bool outlived_ = false;
    uint64_t waits_ = 0;
};

}  // namespace sim
