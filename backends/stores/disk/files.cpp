// SPDX-License-Identifier: Apache-2.0

#include "disk/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace quire::disk {

namespace {

// The call's result, or a negative errno; repeated while a signal interrupts it.
template <typename Call>
auto uninterrupted(Call call) -> decltype(call()) {
    for (;;) {
        auto result = call();
        if (result >= 0) return result;
        if (errno != EINTR) return -errno;
    }
}

class SystemFile : public File {
 public:
    explicit SystemFile(int descriptor) : descriptor_(descriptor) {}
    SystemFile(const SystemFile &) = delete;
    SystemFile &operator=(const SystemFile &) = delete;
    ~SystemFile() override {
        // A child that was forked meanwhile has the same open file, and would keep the lock.
        if (is_locked_) ::flock(descriptor_, LOCK_UN);
        ::close(descriptor_);
    }

    void keep_lock() { is_locked_ = true; }

    int64_t read(void *out, uint64_t size_bytes, uint64_t offset) override {
        return uninterrupted(
            [&] { return ::pread(descriptor_, out, size_bytes, static_cast<off_t>(offset)); });
    }

    int64_t write(const void *in, uint64_t size_bytes, uint64_t offset) override {
        return uninterrupted(
            [&] { return ::pwrite(descriptor_, in, size_bytes, static_cast<off_t>(offset)); });
    }

    // Never repeated: after a failure the system may have dropped the pages, and a second call
    // would report success.
    int sync() override { return ::fdatasync(descriptor_) == 0 ? 0 : -errno; }

    int allocate(uint64_t size_bytes) override {
        int result = uninterrupted(
            [&] { return ::fallocate(descriptor_, 0, 0, static_cast<off_t>(size_bytes)); });
        // A file system without it grows the file with each write.
        return result == -EOPNOTSUPP || result == -ENOSYS ? 0 : result;
    }

    int truncate(uint64_t size_bytes) override {
        return uninterrupted(
            [&] { return ::ftruncate(descriptor_, static_cast<off_t>(size_bytes)); });
    }

    int measure(FileSize *out) override {
        struct stat status{};
        if (::fstat(descriptor_, &status) != 0) return -errno;
        out->size_bytes = static_cast<uint64_t>(status.st_size);
        out->allocated_bytes = static_cast<uint64_t>(status.st_blocks) * 512;  // stat(2)'s unit
        return 0;
    }

    int descriptor() const override { return descriptor_; }

 private:
    const int descriptor_;
    bool is_locked_ = false;
};

class SystemDirectory : public Directory {
 public:
    SystemDirectory(int descriptor, Direct direct) : descriptor_(descriptor), direct_(direct) {}
    SystemDirectory(const SystemDirectory &) = delete;
    SystemDirectory &operator=(const SystemDirectory &) = delete;
    ~SystemDirectory() override { ::close(descriptor_); }

    int list(std::vector<std::string> *names) override {
        int copy = ::openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (copy < 0) return -errno;
        DIR *stream = ::fdopendir(copy);
        if (stream == nullptr) {
            int code = errno;
            ::close(copy);
            return -code;
        }
        for (;;) {
            errno = 0;
            dirent *entry = ::readdir(stream);
            if (entry == nullptr) break;
            if (entry->d_name[0] != '.') names->emplace_back(entry->d_name);
        }
        int code = errno;
        ::closedir(stream);
        return -code;
    }

    int open(const std::string &name, OpenMode mode, std::unique_ptr<File> *out) override {
        int flags = flags_of(mode);
        if (mode == OpenMode::create) flags |= O_EXCL;
        if (direct_.load() == Direct::never) return open_as(name, flags, out);
        int result = open_as(name, flags | O_DIRECT, out);
        if (result != -EINVAL || direct_.load() == Direct::always) return result;
        // The file system does not know O_DIRECT; it may have created the file nevertheless.
        direct_.store(Direct::never);
        if (mode == OpenMode::create) ::unlinkat(descriptor_, name.c_str(), 0);
        return open_as(name, flags, out);
    }

    int open_locked(const std::string &name, OpenMode mode, std::unique_ptr<File> *out) override {
        if (int result = open_as(name, flags_of(mode), out)) return result;
        int operation = (mode == OpenMode::read_only ? LOCK_SH : LOCK_EX) | LOCK_NB;
        int descriptor = (*out)->descriptor();
        int result = uninterrupted([&] { return ::flock(descriptor, operation); });
        if (result == 0) static_cast<SystemFile *>(out->get())->keep_lock();
        return result;
    }

    int remove(const std::string &name) override {
        return ::unlinkat(descriptor_, name.c_str(), 0) == 0 ? 0 : -errno;
    }

    int sync() override { return ::fsync(descriptor_) == 0 ? 0 : -errno; }

 private:
    static int flags_of(OpenMode mode) {
        if (mode == OpenMode::read_only) return O_RDONLY | O_CLOEXEC;
        return O_RDWR | O_CLOEXEC | (mode == OpenMode::create ? O_CREAT : 0);
    }

    int open_as(const std::string &name, int flags, std::unique_ptr<File> *out) {
        int descriptor =
            uninterrupted([&] { return ::openat(descriptor_, name.c_str(), flags, 0600); });
        if (descriptor < 0) return descriptor;
        *out = std::make_unique<SystemFile>(descriptor);
        return 0;
    }

    const int descriptor_;
    std::atomic<Direct> direct_;  // `never` once the file system has refused it
};

}  // namespace

int open_directory(const DirectoryOptions &options, std::unique_ptr<Directory> *out) {
    const char *path = options.path.c_str();
    if (options.is_created && ::mkdir(path, 0700) != 0 && errno != EEXIST) return -errno;
    int descriptor =
        uninterrupted([&] { return ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
    if (descriptor < 0) return descriptor;
    *out = std::make_unique<SystemDirectory>(descriptor, options.direct);
    return 0;
}

}  // namespace quire::disk
