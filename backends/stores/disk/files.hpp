// SPDX-License-Identifier: Apache-2.0
//
// files: the directory and the files that a store uses, as an interface, and the system's own.
//
// Why an interface: tests put a directory in its place whose n-th operation fails, or which can be
// rebuilt as it was at any crash. Nothing else in this folder makes a system call on a file, except
// uring_io, which takes the descriptor.
//
// Results are 0, or a number of bytes, or a negative errno.
//
// Threads: any; a file is closed by its destructor, when no call on it runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace quire::disk {

struct FileSize {
    uint64_t size_bytes = 0;
    uint64_t allocated_bytes = 0;  // on the disk
};

class File {
 public:
    virtual ~File() = default;
    // Both may move fewer bytes than asked for. Buffer, size and offset are multiples of
    // kUnitBytes, except on the identity file.
    virtual int64_t read(void *out, uint64_t size_bytes, uint64_t offset) = 0;
    virtual int64_t write(const void *in, uint64_t size_bytes, uint64_t offset) = 0;
    // All that was written so far survives a crash of the machine.
    virtual int sync() = 0;
    // Makes the file this long, with room on the disk for all of it.
    virtual int allocate(uint64_t size_bytes) = 0;
    virtual int truncate(uint64_t size_bytes) = 0;
    virtual int measure(FileSize *out) = 0;
    virtual int descriptor() const { return -1; }
};

enum class OpenMode { read_only, read_write, create };  // create: it must not exist yet

class Directory {
 public:
    virtual ~Directory() = default;
    // The names of its files, in any order.
    virtual int list(std::vector<std::string> *names) = 0;
    // A segment's file.
    virtual int open(const std::string &name, OpenMode mode, std::unique_ptr<File> *out) = 0;
    // Opens a file and locks it until it is closed, for this File alone or, with read_only, for all
    // such. `create` makes it if it is missing. -EWOULDBLOCK: another one holds the lock; `out` is
    // then open without it, to be read.
    virtual int open_locked(const std::string &name, OpenMode mode, std::unique_ptr<File> *out) = 0;
    virtual int remove(const std::string &name) = 0;
    // Files created and removed so far survive a crash of the machine as such.
    virtual int sync() = 0;
};

enum class Direct { automatic, always, never };  // O_DIRECT

struct DirectoryOptions {
    std::string path;
    bool is_created = false;  // if it is missing; its parent must be there
    Direct direct = Direct::automatic;
};

int open_directory(const DirectoryOptions &options, std::unique_ptr<Directory> *out);

}  // namespace quire::disk
