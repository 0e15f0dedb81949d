// SPDX-License-Identifier: Apache-2.0
//
// io: reads, writes and syncs of files that complete later, as an interface: `thread_io` runs them
// on threads, `uring_io` by io_uring.
//
// Invariants
//   (1) each started transfer is done exactly once, on any thread, also inside start()
//   (2) `result` is the whole size, or a negative errno, or, for a read past the end of the file,
//       the bytes that are there
//
// Threads: start() from any; the destructor when no transfer is in flight.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>

#include "disk/files.hpp"

namespace quire::disk {

enum class TransferKind { read, write, sync };

struct Transfer {
    TransferKind kind = TransferKind::read;
    File *file = nullptr;
    uint8_t *bytes = nullptr;
    uint64_t size_bytes = 0;
    uint64_t offset = 0;
    int64_t result = 0;
    void (*done)(Transfer *) = nullptr;
    void *owner = nullptr;     // for `done`
    void *subject = nullptr;   // likewise
    Transfer *next = nullptr;  // in a queue
};

class TransferQueue {
 public:
    bool is_empty() const { return first_ == nullptr; }
    void push(Transfer *transfer) {
        transfer->next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = transfer;
        last_ = transfer;
    }
    Transfer *pop() {
        Transfer *transfer = first_;
        if (transfer != nullptr) first_ = transfer->next;
        return transfer;
    }

 private:
    Transfer *first_ = nullptr;
    Transfer *last_ = nullptr;
};

class DataIo {
 public:
    virtual ~DataIo() = default;
    virtual void start(Transfer *transfer) = 0;
    virtual const char *name() const = 0;
};

// Accounts for a system call that moved `moved` bytes or failed with -errno. True: the transfer is
// over, and `result` is set; false: the rest is still to be moved. `result` holds how far it is.
inline bool is_over(Transfer &transfer, int64_t moved) {
    if (transfer.kind == TransferKind::sync || moved < 0) {
        transfer.result = moved;
        return true;
    }
    transfer.result += moved;
    if (static_cast<uint64_t>(transfer.result) >= transfer.size_bytes) return true;
    if (moved == 0 && transfer.kind == TransferKind::write) transfer.result = -EIO;
    if (moved == 0) return true;
    // A part that ends inside a unit: the end of a file that was read, or a torn write, whose rest
    // O_DIRECT could not write.
    if (transfer.result % 4096 == 0) return false;
    if (transfer.kind == TransferKind::write) transfer.result = -EIO;
    return true;
}

std::unique_ptr<DataIo> make_thread_io(uint32_t thread_count);
// NULL where the system has no io_uring or refuses it, or this was built without liburing;
// `reason` receives the errno.
std::unique_ptr<DataIo> make_uring_io(int *reason);

}  // namespace quire::disk
