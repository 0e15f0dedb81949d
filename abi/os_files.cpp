// SPDX-License-Identifier: Apache-2.0
//
// The files of os.hpp.

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "abi/os.hpp"

namespace quire::os {

namespace {

// The directory that an entry of this path lies in.
std::string directory_of(const char *path) {
    std::string text = path;
    size_t slash = text.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : text.substr(0, slash);
}

int sync_directory(const char *path) {
    int directory = open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return errno;
    int code = fsync(directory) == 0 ? 0 : errno;
    close(directory);
    return code;
}

}  // namespace

uint64_t process_id() { return static_cast<uint64_t>(getpid()); }

int create_file(const char *path, int *file) {
    int made = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (made < 0) return errno;
    *file = made;
    return 0;
}

int write_file(int file, const void *bytes, uint64_t size_bytes) {
    const auto *at = static_cast<const char *>(bytes);
    while (size_bytes != 0) {
        ssize_t done = write(file, at, size_bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        if (done == 0) return EIO;
        at += done;
        size_bytes -= static_cast<uint64_t>(done);
    }
    return 0;
}

int place_new_file(int file, const char *path, const char *new_path) {
    int code = fsync(file) == 0 ? 0 : errno;
    if (close(file) != 0 && code == 0) code = errno;
    if (code == 0 && rename(path, new_path) != 0) code = errno;
    if (code != 0) {
        unlink(path);
        return code;
    }
    return sync_directory(new_path);
}

void drop_new_file(int file, const char *path) {
    close(file);
    unlink(path);
}

int open_file(const char *path, int *file, uint64_t *size_bytes) {
    // NONBLOCK: a pipe without a writer would wait here.
    int made = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (made < 0) return errno;
    struct stat what;
    int code = fstat(made, &what) == 0 ? 0 : errno;
    if (code == 0 && !S_ISREG(what.st_mode)) code = S_ISDIR(what.st_mode) ? EISDIR : EINVAL;
    if (code != 0) {
        close(made);
        return code;
    }
    *file = made;
    *size_bytes = static_cast<uint64_t>(what.st_size);
    return 0;
}

int read_file(int file, void *bytes, uint64_t size_bytes, bool *has_ended) {
    auto *at = static_cast<char *>(bytes);
    *has_ended = false;
    while (size_bytes != 0) {
        ssize_t done = read(file, at, size_bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        if (done == 0) {
            *has_ended = true;
            return 0;
        }
        at += done;
        size_bytes -= static_cast<uint64_t>(done);
    }
    return 0;
}

void close_file(int file) { close(file); }

void wait_readable(int descriptor, uint64_t timeout_ns) {
    constexpr uint64_t kMillisecond = 1'000'000, kMost = 1'000'000;
    uint64_t milliseconds = descriptor < 0 ? 1 : timeout_ns / kMillisecond;
    pollfd asked{descriptor, POLLIN, 0};
    poll(&asked, 1, static_cast<int>(milliseconds < kMost ? milliseconds : kMost));
}

}  // namespace quire::os
