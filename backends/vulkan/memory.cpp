// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstring>

#include "device.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"

namespace quire::vulkan {

namespace {

constexpr uint64_t kAlignment = 4096;

uint64_t aligned(uint64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

quire_status Memory::open(Context &context, quire_error *error) {
    context_ = &context;
    // A chunk is a power of two and leaves room for alignment in its buffer.
    uint64_t most = context.adapter.divide_bytes - kAlignment;
    chunk_shift_ = static_cast<uint32_t>(std::bit_width(most)) - 1;
    is_taken_.assign(kChunkTableEntries, false);
    VkResult result = table_.make(context, kChunkTableEntries * sizeof(uint64_t), BufferKind::host);
    if (result != VK_SUCCESS) return fail_vulkan(error, result, "the table of chunks");
    result = bytes_.make(context, 256 * 4, BufferKind::host);
    if (result != VK_SUCCESS) return fail_vulkan(error, result, "the table of bytes");
    for (int value = 0; value < 256; ++value) std::memset(bytes_.host() + value * 4, value, 4);
    return QUIRE_OK;
}

void Memory::close() {
    allocations_.clear();
    table_.release();
    bytes_.release();
}

VkResult Memory::make_chunks(uint64_t size_bytes, BufferKind kind, Allocation *made) {
    bool is_divided = kind == BufferKind::device && size_bytes > undivided_bytes();
    uint64_t chunk_bytes = is_divided ? uint64_t{1} << chunk_shift_ : size_bytes;
    for (uint64_t begin = 0; begin < size_bytes; begin += chunk_bytes) {
        Chunk chunk{};
        uint64_t wanted = std::min(size_bytes - begin, chunk_bytes);
        VkResult result = chunk.buffer.make(*context_, wanted + kAlignment, kind);
        chunk.begin = aligned(chunk.buffer.address()) - chunk.buffer.address();
        made->chunks.push_back(std::move(chunk));
        if (result != VK_SUCCESS) return result;
    }
    return VK_SUCCESS;
}

uint64_t Memory::undivided_bytes() const { return context_->adapter.divide_bytes - kAlignment; }

// The first run of adjacent free entries.
bool Memory::take_entries(uint32_t count, uint32_t *first) {
    uint32_t run = 0;
    for (uint32_t i = 0; i < kChunkTableEntries; ++i) {
        run = is_taken_[i] ? 0 : run + 1;
        if (run < count) continue;
        *first = i + 1 - count;
        std::fill_n(is_taken_.begin() + *first, count, true);
        return true;
    }
    return false;
}

quire_status Memory::allocate(uint64_t size_bytes, uint32_t kind, uint64_t *address,
                              void **host_pointer, quire_error *error) {
    bool is_host = kind == QUIRE_BE_MEMORY_HOST;
    if (context_->is_engines && !is_host && size_bytes > undivided_bytes()) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "cannot allocate %" PRIu64
                    " bytes of device memory: this VkDevice allocates at most %" PRIu64
                    " at once, and an engine's kernels cannot use the addresses of divided memory; "
                    "request less",
                    size_bytes, undivided_bytes());
    }
    std::lock_guard lock(mutex_);
    const Adapter &adapter = context_->adapter;
    Allocation made{};
    made.size_bytes = size_bytes;
    made.heap = adapter.heap_of(is_host ? adapter.host_memory_type : adapter.device_memory_type);
    Heap from = heap(made.heap);
    // Host memory cannot be divided, because it has a single pointer.
    bool fits = size_bytes <= from.free_bytes &&
                (!is_host || size_bytes <= adapter.max_allocation_bytes - kAlignment);
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (fits) {
        result = make_chunks(size_bytes, is_host ? BufferKind::host : BufferKind::device, &made);
    }
    auto count = static_cast<uint32_t>(made.chunks.size());
    bool is_one = count == 1;
    if (result != VK_SUCCESS || (!is_one && !take_entries(count, &made.first_entry))) {
        return fail(error, QUIRE_E_DEVICE_MEMORY,
                    "cannot allocate %" PRIu64 " bytes of %s memory (VkResult %d); %" PRIu64
                    " of %" PRIu64 " bytes are free",
                    size_bytes, is_host ? "host" : "device", static_cast<int>(result),
                    from.free_bytes, from.total_bytes);
    }
    if (is_one) {
        *address = made.chunks[0].buffer.address() + made.chunks[0].begin;
    } else {
        *address = kDividedBegin + (uint64_t{made.first_entry} << chunk_shift_);
        for (uint32_t i = 0; i < count; ++i) {
            uint64_t begin = made.chunks[i].buffer.address() + made.chunks[i].begin;
            std::memcpy(table_.host() + (made.first_entry + i) * sizeof begin, &begin,
                        sizeof begin);
        }
    }
    *host_pointer = is_host ? made.chunks[0].buffer.host() + made.chunks[0].begin : nullptr;
    made.used_bytes = size_bytes;
    used_bytes_[made.heap] += size_bytes;
    allocations_.emplace(*address, std::move(made));
    return QUIRE_OK;
}

quire_status Memory::import(void *host_pointer, uint64_t size_bytes, uint64_t *address,
                            quire_error *error) {
    if (!context_->imports_host) {
        return import_staged(static_cast<unsigned char *>(host_pointer), size_bytes, address,
                             error);
    }
    uint64_t unit = context_->adapter.import_alignment;
    if (reinterpret_cast<uint64_t>(host_pointer) % unit != 0 || size_bytes % unit != 0) {
        return fail(error, QUIRE_E_ARG,
                    "host_pointer and size_bytes must be multiples of %" PRIu64
                    " for this device to import memory",
                    unit);
    }
    if (size_bytes > context_->adapter.max_allocation_bytes) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "cannot import %" PRIu64 " bytes: this device imports at most %" PRIu64
                    " at once",
                    size_bytes, context_->adapter.max_allocation_bytes);
    }
    Allocation made{};
    made.size_bytes = size_bytes;
    made.chunks.emplace_back();
    Buffer &buffer = made.chunks[0].buffer;
    VkResult result = buffer.import(*context_, host_pointer, size_bytes);
    if (result != VK_SUCCESS) return fail_vulkan(error, result, "to import host memory");
    uint64_t found = buffer.address();
    std::lock_guard lock(mutex_);
    // Some devices give it the same address as on the host.
    if (overlaps(found, size_bytes)) {
        return fail(error, QUIRE_E_ARG,
                    "the %" PRIu64
                    " bytes overlap memory that is already allocated or imported on the device",
                    size_bytes);
    }
    allocations_.emplace(found, std::move(made));
    *address = found;
    return QUIRE_OK;
}

