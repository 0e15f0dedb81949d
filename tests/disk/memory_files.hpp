// SPDX-License-Identifier: Apache-2.0
//
// memory_files: a directory in memory that records what is done to it, fails on command, and can be
// rebuilt as a crash could have left it.
//
// The model of a crash: what was synced is there; the changes of a file since its last sync are
// there up to some point, the next one perhaps torn at a multiple of 512 bytes; so are the changes
// of the directory since its last sync.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "disk/files.hpp"
#include "disk/io.hpp"

namespace quire::disk::tests {

using Bytes = std::vector<uint8_t>;

enum class Change { create, write, resize, sync, remove, sync_directory };

struct Operation {
    Change change;
    std::string name;     // create, remove
    uint64_t file = 0;    // its number
    uint64_t offset = 0;  // resize: the new size
    Bytes bytes;
};

// How a crash treats the changes since the last sync.
struct Crash {
    uint64_t at = 0;  // operations before it happened
    // The changes of each file that are kept, and how much of the next one; UINT64_MAX: all.
    uint64_t kept = UINT64_MAX;
    uint64_t torn_bytes = 0;
    uint64_t only_file = UINT64_MAX;  // of this file; the others keep all
    uint64_t kept_names = UINT64_MAX;
};

enum class Fault { none, io_error, no_space, short_write };

class Memory;

// A directory over a Memory, which holds the bytes and outlives it.
std::unique_ptr<Directory> make_directory(std::shared_ptr<Memory> memory);
// Runs each transfer inside start().
std::unique_ptr<DataIo> make_inline_io();

class Memory {
 public:
    Memory() = default;
    // As it would be after the crash, without a history.
    std::shared_ptr<Memory> after(const Crash &crash) const;
    // How many changes of a file, or of the directory (UINT64_MAX), are not synced at this point.
    std::vector<Operation> unsynced(uint64_t at, uint64_t file) const;

    // The n-th system call from now on (0: the next) fails, and with `forever` each later one.
    void fail_at(uint64_t n, Fault fault, bool forever);
    void fail_never();
    bool has_failed() const { return has_failed_; }  // since fail_at()
    std::atomic<bool> is_paused{false};              // nothing is counted, and nothing fails
    // Only calls of this kind are counted and fail; empty: all.
    std::string only_call;

    uint64_t operation_count() const;
    Operation operation(uint64_t n) const;
    uint64_t total_bytes() const;  // of all files
    std::map<std::string, Bytes> files() const;
    void set_file(const std::string &name, Bytes bytes);

    // For MemoryFile and MemoryDirectory.
    int64_t call(const char *kind);  // 0, or the fault: a negative errno, or 1 for a short write
    struct Inode {
        uint64_t number = 0;
        Bytes bytes;
        int lock_count = 0;  // -1: exclusive
    };
    std::shared_ptr<Inode> find(const std::string &name);
    mutable std::mutex mutex;
    std::map<std::string, std::shared_ptr<Inode>> names;
    std::vector<Operation> operations;
    uint64_t next_file = 1;

 private:
    uint64_t left_ = UINT64_MAX;
    Fault fault_ = Fault::none;
    bool is_forever_ = false;
    bool has_failed_ = false;
    // The state without a history, at operation 0.
    std::map<std::string, std::shared_ptr<const Inode>> first_;
};

}  // namespace quire::disk::tests
