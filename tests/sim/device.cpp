// SPDX-License-Identifier: Apache-2.0
//
// device: see device.hpp. The slots of the table are in device_slots.cpp.
#include "device.hpp"

#include <cstdlib>
#include <cstring>

namespace sim {

Device::~Device() {
    for (auto &[address, made] : allocations_) free(reinterpret_cast<void *>(address));
}

bool Device::is_meant(uint32_t kind) const {
    const bool enqueues = kind == kFaultWork || kind == kFaultFence;
    const bool other = kind == kFaultMemory || kind == kFaultRead || kind == kFaultOther;
    return fault_.kind == kind || (fault_.kind == kFaultAny && enqueues) ||
           (fault_.kind == kFaultGone && (enqueues || other));
}

bool Device::strikes(uint32_t kind) {
    if (fault_.count == 0 || !is_meant(kind)) return false;
    if (fault_.after != 0) {
        --fault_.after;
        return false;
    }
    --fault_.count;
    fault_.after = fault_.every;
    ++strikes_;
    order_refused_ |= kind == kFaultFence;
    return true;
}

quire_status Device::answer(uint32_t kind) { return strikes(kind) ? fault_.status : QUIRE_OK; }

void Device::push(Queue &queue, std::function<void(uint32_t)> run) {
    queue.works.push_back({std::move(run), nullptr, 0, host_clock_});
}

bool Device::hangs(const Queue &queue) {
    if (fault_.kind != kFaultHang || fault_.queue != queue.index) return false;
    if (fault_.after == 0) return true;
    --fault_.after;
    return false;
}

uint64_t Device::allocated(uint32_t kind) const {
    uint64_t sum = 0;
    for (const auto &[address, made] : allocations_)
        if (made.kind == kind && !made.freed) sum += made.size;
    return sum;
}

void Device::forget() {
    for (auto &[address, made] : allocations_) {
        if (made.kind == QUIRE_BE_MEMORY_DEVICE) free(reinterpret_cast<void *>(address));
        made.cells = {};
    }
}

bool Device::step(Queue &queue) {
    if (queue.works.empty() || gone() || hangs(queue)) return false;
    Work &work = queue.works.front();
    if (work.wait && work.wait->value < work.value) return false;
    join(queue.clock, work.host);
    if (work.wait) join(queue.clock, work.wait->after(work.value));
    ++queue.clock[queue.index];
    ++works_;
    const Work now = std::move(work);
    queue.works.pop_front();
    try {
        if (now.run) now.run(queue.index);
    } catch (Finding &found) {
        if (!finding) finding = std::move(found);
    }
    return true;
}

void Device::advance(uint32_t queue, uint32_t count) {
    if (queue >= queues_.size()) return;
    for (uint32_t i = 0; count == 0 || i < count; ++i)
        if (!step(*queues_[queue])) return;
}

void Device::drain() {
    for (bool ran = true; ran;) {
        ran = false;
        for (auto &queue : queues_)
            while (step(*queue)) ran = true;
    }
}

bool Device::idle() const {
    for (const auto &queue : queues_)
        if (!queue->works.empty()) return false;
    return true;
}

void Device::end_works() {
    const Fault fault = fault_;
    fault_ = {};
    drain();
    fault_ = fault;
    for (auto &queue : queues_) queue->works.clear();
    see_idle();
}

void Device::see_idle() {
    for (const auto &queue : queues_) join(host_clock_, queue->clock);
}

void Device::enqueue(uint32_t queue, std::shared_ptr<Kernel> kernel) {
    push(*queues_.at(queue), [this, kernel](uint32_t q) { run_kernel(*kernel, q); });
}

Device::Cell *Device::cell(uint64_t address) {
    auto at = allocations_.upper_bound(address);
    if (at == allocations_.begin()) fail("device-address", "address outside all memory");
    --at;
    if (address - at->first >= at->second.size)
        fail("device-address", "an address lies past an allocation of %llu bytes",
             static_cast<unsigned long long>(at->second.size));
    if (at->second.freed)
        fail("device-freed", "step %u uses an allocation of %llu bytes that was freed before",
             running_step_, static_cast<unsigned long long>(at->second.size));
    return &at->second.cells[(address - at->first) / 4];
}

void Device::read(uint64_t address, uint64_t size, uint32_t queue, const char *what) {
    if (size == 0) return;
    const VectorClock &clock = queues_[queue]->clock;
    Cell *one = cell(address);
    cell(address + size - 1);
    for (uint64_t i = 0; i < (size + 3) / 4; ++i, ++one) {
        if (one->write_clock > clock[one->write_queue])
            fail("device-race-read",
                 "%s on queue %u reads what work on queue %u may still write (step %u, then %u)",
                 what, queue, one->write_queue, one->writer, running_step_);
        one->reads[queue] = clock[queue];
    }
}

void Device::write(uint64_t address, uint64_t size, uint32_t queue, const char *what) {
    if (size == 0) return;
    const VectorClock &clock = queues_[queue]->clock;
    Cell *one = cell(address);
    cell(address + size - 1);
    for (uint64_t i = 0; i < (size + 3) / 4; ++i, ++one) {
        if (one->write_clock > clock[one->write_queue])
            fail("device-race-write",
                 "%s on queue %u writes what work on queue %u may still write (step %u, then %u)",
                 what, queue, one->write_queue, one->writer, running_step_);
        for (uint32_t q = 0; q < kMaxQueues; ++q)
            if (one->reads[q] > clock[q])
                fail(
                    "device-race-overwrite",
                    "%s on queue %u writes what work on queue %u may still read (step %u, then %u)",
                    what, queue, q, one->writer, running_step_);
        spoil_copies(*one, clock);
        one->is_copy = false;
        one->writer = running_step_;
        one->write_queue = queue;
        one->write_clock = clock[queue];
    }
}

// Copies whole words; what races with the source is noise at the target, and its reader decides
// whether that matters.
void Device::copy(uint64_t dst, uint64_t src, uint64_t size, uint32_t queue) {
    if (size == 0) return;
    cell(src + size - 1);
    write(dst, size, queue, "a copy");
    const uint64_t moved = strikes(kFaultLost) ? 0 : strikes(kFaultShort) ? size / 2 : size;
    memcpy(reinterpret_cast<void *>(dst), reinterpret_cast<const void *>(src), moved);
    if (strikes(kFaultCorrupt)) *reinterpret_cast<uint8_t *>(dst) ^= 1;
    const VectorClock &clock = queues_[queue]->clock;
    Cell *from = cell(src);
    Cell *to = cell(dst);
    for (uint64_t i = 0; i < (size + 3) / 4; ++i, ++from, ++to) {
        if (from->write_clock > clock[from->write_queue] && size % 4 == 0)
            memset(reinterpret_cast<void *>(dst + 4 * i), 0xDB, 4);
        to->is_copy = true;
        from->copied[queue] = clock[queue];
        from->copied_to[queue] = dst + 4 * i;
    }
}

void Device::spoil_copies(Cell &from, const VectorClock &clock) {
    for (uint32_t q = 0; q < kMaxQueues; ++q) {
        const uint64_t address = from.copied_to[q];
        if (address == 0) continue;
        from.copied_to[q] = 0;
        if (from.copied[q] <= clock[q]) continue;
        auto at = allocations_.upper_bound(address);
        if (at == allocations_.begin()) continue;
        --at;
        if (address - at->first >= at->second.size || at->second.freed) continue;
        const Cell &to = at->second.cells[(address - at->first) / 4];
        if (to.is_copy && to.write_queue == q && to.write_clock == from.copied[q])
            memset(reinterpret_cast<void *>(address), 0xDB, 4);
    }
}

void Device::run_kernel(const Kernel &kernel, uint32_t queue) {
    running_step_ = kernel.step;
    for (const auto &[address, wanted] : kernel.words) {
        read(address, 4, queue, "a kernel");
        int32_t found = 0;
        memcpy(&found, reinterpret_cast<const void *>(address), 4);
        if (found != wanted)
            fail("device-batch",
                 "step %u: a table of its batch holds %d where %d belongs when its "
                 "kernel runs",
                 kernel.step, found, wanted);
    }
    for (const KernelSlot &slot : kernel.writes) {
        write(slot.low, 4, queue, "a kernel");
        write(slot.high, 4, queue, "a kernel");
        const auto low = static_cast<uint32_t>(slot.content);
        const auto high = static_cast<uint32_t>(slot.content >> 32);
        memcpy(reinterpret_cast<void *>(slot.low), &low, 4);
        memcpy(reinterpret_cast<void *>(slot.high), &high, 4);
    }
    for (const KernelSlot &slot : kernel.reads) {
        read(slot.low, 4, queue, "a kernel");
        read(slot.high, 4, queue, "a kernel");
        uint32_t low = 0;
        uint32_t high = 0;
        memcpy(&low, reinterpret_cast<const void *>(slot.low), 4);
        memcpy(&high, reinterpret_cast<const void *>(slot.high), 4);
        const Content found = static_cast<Content>(high) << 32 | low;
        if (found != slot.content && kernel.checked)
            fail(
                "device-content",
                "step %u sequence %u group %u: token %u reads %s of tenant %u; expected content of "
                "tenant %u",
                kernel.step, slot.seq, slot.group, slot.place,
                found == 0 ? "zeros" : "other content", tenant_of(found), tenant_of(slot.content));
    }
}

}  // namespace sim
