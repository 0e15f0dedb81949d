// SPDX-License-Identifier: Apache-2.0
//
// device_slots: the functions of the backend table of plugin/backend.h, over Device.
//
// What a kernel of the library would do is not offered: the engine that the simulator plays has its
// own.
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "device.hpp"

namespace sim {

namespace {
thread_local Device *current_device = nullptr;
}  // namespace

struct DeviceSlots {
    static Device &of(quire_be_device *device) { return *reinterpret_cast<Device *>(device); }
    static Device::Queue &of(quire_be_queue *queue) {
        return *reinterpret_cast<Device::Queue *>(queue);
    }
    using FencePointer = std::shared_ptr<Device::Fence>;
    static FencePointer &of(quire_be_fence *fence) {
        return *reinterpret_cast<FencePointer *>(fence);
    }

    static quire_status probe(uint32_t *count, quire_error *) {
        *count = 1;
        return QUIRE_OK;
    }
    static quire_status open(const quire_be_device_desc *, quire_be_device **out, quire_error *) {
        current_device = new Device;
        *out = reinterpret_cast<quire_be_device *>(current_device);
        return QUIRE_OK;
    }
    static void close(quire_be_device *device) {
        if (of(device).outlived_) {
            of(device).finding = Finding{"abandon-waits", "an abandoned device was closed"};
            return;
        }
        if (current_device == &of(device)) current_device = nullptr;
        delete &of(device);
    }
    static quire_status props(quire_be_device *device, quire_be_device_props *props,
                              quire_error *) {
        const quire_status status = of(device).answer(kFaultOther);
        if (status < 0) return status;
        props->host_visible = 0;
        props->memory_total_bytes = props->memory_free_bytes = 1ull << 30;
        props->copy_alignment = 4;
        props->flags = 0;
        strcpy(props->name, "simulated");
        return QUIRE_OK;
    }
    static quire_status query(quire_be_device *, const quire_be_attention_query *,
                              quire_be_answer *answer, quire_error *) {
        answer->support = QUIRE_BE_YES;
        answer->alignment = 4096;
        answer->workspace_bytes = 0;
        return QUIRE_OK;
    }
    static quire_status alloc(quire_be_device *device, uint64_t size, uint32_t kind,
                              uint64_t *address, void **host, quire_error *) {
        const quire_status status = of(device).answer(kFaultMemory);
        if (status < 0) return status;
        void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
        memset(memory, 0, size);
        *address = reinterpret_cast<uint64_t>(memory);
        *host = kind == QUIRE_BE_MEMORY_HOST ? memory : nullptr;
        Device::Allocation &made = of(device).allocations_[*address];
        made.size = size;
        made.kind = kind;
        made.cells.assign((size + 3) / 4, {});
        return QUIRE_OK;
    }
    static void release(quire_be_device *device, uint64_t address, uint64_t, uint32_t) {
        of(device).allocations_[address].freed = true;
    }
    static quire_status bind(quire_be_device *device, const quire_native *, quire_be_queue **out,
                             quire_error *) {
        const quire_status status = of(device).answer(kFaultOther);
        if (status < 0) return status;
        for (auto &old : of(device).queues_)
            if (old->released && old->works.empty()) {
                old->released = false;
                *out = reinterpret_cast<quire_be_queue *>(old.get());
                return QUIRE_OK;
            }
        auto queue = std::make_unique<Device::Queue>();
        queue->device = &of(device);
        queue->index = static_cast<uint32_t>(of(device).queues_.size());
        if (queue->index >= kMaxQueues) return rebind(of(device), out);
        *out = reinterpret_cast<quire_be_queue *>(queue.get());
        of(device).queues_.push_back(std::move(queue));
        return QUIRE_OK;
    }
    // What a released queue still holds runs first, where all clocks have a queue.
    static quire_status rebind(Device &device, quire_be_queue **out) {
        for (auto &old : device.queues_)
            if (old->released) {
                old->released = false;
                *out = reinterpret_cast<quire_be_queue *>(old.get());
                return QUIRE_OK;
            }
        return QUIRE_E_LIMIT;
    }
    static void unbind(quire_be_queue *queue) { of(queue).released = true; }

