// SPDX-License-Identifier: Apache-2.0

#include "core/base/host_memory.hpp"

namespace quire {

namespace {

uint32_t class_of(uint32_t count, uint32_t smallest_shift) {
    uint32_t shift = 32 - static_cast<uint32_t>(__builtin_clz((count - 1) | 1));
    return shift <= smallest_shift ? 0 : shift - smallest_shift;
}

}  // namespace

BufferPool::~BufferPool() {
    for (uint32_t c = 0; c < kClasses; ++c) {
        while (free_[c] != nullptr) {
            void *buffer = free_[c];
            std::memcpy(&free_[c], buffer, sizeof(void *));
            host_->release(host_->user, buffer, sizeof(uint32_t) << (kSmallestShift + c),
                           kCacheLine);
        }
    }
}

bool BufferPool::grow_slowly(Buffer *buffer, uint32_t count, uint32_t kept) {
    uint32_t c = class_of(count, kSmallestShift);
    if (c >= kClasses) return false;
    void *fresh = free_[c];
    if (fresh != nullptr) {
        std::memcpy(&free_[c], fresh, sizeof(void *));
    } else {
        fresh = host_->allocate(host_->user, sizeof(uint32_t) << (kSmallestShift + c), kCacheLine);
        if (fresh == nullptr) return false;
    }
    if (kept != 0) std::memcpy(fresh, buffer->data, kept * sizeof(uint32_t));
    give_back(buffer);
    buffer->data = static_cast<uint32_t *>(fresh);
    buffer->capacity = 1u << (kSmallestShift + c);
    return true;
}

void BufferPool::give_back(Buffer *buffer) {
    if (buffer->data == nullptr) return;
    uint32_t c = class_of(buffer->capacity, kSmallestShift);
    std::memcpy(buffer->data, &free_[c], sizeof(void *));
    free_[c] = buffer->data;
    *buffer = Buffer{};
}

}  // namespace quire
