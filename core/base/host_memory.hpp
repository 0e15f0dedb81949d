// SPDX-License-Identifier: Apache-2.0
//
// host_memory: the host allocator, and the two shapes in which the core holds memory.
//
// Array      one allocation of plain values, sized at creation, growable by doubling.
// BufferPool power-of-two buffers that are kept when they are given back. Sequences come and go;
// after a
//            while every buffer they need lies here, and nothing is allocated any more.
//
// Threads: none. Both return false instead of throwing when the allocator does.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/base/checked.hpp"
#include "core/base/status.hpp"

namespace quire {

struct HostAllocator {
    void *(*allocate)(void *user, uint64_t size_bytes, uint64_t alignment) = nullptr;
    void (*release)(void *user, void *pointer, uint64_t size_bytes, uint64_t alignment) = nullptr;
    void *user = nullptr;
};

inline Status no_host_memory() {
    return fail(QUIRE_E_HOST_MEMORY, "the host allocator has no memory");
}

constexpr uint64_t kCacheLine = 64;

template <typename T>
class Array {
    static_assert(std::is_trivially_copyable_v<T>);

 public:
    Array() = default;
    explicit Array(const HostAllocator *host) : host_(host) {}
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    ~Array() { clear(); }

    void bind(const HostAllocator *host) { host_ = host; }

    // Swaps the contents and the allocators that they came from.
    void swap(Array &other) {
        std::swap(host_, other.host_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }

    void clear() {
        if (data_ != nullptr) {
            host_->release(host_->user, data_, capacity_ * sizeof(T), kCacheLine);
        }
        data_ = nullptr;
        size_ = capacity_ = 0;
    }

    // Makes room for `capacity` elements; contents and size stay.
    [[nodiscard]] bool reserve(uint64_t capacity) {
        if (capacity <= capacity_) return true;
        uint64_t grown = next_power_of_two(capacity);
        uint64_t size_bytes = 0;
        if (!checked_mul(grown, sizeof(T), &size_bytes)) return false;
        void *fresh = host_->allocate(host_->user, size_bytes, kCacheLine);
        if (fresh == nullptr) return false;
        if (size_ != 0) std::memcpy(fresh, static_cast<void *>(data_), size_ * sizeof(T));
        uint64_t kept = size_;
        clear();
        data_ = static_cast<T *>(fresh);
        size_ = kept;
        capacity_ = grown;
        return true;
    }

    // Replaces the contents by `size` zeroed elements, allocated at exactly that size.
    [[nodiscard]] bool create(uint64_t size) {
        clear();
        uint64_t size_bytes = 0;
        if (!checked_mul(size, sizeof(T), &size_bytes)) return false;
        if (size == 0) return true;
        data_ = static_cast<T *>(host_->allocate(host_->user, size_bytes, kCacheLine));
        if (data_ == nullptr) return false;
        std::memset(static_cast<void *>(data_), 0, size_bytes);
        size_ = capacity_ = size;
        return true;
    }

    // REQUIRES: reserve() made room.
    void push(const T &value) {
        QUIRE_ASSERT(size_ < capacity_);
        data_[size_++] = value;
    }
    T *push_uninitialized() {
        QUIRE_ASSERT(size_ < capacity_);
        return data_ + size_++;
    }
    [[nodiscard]] bool push_growing(const T &value) {
        if (size_ == capacity_ && !reserve(size_ + 1)) return false;
        data_[size_++] = value;
        return true;
    }
    void shrink(uint64_t size) {
        QUIRE_ASSERT(size <= size_);
        size_ = size;
    }
    // REQUIRES: size <= capacity; new elements keep whatever the memory held.
    void resize_within(uint64_t size) {
        QUIRE_ASSERT(size <= capacity_);
        size_ = size;
    }

    const HostAllocator *host() const { return host_; }
    T *data() { return data_; }
    const T *data() const { return data_; }
    uint64_t size() const { return size_; }
    uint64_t capacity() const { return capacity_; }
    bool empty() const { return size_ == 0; }
    T &operator[](uint64_t i) { return data_[i]; }
    const T &operator[](uint64_t i) const { return data_[i]; }
    T *begin() { return data_; }
    T *end() { return data_ + size_; }
    const T *begin() const { return data_; }
    const T *end() const { return data_ + size_; }

 private:
    const HostAllocator *host_ = nullptr;
    T *data_ = nullptr;
    uint64_t size_ = 0;
    uint64_t capacity_ = 0;
};

// A growable run of 32-bit values whose memory belongs to a BufferPool.
struct Buffer {
    uint32_t *data = nullptr;
    uint32_t capacity = 0;
};

class BufferPool {
 public:
    explicit BufferPool(const HostAllocator *host) : host_(host) {}
    BufferPool(const BufferPool &) = delete;
    BufferPool &operator=(const BufferPool &) = delete;
    ~BufferPool();

    // Makes room for `count` values and keeps the first `kept` of them.
    [[nodiscard]] bool grow(Buffer *buffer, uint32_t count, uint32_t kept) {
        if (count <= buffer->capacity) [[likely]]
            return true;
        return grow_slowly(buffer, count, kept);
    }
    void give_back(Buffer *buffer);

 private:
    static constexpr uint32_t kSmallestShift = 4;  // one cache line of 16 values
    static constexpr uint32_t kClasses = 28;

    bool grow_slowly(Buffer *buffer, uint32_t count, uint32_t kept);

    const HostAllocator *host_;
    void *free_[kClasses] = {};  // lists linked through the buffers' first bytes
};

}  // namespace quire
