// SPDX-License-Identifier: Apache-2.0
//
// thread_io: transfers by threads that wait in system calls; reads go first.
//
// Threads: its own, named quire-disk-io; each runs one transfer at a time.

#include <condition_variable>
#include <mutex>
#include <vector>

#include "disk/io.hpp"
#include "disk/threads.hpp"

namespace quire::disk {

namespace {

class ThreadIo : public DataIo {
 public:
    explicit ThreadIo(uint32_t thread_count) {
        try {
            for (uint32_t i = 0; i < thread_count; ++i) {
                threads_.push_back(start_thread("quire-disk-io", [this] { run(); }));
            }
        } catch (...) {
            stop();
            throw;
        }
    }
    ~ThreadIo() override { stop(); }

    void start(Transfer *transfer) override {
        transfer->result = 0;
        {
            std::lock_guard lock(mutex_);
            (transfer->kind == TransferKind::read ? reads_ : others_).push(transfer);
        }
        arrived_.notify_one();
    }

    const char *name() const override { return "threads"; }

 private:
    void stop() {
        {
            std::lock_guard lock(mutex_);
            is_stopping_ = true;
        }
        arrived_.notify_all();
        for (std::thread &thread : threads_) thread.join();
    }

    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            Transfer *transfer = reads_.pop();
            if (transfer == nullptr) transfer = others_.pop();
            if (transfer != nullptr) {
                lock.unlock();
                move(*transfer);
                transfer->done(transfer);
                lock.lock();
            } else if (is_stopping_) {
                return;
            } else {
                arrived_.wait(lock);
            }
        }
    }

    static void move(Transfer &transfer) {
        for (;;) {
            auto at = static_cast<uint64_t>(transfer.result);
            int64_t moved = 0;
            if (transfer.kind == TransferKind::sync) {
                moved = transfer.file->sync();
            } else if (transfer.kind == TransferKind::read) {
                moved = transfer.file->read(transfer.bytes + at, transfer.size_bytes - at,
                                            transfer.offset + at);
            } else {
                moved = transfer.file->write(transfer.bytes + at, transfer.size_bytes - at,
                                             transfer.offset + at);
            }
            if (is_over(transfer, moved)) return;
        }
    }

    std::mutex mutex_;
    std::condition_variable arrived_;
    TransferQueue reads_;
    TransferQueue others_;
    bool is_stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DataIo> make_thread_io(uint32_t thread_count) {
    return std::make_unique<ThreadIo>(thread_count);
}

}  // namespace quire::disk
