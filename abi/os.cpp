// SPDX-License-Identifier: Apache-2.0

#include "abi/os.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace quire::os {

namespace {

// One page that the kernel zeroes in a forked child (MADV_WIPEONFORK); its first word is the
// process's number.
std::atomic<uint64_t *> g_process_page{nullptr};
std::atomic<uint64_t> g_process_count{0};   // a child has its parent's
std::atomic<uint64_t> g_device_process{0};  // the process that opened a device

// Apart from process_number(), which every call runs.
[[gnu::noinline]] uint64_t *map_process_page() {
    long page_bytes = sysconf(_SC_PAGESIZE);
    size_t size = page_bytes > 0 ? static_cast<size_t>(page_bytes) : 4096;
    void *page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    if (madvise(page, size, MADV_WIPEONFORK) != 0) {
        munmap(page, size);
        return nullptr;
    }
    uint64_t *expected = nullptr;
    if (g_process_page.compare_exchange_strong(expected, static_cast<uint64_t *>(page))) {
        return static_cast<uint64_t *>(page);
    }
    munmap(page, size);  // another thread was first
    return expected;
}

// Numbers this process; another thread may be first.
[[gnu::noinline]] uint64_t number_process(std::atomic_ref<uint64_t> number) {
    uint64_t known = 0;
    // The count continues from the parent's, so no ancestor has the number.
    uint64_t fresh = ++g_process_count;
    return number.compare_exchange_strong(known, fresh) ? fresh : known;
}

// Where a user has a group of the same number, tools let that group write. Any other group counts
// as others.
bool others_write(const struct stat &info) {
    bool own_group = info.st_gid == info.st_uid;
    return (info.st_mode & S_IWOTH) != 0 || ((info.st_mode & S_IWGRP) != 0 && !own_group);
}

bool another_users(const struct stat &info) { return info.st_uid != 0 && info.st_uid != geteuid(); }

// Why others can put another file into a directory, given by a path without links; nullptr if they
// cannot. The owner of a parent directory is trusted: a checkout mounted into a container has a
// stranger as its parents' owner. In a sticky directory (/tmp) others cannot replace what is not
// theirs, so it is accepted, but only as a parent.
const char *unsafe_directory(const std::string &directory) {
    struct stat info;
    if (stat(directory.c_str(), &info) != 0) return std::strerror(errno);
    if (others_write(info) || another_users(info)) {
        return "its directory is writable by others, or belongs to another user";
    }
    for (size_t end = directory.rfind('/'); end != std::string::npos && end != 0;
         end = directory.rfind('/', end - 1)) {
        if (stat(directory.substr(0, end).c_str(), &info) != 0) return std::strerror(errno);
        if (others_write(info) && (info.st_mode & S_ISVTX) == 0) {
            return "a parent directory is writable by others";
        }
    }
    if (stat("/", &info) != 0 || others_write(info)) return "/ is writable by others";
    return nullptr;
}

// Why a file must not be loaded, or nullptr. `path` contains no links.
const char *unsafe(const std::string &path) {
    struct stat info;
    if (lstat(path.c_str(), &info) != 0) return std::strerror(errno);
    if (!S_ISREG(info.st_mode)) return "it is not a regular file";
    if (others_write(info) || another_users(info)) {
        return "it is writable by others, or belongs to another user";
    }
    size_t slash = path.rfind('/');
    return unsafe_directory(slash != 0 ? path.substr(0, slash) : "/");
}

// Resolves the links in the path's directories, so that the file that is checked is the file that
// is loaded: only its owner can change any part of the result. The file itself may not be a link.
// Returns why it failed, or nullptr.
const char *resolve(const char *path, std::string *out) {
    if (path[0] != '/') return "the path is not absolute";
    struct stat info;
    if (lstat(path, &info) != 0) return std::strerror(errno);
    if (S_ISLNK(info.st_mode)) return "it is a symbolic link";
    char *resolved = realpath(path, nullptr);
    if (resolved == nullptr) return std::strerror(errno);
    *out = resolved;
    std::free(resolved);
    return nullptr;
}

}  // namespace

