// SPDX-License-Identifier: Apache-2.0

#include "pages.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "failure.hpp"

namespace quire::bench {

Pages::Pages(uint64_t size_bytes) : size_bytes_(size_bytes) {
    void *pages =
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        throw Failure(std::to_string(size_bytes) + " bytes cannot be allocated (" +
                      std::strerror(errno) + "); a larger --scale asks for less");
    }
    bytes_ = static_cast<std::byte *>(pages);
    // A hint: a system without huge pages refuses, and small ones work.
    madvise(pages, size_bytes, MADV_HUGEPAGE);
}

Pages::~Pages() { munmap(bytes_, size_bytes_); }

void Pages::fill() {
    uint64_t value = 0x9E3779B97F4A7C15;
    for (uint64_t at = 0; at + sizeof value <= size_bytes_; at += sizeof value) {
        std::memcpy(bytes_ + at, &value, sizeof value);
        value += 0x9E3779B97F4A7C15;
    }
}

}  // namespace quire::bench
