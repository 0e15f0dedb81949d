// SPDX-License-Identifier: Apache-2.0
//
// memory: the allocations made by mem_alloc, and where in Vulkan's buffers an address lies.
//
// An allocation that fits into one buffer has that buffer's device address. A larger one is divided
// into chunks, buffers of one power-of-two size, and gets a range of addresses that no device uses,
// from kDividedBegin on, one chunk after another. Kernels look such an address up in the chunk
// table for each element (kernels/call.glsl); copies are split at chunk ends. Host memory is not
// divided, because it has a single pointer. Nor is memory on an engine's VkDevice, whose kernels
// have no chunk table: what does not fit is refused there. QUIRE_VULKAN_MAX_ALLOCATION lowers the
// size, in bytes, from which device memory is divided.
//
// An engine's host memory that the device cannot reach (staging.hpp) also has addresses that no
// device uses, from kStagedBegin on: copies and fills go through the ring, kernels are refused.
//
// Invariants
//   (1) ranges of two allocations do not overlap
//   (2) every allocated address is a multiple of 4,096, and so is every chunk's beginning in its
//       buffer; imported memory keeps the address it has
//   (3) table entry i is the device address of kDividedBegin + i * chunk_bytes
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

struct Device;

constexpr uint64_t kDividedBegin = uint64_t{1} << 60;
constexpr uint64_t kStagedBegin = uint64_t{1} << 61;
constexpr uint32_t kChunkTableEntries = 16384;

// A part of memory that lies in one buffer.
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
    // Imports an engine's host memory: for direct access, or to be reached through the ring.
    quire_status import(void *host_pointer, uint64_t size_bytes, uint64_t *address,
                        quire_error *error);
    // The host pointer for memory that is reached through the ring. False: the range is not within
    // one such import.
    bool find_staged(uint64_t address, uint64_t size_bytes, unsigned char **host);
    // False: no such allocation.
    bool release(uint64_t address, uint64_t size_bytes);
    // The first part of [address, address + size_bytes); false: the range is not within one
    // allocation.
    bool find(uint64_t address, uint64_t size_bytes, Span *span);
    struct Heap {
        uint64_t total_bytes;
        uint64_t free_bytes;  // not allocated here or, as far as the driver tells, elsewhere
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
        uint32_t first_entry;  // in the chunk table, if there is more than one chunk
        uint32_t heap;
        uint64_t used_bytes;    // of that heap
        unsigned char *staged;  // host pointer of an import without a buffer
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
    Buffer bytes_;                // four of each byte value
    std::vector<bool> is_taken_;  // of the table's entries
    Allocations allocations_;
    uint64_t used_bytes_[VK_MAX_MEMORY_HEAPS] = {};
    uint64_t next_staged_ = kStagedBegin;  // no address is given twice
    uint32_t chunk_shift_ = 0;
};

quire_status allocate(Device &device, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                      void **host_pointer, quire_error *error);
quire_status import_memory(Device &device, void *host_pointer, uint64_t size_bytes,
                           uint64_t *address, quire_error *error);
// False: no such memory.
bool free_memory(Device &device, uint64_t address, uint64_t size_bytes, uint32_t kind);

// True if the address belongs to a divided allocation.
constexpr bool is_divided(uint64_t address) {
    return address >= kDividedBegin && address < kStagedBegin;
}
constexpr bool is_staged(uint64_t address) { return address >= kStagedBegin; }

// Refuses addresses that a kernel cannot reach.
quire_status check_reached(std::span<const uint64_t> addresses, quire_error *error);

}  // namespace quire::vulkan
