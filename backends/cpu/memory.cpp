// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "shared/checks.hpp"

namespace quire::cpu {

Pages::~Pages() {
    if (data_ != nullptr) munmap(data_, size_bytes_);
}

bool Pages::map(uint64_t size_bytes) {
    void *pages = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return false;
    data_ = pages;
    size_bytes_ = size_bytes;
    return true;
}

MachineMemory machine_memory() {
    MachineMemory memory;
    auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    memory.total_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes;
    memory.free_bytes = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * page_bytes;
    // sysconf does not count memory that the kernel would reclaim at once, such as the page cache.
    std::FILE *file = std::fopen("/proc/meminfo", "re");
    if (file == nullptr) return memory;
    char line[256];
    uint64_t size_kib = 0;
    while (std::fgets(line, sizeof line, file) != nullptr) {
        if (std::sscanf(line, "MemAvailable: %" SCNu64 " kB", &size_kib) == 1) {
            memory.free_bytes = size_kib * 1024;
        }
    }
    std::fclose(file);
    return memory;
}

namespace {

// The range of one page-directory entry on x86-64, and on arm64 with 4 KiB pages.
constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

void *map(uint64_t size_bytes) {
    return mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

bool unmap(uint64_t begin, uint64_t end) {
    return begin == end || munmap(reinterpret_cast<void *>(begin), end - begin) == 0;
}

// Maps at a multiple of kHugePageBytes; returns MAP_FAILED if it cannot. The range that stays
// mapped is `size_bytes` rounded up to whole pages, which is what munmap(size_bytes) removes.
void *map_aligned(uint64_t size_bytes) {
    if (size_bytes > UINT64_MAX / 2) return MAP_FAILED;  // so that no sum below overflows
    auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    uint64_t used_bytes = (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
    uint64_t wide_bytes = used_bytes + kHugePageBytes - page_bytes;
    void *wide = map(wide_bytes);
    if (wide == MAP_FAILED) return MAP_FAILED;
    auto wide_begin = reinterpret_cast<uint64_t>(wide);
    uint64_t begin = (wide_begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    if (!unmap(begin + used_bytes, wide_begin + wide_bytes)) {
        munmap(wide, wide_bytes);
        return MAP_FAILED;
    }
    if (!unmap(wide_begin, begin)) {
        munmap(wide, begin + used_bytes - wide_begin);
        return MAP_FAILED;
    }
    return reinterpret_cast<void *>(begin);
}

// Falls back to small pages if the range cannot be mapped with room to align it, or the system has
// no huge pages: the page size affects only speed.
void *map_pages(uint64_t size_bytes) {
    if (size_bytes < kHugePageBytes) return map(size_bytes);
    void *pages = map_aligned(size_bytes);
    if (pages == MAP_FAILED) return map(size_bytes);
    madvise(pages, size_bytes, MADV_HUGEPAGE);
    return pages;
}

}  // namespace

quire_status allocate(Device &, uint64_t size_bytes, uint32_t, uint64_t *address,
                      void **host_pointer, quire_error *error) {
    // The system rounds to whole pages, here and in munmap.
    void *pages = map_pages(size_bytes);
    if (pages == MAP_FAILED) {
        int error_number = errno;
        return fail_os(error, QUIRE_E_DEVICE_MEMORY, error_number,
                       "cannot allocate %" PRIu64 " bytes (%s); %" PRIu64 " bytes are free",
                       size_bytes, std::strerror(error_number), machine_memory().free_bytes);
    }
    *address = reinterpret_cast<uint64_t>(pages);
    *host_pointer = pages;
    return QUIRE_OK;
}

quire_status import_memory(Device &, void *host_pointer, uint64_t, uint64_t *address,
                           quire_error *) {
    *address = reinterpret_cast<uint64_t>(host_pointer);
    return QUIRE_OK;
}

bool free_memory(Device &, uint64_t address, uint64_t size_bytes, uint32_t kind) {
    if (address == 0 || size_bytes == 0) return false;
    bool is_imported = kind == QUIRE_BE_MEMORY_IMPORTED;
    return is_imported || munmap(reinterpret_cast<void *>(address), size_bytes) == 0;
}

}  // namespace quire::cpu