bool random_bytes(void *out, uint64_t size_bytes) {
    return getrandom(out, size_bytes, 0) == static_cast<ssize_t>(size_bytes);
}

const char *environment(const char *name) { return secure_getenv(name); }

uint64_t physical_memory() {
    static const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                  static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

bool own_directory(char *out, uint64_t capacity) {
    Dl_info info;
    if (dladdr(reinterpret_cast<void *>(&own_directory), &info) == 0 || info.dli_fname == nullptr) {
        return false;
    }
    char *resolved = realpath(info.dli_fname, nullptr);
    if (resolved == nullptr) return false;
    char *slash = std::strrchr(resolved, '/');
    uint64_t length = slash != nullptr ? static_cast<uint64_t>(slash - resolved) : 0;
    bool fits = length != 0 && length < capacity;
    if (fits) {
        std::memcpy(out, resolved, length);
        out[length] = '\0';
    }
    std::free(resolved);
    return fits;
}

bool list_files(const char *directory, const char *prefix, const char *suffix,
                void (*visit)(void *user, const char *path), void *user) {
    DIR *dir = opendir(directory);
    if (dir == nullptr) return false;
    std::vector<std::string> names;
    while (const dirent *entry = readdir(dir)) {
        std::string name = entry->d_name;
        if (name.starts_with(prefix) && name.ends_with(suffix)) names.push_back(name);
    }
    closedir(dir);
    std::sort(names.begin(), names.end());
    for (const std::string &name : names)
        visit(user, (std::string(directory) + "/" + name).c_str());
    return true;
}

void *load_symbol(const char *path, const char *symbol, char *why, uint64_t why_capacity) {
    std::string file;
    const char *reason = resolve(path, &file);
    if (reason == nullptr) reason = unsafe(file);
    if (reason != nullptr) {
        std::snprintf(why, why_capacity, "not loaded: %s", reason);
        return nullptr;
    }
    void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
        const char *words = dlerror();
        std::snprintf(why, why_capacity, "the dynamic linker refused it: %s",
                      words != nullptr ? words : "no reason given");
        return nullptr;
    }
    void *found = dlsym(library, symbol);
    if (found == nullptr)
        std::snprintf(why, why_capacity, "it has no symbol %s, so it is not a plugin", symbol);
    return found;
}

void advise_large(void *memory, uint64_t size_bytes) {
    constexpr uintptr_t huge = uintptr_t{2} << 20;
    uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + huge - 1) / huge * huge;
    uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + size_bytes) / huge * huge;
    if (begin < end) madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
}

uint64_t process_number() {
    uint64_t *page = g_process_page.load(std::memory_order_acquire);
    if (page == nullptr && (page = map_process_page()) == nullptr) [[unlikely]]
        return 0;
    std::atomic_ref<uint64_t> number(*page);
    uint64_t known = number.load(std::memory_order_relaxed);
    if (known != 0) [[likely]]
        return known;
    return number_process(number);
}

bool remember_process() {
    uint64_t self = process_number(), nobody = 0;
    if (self == 0) return false;
    g_device_process.compare_exchange_strong(nobody, self);
    return true;
}

bool forked() {
    uint64_t with_devices = g_device_process.load(std::memory_order_relaxed);
    return with_devices != 0 && with_devices != process_number();
}

uint64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t time_left(uint64_t begin, uint64_t timeout_ns) {
    if (timeout_ns == UINT64_MAX) return timeout_ns;
    uint64_t passed = monotonic_ns() - begin;
    return passed < timeout_ns ? timeout_ns - passed : 0;
}

uintptr_t thread_number() {
    return reinterpret_cast<uintptr_t>(reinterpret_cast<void *>(pthread_self()));
}

}  // namespace quire::os
