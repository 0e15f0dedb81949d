// SPDX-License-Identifier: Apache-2.0
//
// counting_host: an instance's host allocator that counts live allocations, returns NULL at a
// chosen call, and can call back into the library.
//
// Threads: any; set the callback only while no thread allocates.
#pragma once

#include <quire/quire.h>

#include <atomic>
#include <cstdlib>
#include <functional>

namespace quire::test {

class CountingHost {
 public:
    CountingHost() = default;
    CountingHost(const CountingHost &) = delete;
    CountingHost &operator=(const CountingHost &) = delete;

    std::atomic<int64_t> live_bytes{0};
    std::atomic<int64_t> live_blocks{0};
    std::atomic<int64_t> taken_bytes{0};  // by all allocations so far, freed ones too
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> fail_at{UINT64_MAX};  // the call, counted from 1, that gets NULL
    std::function<void()> on_allocate;

    quire_instance_desc description() {
        quire_instance_desc desc{};
        desc.struct_size = sizeof desc;
        desc.allocate = allocate;
        desc.release = release;
        desc.allocator_user = this;
        return desc;
    }

 private:
    static void *allocate(void *user, uint64_t size_bytes, uint64_t alignment) {
        auto *self = static_cast<CountingHost *>(user);
        if (++self->calls == self->fail_at) return nullptr;
        if (self->on_allocate) self->on_allocate();
        self->live_bytes += static_cast<int64_t>(size_bytes);
        self->taken_bytes += static_cast<int64_t>(size_bytes);
        ++self->live_blocks;
        return std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment);
    }
    static void release(void *user, void *pointer, uint64_t size_bytes, uint64_t) {
        auto *self = static_cast<CountingHost *>(user);
        self->live_bytes -= static_cast<int64_t>(size_bytes);
        --self->live_blocks;
        std::free(pointer);
    }
};

}  // namespace quire::test
