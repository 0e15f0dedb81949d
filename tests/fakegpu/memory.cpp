// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "simt.hpp"

namespace fakegpu {

namespace {

struct Range {
    uint64_t begin = 0;  // as kernels see it
    uint64_t end = 0;
    unsigned char *host = nullptr;
    bool is_host = false;
};

constexpr size_t kDeviceBytes = size_t{64} << 30;  // backed by host memory only where it is written
constexpr size_t kMostHostBytes = size_t{8} << 30;
constexpr size_t kMisfit = 256;  // offset of an allocation in its page

std::mutex mutex;
std::map<uint64_t, Range> ranges;
std::atomic<uint64_t> version{1};  // of `ranges`
size_t used_bytes[2] = {};

// The last ranges that this thread found.
struct Recent {
    uint64_t version = 0;
    uint32_t next = 0;
    Range ranges[8];
};
thread_local Recent recent;

const Range *look_up(uint64_t address) {
    uint64_t seen = version.load(std::memory_order_acquire);
    if (recent.version != seen) {
        recent = {};
        recent.version = seen;
    }
    for (const Range &range : recent.ranges) {
        if (address >= range.begin && address < range.end) return &range;
    }
    std::lock_guard lock(mutex);
    auto next = ranges.upper_bound(address);
    if (next == ranges.begin()) return nullptr;
    const Range &found = std::prev(next)->second;
    if (address >= found.end) return nullptr;
    Range &slot = recent.ranges[recent.next++ % 8];
    slot = found;
    return &slot;
}

}  // namespace

size_t device_memory_bytes() { return kDeviceBytes; }

size_t device_memory_used() {
    std::lock_guard lock(mutex);
    return used_bytes[0];
}

uint64_t allocate(size_t size_bytes, bool is_host) {
    size_t most = is_host ? kMostHostBytes : kDeviceBytes;
    std::lock_guard lock(mutex);
    if (size_bytes == 0 || size_bytes > most || used_bytes[is_host] > most - size_bytes) return 0;
    void *made = mmap(nullptr, size_bytes + kMisfit, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return 0;
    constexpr size_t kMostPoisoned = 64 << 20;
    Range range;
    range.host = static_cast<unsigned char *>(made) + kMisfit;
    std::memset(range.host, 0xFF, size_bytes < kMostPoisoned ? size_bytes : kMostPoisoned);
    range.begin = reinterpret_cast<uint64_t>(range.host) + (is_host ? 0 : kDeviceOffset);
    range.end = range.begin + size_bytes;
    range.is_host = is_host;
    used_bytes[is_host] += size_bytes;
    ranges.emplace(range.begin, range);
    version.fetch_add(1, std::memory_order_release);
    return range.begin;
}

bool release(uint64_t address, bool is_host) {
    std::lock_guard lock(mutex);
    auto found = ranges.find(address);
    if (found == ranges.end() || found->second.is_host != is_host) return false;
    size_t size_bytes = found->second.end - found->second.begin;
    munmap(found->second.host - kMisfit, size_bytes + kMisfit);
    used_bytes[is_host] -= size_bytes;
    ranges.erase(found);
    version.fetch_add(1, std::memory_order_release);
    return true;
}

bool is_pinned(uint64_t address) {
    const Range *range = look_up(address);
    return range != nullptr && range->is_host;
}

void *find(uint64_t address, size_t size_bytes) {
    const Range *range = look_up(address);
    if (range == nullptr || size_bytes > range->end - address) return nullptr;
    return range->host + (address - range->begin);
}

void fill(void *at, unsigned char byte, size_t size_bytes) {
    constexpr size_t kPage = 4096;
    constexpr size_t kLarge = 64 << 20;
    auto begin = reinterpret_cast<uintptr_t>(at);
    if (byte == 0 && size_bytes >= kLarge && begin % kPage == 0) {
        size_t pages = size_bytes / kPage * kPage;
        madvise(at, pages, MADV_DONTNEED);
        at = static_cast<unsigned char *>(at) + pages;
        size_bytes -= pages;
    }
    std::memset(at, byte, size_bytes);
}

void *reach(uint64_t address, size_t size_bytes, size_t alignment,
            const std::source_location &where) {
    char text[128];
    void *found = find(address, size_bytes);
    if (found == nullptr) {
        std::snprintf(text, sizeof text, "%zu bytes at 0x%llx are outside device memory",
                      size_bytes, static_cast<unsigned long long>(address));
        fault(text, where);
    }
    if (address % alignment != 0) {
        std::snprintf(text, sizeof text, "0x%llx is not a multiple of %zu",
                      static_cast<unsigned long long>(address), alignment);
        fault(text, where);
    }
    return found;
}

}  // namespace fakegpu