quire_status Memory::import_staged(unsigned char *host, uint64_t size_bytes, uint64_t *address,
                                   quire_error *error) {
    std::lock_guard lock(mutex_);
    for (const auto &[begin, one] : allocations_) {
        if (one.staged == nullptr || one.staged >= host + size_bytes) continue;
        if (one.staged + one.size_bytes <= host) continue;
        return fail(error, QUIRE_E_ARG,
                    "the %" PRIu64
                    " bytes overlap memory that is already allocated or imported on the device",
                    size_bytes);
    }
    // 2^60 addresses: a few thousand times what a host can map.
    if (size_bytes > UINT64_MAX - next_staged_ - kAlignment) {
        return fail(error, QUIRE_E_UNSUPPORTED, "cannot import %" PRIu64 " bytes: import less",
                    size_bytes);
    }
    Allocation made{};
    made.size_bytes = size_bytes;
    made.staged = host;
    *address = next_staged_;
    next_staged_ += aligned(size_bytes);
    allocations_.emplace(*address, std::move(made));
    return QUIRE_OK;
}

bool Memory::find_staged(uint64_t address, uint64_t size_bytes, unsigned char **host) {
    std::lock_guard lock(mutex_);
    auto found = at(address);
    if (found == allocations_.end() || found->second.staged == nullptr) return false;
    const Allocation &one = found->second;
    uint64_t offset = address - found->first;
    if (offset > one.size_bytes || size_bytes > one.size_bytes - offset) return false;
    *host = one.staged + offset;
    return true;
}

// REQUIRES: the mutex is held.
bool Memory::overlaps(uint64_t address, uint64_t size_bytes) {
    auto before = at(address + size_bytes - 1);
    return before != allocations_.end() && before->first + before->second.size_bytes > address;
}

Memory::Allocations::iterator Memory::at(uint64_t address) {
    auto next = allocations_.upper_bound(address);
    return next == allocations_.begin() ? allocations_.end() : std::prev(next);
}

