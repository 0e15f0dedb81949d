// SPDX-License-Identifier: Apache-2.0

#include "disk/buffers.hpp"

#include <cstdlib>

#include "disk/bytes.hpp"

namespace quire::disk {

namespace {

// So many, of the least size, fit the budget of any store; the vector never grows past it.
constexpr size_t kMostFree = 64;

// Rounds up by at most an eighth, so that values of about one size share buffers.
uint64_t size_class(uint64_t size_bytes) {
    uint64_t step = kUnitBytes;
    while (step * 16 <= size_bytes) step *= 2;
    return (size_bytes + step - 1) / step * step;
}

}  // namespace

Buffers::Buffers(uint64_t budget_bytes) : budget_bytes_(budget_bytes) { free_.reserve(kMostFree); }

Buffers::~Buffers() {
    for (Buffer &buffer : free_) std::free(buffer.bytes);
}

Buffer Buffers::take(uint64_t size_bytes) {
    size_bytes = size_class(size_bytes);
    if (in_use_bytes_ != 0 && in_use_bytes_ + size_bytes > budget_bytes_) return {};
    for (size_t i = free_.size(); i-- > 0;) {
        if (free_[i].size_bytes != size_bytes) continue;
        Buffer buffer = free_[i];
        free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
        free_bytes_ -= size_bytes;
        in_use_bytes_ += size_bytes;
        return buffer;
    }
    while (!free_.empty() && in_use_bytes_ + free_bytes_ + size_bytes > budget_bytes_) {
        free_bytes_ -= free_.front().size_bytes;
        std::free(free_.front().bytes);
        free_.erase(free_.begin());
    }
    Buffer buffer{static_cast<uint8_t *>(std::aligned_alloc(kUnitBytes, size_bytes)), size_bytes};
    if (buffer.bytes == nullptr) return {};
    in_use_bytes_ += size_bytes;
    return buffer;
}

void Buffers::give_back(Buffer *buffer) {
    if (buffer->bytes == nullptr) return;
    in_use_bytes_ -= buffer->size_bytes;
    bool is_kept = free_.size() < kMostFree &&
                   in_use_bytes_ + free_bytes_ + buffer->size_bytes <= budget_bytes_;
    if (is_kept) {
        free_bytes_ += buffer->size_bytes;
        free_.push_back(*buffer);
    } else {
        std::free(buffer->bytes);
    }
    *buffer = {};
}

}  // namespace quire::disk