    static quire_status fence_create(quire_be_device *device, uint64_t value, quire_be_fence **out,
                                     quire_error *) {
        const quire_status status = of(device).answer(kFaultOther);
        if (status < 0) return status;
        auto *fence = new FencePointer(std::make_shared<Device::Fence>());
        (*fence)->device = &of(device);
        (*fence)->value = value;
        *out = reinterpret_cast<quire_be_fence *>(fence);
        return QUIRE_OK;
    }
    static void fence_destroy(quire_be_fence *fence) { delete &of(fence); }
    static quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *) {
        const quire_status status = of(fence)->device->answer(kFaultRead);
        if (status < 0) return status;
        *value = of(fence)->value;
        for (const auto &[reached, clock] : of(fence)->signals)
            join(of(fence)->device->host_clock_, clock);
        return QUIRE_OK;
    }
    static quire_status fence_signal_host(quire_be_fence *fence, uint64_t value, quire_error *) {
        const quire_status status = of(fence)->device->answer(kFaultOther);
        if (status < 0) return status;
        if (value <= of(fence)->value) return QUIRE_E_ARG;
        of(fence)->value = value;
        of(fence)->signals.emplace_back(value, of(fence)->device->host_clock_);
        return QUIRE_OK;
    }
    static quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout,
                                        quire_error *error) {
        of(fence)->device->waits_ += timeout != 0;
        if (timeout != 0) of(fence)->device->drain();
        uint64_t now = 0;
        const quire_status status = fence_read(fence, &now, error);
        if (status < 0) return status;
        return now >= value ? QUIRE_OK : QUIRE_S_TIMEOUT;
    }
    static quire_status fence_signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                                     quire_error *) {
        const quire_status status = of(queue).device->answer(kFaultFence);
        if (status < 0) return status;
        Device *device = of(queue).device;
        if (device->strikes(kFaultClock)) time(nullptr);
        device->push(of(queue), [device, fence = of(fence), value](uint32_t q) {
            if (fence->value >= value || device->strikes(kFaultMute)) return;
            fence->value = value;
            fence->signals.emplace_back(value, device->queues_[q]->clock);
        });
        return QUIRE_OK;
    }
    static quire_status fence_wait(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                                   quire_error *) {
        const quire_status status = of(queue).device->answer(kFaultFence);
        if (status < 0) return status;
        of(queue).works.push_back({nullptr, of(fence), value, of(queue).device->host_clock_});
        return QUIRE_OK;
    }
    static quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                             quire_error *) {
        const quire_status status = of(queue).device->answer(kFaultWork);
        if (status < 0) return status;
        Device *device = of(queue).device;
        std::vector<quire_be_copy> list(copies, copies + count);
        device->push(of(queue), [device, list](uint32_t q) {
            for (const quire_be_copy &c : list) device->copy(c.dst, c.src, c.size_bytes, q);
        });
        return QUIRE_OK;
    }
    static quire_status fill(quire_be_queue *queue, const quire_be_range *ranges, uint32_t count,
                             uint32_t byte, quire_error *) {
        const quire_status status = of(queue).device->answer(kFaultWork);
        if (status < 0) return status;
        Device *device = of(queue).device;
        std::vector<quire_be_range> list(ranges, ranges + count);
        device->push(of(queue), [device, list, byte](uint32_t q) {
            for (const quire_be_range &r : list) {
                device->write(r.address, r.size_bytes, q, "a fill");
                memset(reinterpret_cast<void *>(r.address), static_cast<int>(byte), r.size_bytes);
            }
        });
        return QUIRE_OK;
    }
    static quire_status move_tokens(quire_be_queue *queue, const quire_be_pool *pool,
                                    const quire_be_move *moves, uint32_t count, quire_error *) {
        const quire_status status = of(queue).device->answer(kFaultWork);
        if (status < 0) return status;
        Device *device = of(queue).device;
        std::vector<quire_be_move> list(moves, moves + count);
        device->push(of(queue), [device, list, pool = *pool](uint32_t q) {
            for (const quire_be_move &m : list)
                for (uint32_t part = 0; part < 2 * pool.kv_heads; ++part) {
                    const uint64_t from = address(pool, m.src, part / 2, part % 2);
                    const uint64_t to = address(pool, m.dst, part / 2, part % 2);
                    device->read(from, 4, q, "a move");
                    device->write(to, 4, q, "a move");
                    memcpy(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), 4);
                }
        });
        return QUIRE_OK;
    }
    // The pools of the simulator have one layer, and two halves of four bytes per token and head.
    static uint64_t address(const quire_be_pool &pool, int64_t slot, uint32_t head, uint32_t half) {
        const int64_t block = slot / pool.block_tokens;
        const int64_t place = slot % pool.block_tokens;
        const uint64_t base = pool.address + static_cast<uint64_t>(block * pool.block_stride +
                                                                   head * pool.k_head_stride);
        if (half == 0) return base + static_cast<uint64_t>(place * pool.k_token_stride);
        if (pool.group_kind == QUIRE_GROUP_LATENT)
            return base + static_cast<uint64_t>(place * pool.k_token_stride) + 4;
        return base + static_cast<uint64_t>(pool.v_offset + place * pool.v_token_stride +
                                            head * (pool.v_head_stride - pool.k_head_stride));
    }
    static quire_status kv_write(quire_be_queue *, const quire_be_kv_write *, quire_error *) {
        return QUIRE_E_UNSUPPORTED;
    }
    static quire_status plan_create(quire_be_device *, const quire_be_plan_desc *, quire_be_plan **,
                                    quire_error *) {
        return QUIRE_E_UNSUPPORTED;
    }
    static void plan_destroy(quire_be_plan *) {}  // there are none
    static quire_status attention(quire_be_queue *, quire_be_plan *, const quire_be_attention *,
                                  quire_error *) {
        return QUIRE_E_UNSUPPORTED;
    }
    static quire_status quiesce(quire_be_device *device, uint64_t timeout_ns, quire_error *) {
        const quire_status status = of(device).answer(kFaultOther);
        if (status == QUIRE_E_DEVICE_LOST) of(device).end_works();
        if (status < 0) return status;
        if (timeout_ns != 0) {
            ++of(device).waits_;
            of(device).drain();
        }
        if (!of(device).idle()) return QUIRE_S_TIMEOUT;
        of(device).see_idle();
        return QUIRE_OK;
    }
    static quire_status shutdown(uint64_t *live, quire_error *) {
        *live = 0;
        return QUIRE_OK;
    }
};

