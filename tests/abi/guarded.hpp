// SPDX-License-Identifier: Apache-2.0
//
// guarded: bytes right before an inaccessible page, so that reading or writing one byte too many
// ends the process.
//
// Threads: none.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::test {

class Guarded {
 public:
    // All bytes are `byte`, then the first four are set to the size.
    explicit Guarded(uint32_t size_bytes, unsigned char byte = 0, uint32_t struct_size = 0)
        : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
          pages_((size_bytes + page_ - 1) / page_ + 1),
          begin_(static_cast<unsigned char *>(mmap(nullptr, pages_ * page_, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
          size_(size_bytes) {
        if (begin_ == MAP_FAILED) std::abort();
        unsigned char *guard = begin_ + (pages_ - 1) * page_;
        if (mprotect(guard, page_, PROT_NONE) != 0) std::abort();
        data_ = guard - size_bytes;
        std::memset(data_, byte, size_bytes);
        if (struct_size != 0) std::memcpy(data_, &struct_size, sizeof struct_size);
    }
    ~Guarded() { munmap(begin_, pages_ * page_); }
    Guarded(const Guarded &) = delete;
    Guarded &operator=(const Guarded &) = delete;

    unsigned char *data() { return data_; }
    uint32_t size() const { return size_; }
    template <typename T>
    T *as() {
        return reinterpret_cast<T *>(data_);
    }

 private:
    size_t page_;
    size_t pages_;
    unsigned char *begin_;
    unsigned char *data_ = nullptr;
    uint32_t size_;
};

// True if the body, in a child process, ends the process in any way other than by returning.
template <typename Body>
bool ends_the_process(Body &&body) {
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == nullptr) _exit(0);
        body();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace quire::test