bool Memory::release(uint64_t address, uint64_t size_bytes) {
    std::lock_guard lock(mutex_);
    auto found = allocations_.find(address);
    if (found == allocations_.end() || found->second.size_bytes != size_bytes) return false;
    const Allocation &one = found->second;
    if (one.chunks.size() > 1) {
        std::fill_n(is_taken_.begin() + one.first_entry, one.chunks.size(), false);
    }
    used_bytes_[one.heap] -= one.used_bytes;
    allocations_.erase(found);
    return true;
}

bool Memory::find(uint64_t address, uint64_t size_bytes, Span *span) {
    std::lock_guard lock(mutex_);
    auto found = at(address);
    if (found == allocations_.end() || found->second.chunks.empty()) return false;
    const Allocation &one = found->second;
    uint64_t offset = address - found->first;
    if (offset > one.size_bytes || size_bytes > one.size_bytes - offset) return false;
    uint64_t index = one.chunks.size() > 1 ? offset >> chunk_shift_ : 0;
    uint64_t in_chunk = offset - (index << chunk_shift_) * (one.chunks.size() > 1 ? 1 : 0);
    uint64_t left = one.chunks.size() > 1 ? (uint64_t{1} << chunk_shift_) - in_chunk : size_bytes;
    const Chunk &chunk = one.chunks[index];
    *span = {chunk.buffer.handle(), chunk.begin + in_chunk, std::min(size_bytes, left)};
    return true;
}

// REQUIRES: the mutex is held.
Memory::Heap Memory::heap(uint32_t index) {
    uint64_t total_bytes = context_->adapter.memory.memoryHeaps[index].size;
    uint64_t free_bytes = total_bytes - std::min(total_bytes, used_bytes_[index]);
    if (!context_->adapter.has_memory_budget) return {total_bytes, free_bytes};
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
    budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
    VkPhysicalDeviceMemoryProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    properties.pNext = &budget;
    context_->instance().vkGetPhysicalDeviceMemoryProperties2(context_->adapter.handle,
                                                              &properties);
    uint64_t budget_bytes = budget.heapBudget[index];
    uint64_t left_bytes = budget_bytes - std::min(budget_bytes, budget.heapUsage[index]);
    return {total_bytes, std::min(free_bytes, left_bytes)};
}

Memory::Heap Memory::device_heap() {
    std::lock_guard lock(mutex_);
    const Adapter &adapter = context_->adapter;
    return heap(adapter.heap_of(adapter.device_memory_type));
}

quire_status allocate(Device &device, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                      void **host_pointer, quire_error *error) {
    uint64_t made = 0;
    void *pointer = nullptr;
    if (quire_status status = device.memory.allocate(size_bytes, kind, &made, &pointer, error)) {
        return status;
    }
    if (kind == QUIRE_BE_MEMORY_HOST) {
        std::memset(pointer, 0, size_bytes);
    } else if (quire_status status = device.zero(made, size_bytes, error)) {
        device.memory.release(made, size_bytes);
        return status;
    }
    *address = made;
    *host_pointer = pointer;
    return QUIRE_OK;
}

quire_status import_memory(Device &device, void *host_pointer, uint64_t size_bytes,
                           uint64_t *address, quire_error *error) {
    return device.memory.import(host_pointer, size_bytes, address, error);
}

bool free_memory(Device &device, uint64_t address, uint64_t size_bytes, uint32_t) {
    unsigned char *staged = nullptr;
    bool is_staged = device.memory.find_staged(address, size_bytes, &staged);
    if (!device.memory.release(address, size_bytes)) return false;
    if (is_staged) {
        std::lock_guard lock(device.mutex);
        device.staging.land();
        device.staging.forget(staged, size_bytes);
    }
    return true;
}

quire_status check_reached(std::span<const uint64_t> addresses, quire_error *error) {
    if (std::none_of(addresses.begin(), addresses.end(), is_staged)) return QUIRE_OK;
    return fail(error, QUIRE_E_UNSUPPORTED,
                "kernels cannot access host memory imported on a device without "
                "VK_EXT_external_memory_host; only copies can: copy the data, or let Quire "
                "allocate the memory");
}

}  // namespace quire::vulkan
