// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checks.hpp"
#include "device.hpp"

namespace quire::cpu {

MachineMemory machine_memory() {
    MachineMemory memory;
    auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    memory.total_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes;
    memory.free_bytes = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * page_bytes;
    // sysconf does not count what the kernel would give up at once, such as the page cache.
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

quire_status mem_alloc(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                       uint64_t *address, void **host_pointer, quire_error *error) {
    if (device == nullptr || address == nullptr || host_pointer == nullptr) {
        return fail(error, QUIRE_E_ARG, "device, address or host_pointer is NULL");
    }
    if (kind != QUIRE_BE_MEMORY_DEVICE && kind != QUIRE_BE_MEMORY_HOST) {
        return fail(error, QUIRE_E_ARG, "memory kind %u is neither DEVICE nor HOST", kind);
    }
    if (size_bytes == 0) {
        return fail(error, QUIRE_E_ARG, "0 bytes were asked for; ask for at least one");
    }
    // The system rounds to whole pages, here and in munmap.
    void *pages =
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        int error_number = errno;
        return fail_os(error, QUIRE_E_DEVICE_MEMORY, error_number,
                       "%" PRIu64 " bytes cannot be had (%s); %" PRIu64 " bytes are free",
                       size_bytes, std::strerror(error_number), machine_memory().free_bytes);
    }
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *address = reinterpret_cast<uint64_t>(pages);
    *host_pointer = pages;
    return QUIRE_OK;
}

void mem_free(quire_be_device *, uint64_t address, uint64_t size_bytes, uint32_t) {
    if (address == 0 || size_bytes == 0) return;
    if (munmap(reinterpret_cast<void *>(address), size_bytes) != 0) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace quire::cpu