Device *Device::current() { return current_device; }

const quire_backend_api *Device::table() {
    static const quire_backend_api api = [] {
        quire_backend_api t{};
        t.struct_size = sizeof t;
        t.abi_major = QUIRE_BACKEND_ABI_MAJOR;
        t.abi_minor = QUIRE_BACKEND_ABI_MINOR;
        t.name = "sim";
        t.version = "1";
        t.probe = DeviceSlots::probe;
        t.device_open = DeviceSlots::open;
        t.device_close = DeviceSlots::close;
        t.device_props = DeviceSlots::props;
        t.query_attention = DeviceSlots::query;
        t.mem_alloc = DeviceSlots::alloc;
        t.mem_free = DeviceSlots::release;
        t.queue_bind = DeviceSlots::bind;
        t.queue_release = DeviceSlots::unbind;
        t.fence_create = DeviceSlots::fence_create;
        t.fence_destroy = DeviceSlots::fence_destroy;
        t.fence_read = DeviceSlots::fence_read;
        t.fence_signal_host = DeviceSlots::fence_signal_host;
        t.fence_wait_host = DeviceSlots::fence_wait_host;
        t.fence_signal = DeviceSlots::fence_signal;
        t.fence_wait = DeviceSlots::fence_wait;
        t.copy = DeviceSlots::copy;
        t.fill = DeviceSlots::fill;
        t.kv_write = DeviceSlots::kv_write;
        t.plan_create = DeviceSlots::plan_create;
        t.plan_destroy = DeviceSlots::plan_destroy;
        t.attention = DeviceSlots::attention;
        t.quiesce = DeviceSlots::quiesce;
        t.shutdown = DeviceSlots::shutdown;
        t.move_tokens = DeviceSlots::move_tokens;
        return t;
    }();
    return &api;
}

}  // namespace sim
