// SPDX-License-Identifier: Apache-2.0
//
// in_memory: an input as a file that has a path, without a disk.
//
// Threads: none.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "require.hpp"

namespace quire::fuzz {

class InMemory {
 public:
    InMemory(const void *bytes, size_t size_bytes) : file_(memfd_create("input", MFD_CLOEXEC)) {
        require(file_ >= 0, "there is memory for a file");
        require(write(file_, bytes, size_bytes) == static_cast<ssize_t>(size_bytes),
                "the file takes the input");
    }
    ~InMemory() { close(file_); }
    InMemory(const InMemory &) = delete;
    InMemory &operator=(const InMemory &) = delete;

    std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
    int file_;
};

}  // namespace quire::fuzz
