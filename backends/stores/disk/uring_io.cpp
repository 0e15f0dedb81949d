// SPDX-License-Identifier: Apache-2.0
//
// uring_io: transfers by io_uring, through one ring.
//
// Threads: start() fills and submits an entry under a mutex; one thread of its own, named
// quire-disk-ring, takes completions and runs `done`. It may start further transfers there.

#include "disk/io.hpp"

#ifdef QUIRE_DISK_URING

#include <liburing.h>

#include <mutex>

#include "disk/threads.hpp"

namespace quire::disk {

namespace {

// Each entry is submitted at once, so few are enough. Completions wait for the thread: more than a
// store has requests, syncs and copies in flight, so that they never overflow.
constexpr unsigned kEntries = 64;
constexpr unsigned kCompletions = 4096;

class UringIo : public DataIo {
 public:
    // 0 or a negative errno.
    int open() {
        io_uring_params params{};
        params.flags = IORING_SETUP_CQSIZE;
        params.cq_entries = kCompletions;
        int result = io_uring_queue_init_params(kEntries, &ring_, &params);
        if (result != 0) return result;
        is_open_ = true;
        thread_ = start_thread("quire-disk-ring", [this] { run(); });
        return 0;
    }

    ~UringIo() override {
        if (thread_.joinable()) {
            submit(nullptr);
            thread_.join();
        }
        if (is_open_) io_uring_queue_exit(&ring_);
    }

    void start(Transfer *transfer) override {
        transfer->result = 0;
        submit(transfer);
    }

    const char *name() const override { return "uring"; }

 private:
    // NULL ends the thread.
    void submit(Transfer *transfer) {
        int result = 0;
        {
            std::lock_guard lock(mutex_);
            prepare(io_uring_get_sqe(&ring_), transfer);
            result = io_uring_submit(&ring_);
        }
        // Short of memory, or interrupted: the entry is still there. The thread may need the mutex.
        while (result == -EINTR || result == -EAGAIN || result == -EBUSY) {
            std::this_thread::yield();
            std::lock_guard lock(mutex_);
            result = io_uring_submit(&ring_);
        }
        if (result >= 0 || transfer == nullptr) return;
        transfer->result = result;
        transfer->done(transfer);
    }

    static void prepare(io_uring_sqe *entry, Transfer *transfer) {
        if (transfer == nullptr) {
            io_uring_prep_nop(entry);
        } else if (int file = transfer->file->descriptor(); transfer->kind == TransferKind::sync) {
            io_uring_prep_fsync(entry, file, IORING_FSYNC_DATASYNC);
        } else {
            auto at = static_cast<uint64_t>(transfer->result);
            auto size = static_cast<unsigned>(transfer->size_bytes - at);
            if (transfer->kind == TransferKind::read) {
                io_uring_prep_read(entry, file, transfer->bytes + at, size, transfer->offset + at);
            } else {
                io_uring_prep_write(entry, file, transfer->bytes + at, size, transfer->offset + at);
            }
        }
        io_uring_sqe_set_data(entry, transfer);
    }

    void run() {
        for (;;) {
            io_uring_cqe *completion = nullptr;
            if (io_uring_wait_cqe(&ring_, &completion) != 0) continue;
            auto *transfer = static_cast<Transfer *>(io_uring_cqe_get_data(completion));
            int64_t moved = completion->res;
            io_uring_cqe_seen(&ring_, completion);
            if (transfer == nullptr) return;
            // Orders this after start(), for tools that do not see the ring's own ordering.
            {
                std::lock_guard lock(mutex_);
            }
            if (moved == -EINTR || moved == -EAGAIN) {
                submit(transfer);
            } else if (is_over(*transfer, moved)) {
                transfer->done(transfer);
            } else {
                submit(transfer);
            }
        }
    }

    io_uring ring_{};
    bool is_open_ = false;
    std::mutex mutex_;  // for the submission queue
    std::thread thread_;
};

}  // namespace

std::unique_ptr<DataIo> make_uring_io(int *reason) {
    auto io = std::make_unique<UringIo>();
    *reason = -io->open();
    if (*reason != 0) return nullptr;
    return io;
}

}  // namespace quire::disk

#else

namespace quire::disk {

std::unique_ptr<DataIo> make_uring_io(int *reason) {
    *reason = ENOSYS;
    return nullptr;
}

}  // namespace quire::disk

#endif
