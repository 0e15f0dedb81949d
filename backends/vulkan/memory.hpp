// SPDX-License-Identifier: Apache-2.0
//
// memory: what mem_alloc gave out, and where in Vulkan's buffers an address lies.
//
// An allocation that fits into one buffer has that buffer's device address. A larger one is divided
// into chunks, buffers of one power of two, and gets a range of addresses that no device has, from
// kDividedBegin on: chunk by chunk, each behind the one before. Kernels look such an address up in
// the chunk table, element by element (kernels/call.glsl); copies are cut at the chunks' ends.
// Host memory is not divided, since its pointer is one; nor is any on an engine's VkDevice, whose
// kernels have no chunk table: there it is refused. QUIRE_VULKAN_MAX_ALLOCATION lowers the size, in
// bytes, from which device memory is divided.
//
// Host memory of the engine's that the device cannot reach (staging.hpp) has addresses that no
// device has either, from kStagedBegin on: copies and fills go by the ring, kernels are refused.
//
// Invariants
//   (1) ranges of two allocations do not overlap
//   (2) every address that was made is a multiple of 4,096, and so is every chunk's begin in its
//       buffer; what was imported lies where it lies
//   (3) table entry i is where address kDividedBegin + i * chunk_bytes lies
//
// Threads: any.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "buffer.hpp"
#include "quire/plugin/backend.h"

namespace quire::vulkan {

constexpr uint64_t kDividedBegin = uint64_t{1} << 60;
constexpr uint64_t kStagedBegin = uint64_t{1} << 61;
constexpr uint32_t kChunkTableEntries = 16384;

// A piece of memory that lies in one buffer.
struct Span {
    VkBuffer buffer;
    uint64_t offset;
    uint64_t size_bytes;
};

class Memory {
 public:
    quire_status open(Context &context, quire_error *error);
    void close();

    quire_status allocate(uint64_t size_bytes, uint32_t kind, uint64_t *address,
                          void **host_pointer, quire_error *error);
    // The engine's own host memory: where it lies, or to be reached by the ring.
    quire_status import(void *host_pointer, uint64_t size_bytes, uint64_t *address,
                        quire_error *error);
    // The same place in host memory, of what is reached by the ring. False: it is not all in one
    // such import.
    bool find_staged(uint64_t address, uint64_t size_bytes, unsigned char **host);
    // False: no such allocation.
    bool release(uint64_t address, uint64_t size_bytes);
    // The first piece of [address, address + size_bytes); false: it is not all in one allocation.
    bool find(uint64_t address, uint64_t size_bytes, Span *span);
    struct Heap {
        uint64_t total_bytes;
        uint64_t free_bytes;  // of what nobody of this device has, as far as the driver tells
    };
    Heap device_heap();
    // Four bytes of this value.
    Span bytes_of(uint32_t value) const { return {bytes_.handle(), uint64_t{value} * 4, 4}; }
    uint64_t chunk_table_address() const { return table_.address(); }
    uint32_t chunk_shift() const { return chunk_shift_; }

 private:
    struct Chunk {
        Buffer buffer;
        uint64_t begin;  // in the buffer
    };
    struct Allocation {
        uint64_t size_bytes;
        std::vector<Chunk> chunks;
        uint32_t first_entry;  // of the chunk table, where there is more than one chunk
        uint32_t heap;
        uint64_t used_bytes;    // of that
        unsigned char *staged;  // of an import that has no buffer
    };
    using Allocations = std::map<uint64_t, Allocation>;

    Heap heap(uint32_t index);
    uint64_t undivided_bytes() const;  // device memory that fits into one buffer
    quire_status import_staged(unsigned char *host, uint64_t size_bytes, uint64_t *address,
                               quire_error *error);
    VkResult make_chunks(uint64_t size_bytes, BufferKind kind, Allocation *made);
    bool take_entries(uint32_t count, uint32_t *first);
    Allocations::iterator at(uint64_t address);
    bool overlaps(uint64_t address, uint64_t size_bytes);

    std::mutex mutex_;
    Context *context_ = nullptr;
    Buffer table_;
    Buffer bytes_;                // four of each value
    std::vector<bool> is_taken_;  // of the table's entries
    Allocations allocations_;
    uint64_t used_bytes_[VK_MAX_MEMORY_HEAPS] = {};
    uint64_t next_staged_ = kStagedBegin;  // no address is given twice
    uint32_t chunk_shift_ = 0;
};

quire_status mem_alloc(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                       uint64_t *address, void **host_pointer, quire_error *error);
quire_status mem_import(quire_be_device *device, void *host_pointer, uint64_t size_bytes,
                        uint64_t *address, quire_error *error);
void mem_free(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind);

// Is the address one of a divided allocation?
constexpr bool is_divided(uint64_t address) {
    return address >= kDividedBegin && address < kStagedBegin;
}
constexpr bool is_staged(uint64_t address) { return address >= kStagedBegin; }

// Refuses what a kernel cannot reach.
quire_status check_reached(std::span<const uint64_t> addresses, quire_error *error);

}  // namespace quire::vulkan
