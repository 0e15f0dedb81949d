// SPDX-License-Identifier: Apache-2.0
//
// memory: allocations of zeroed pages, and the machine's memory sizes.
//
// Why mmap for both kinds: anonymous pages are zero and cost nothing until they are touched, so a
// terabyte pool is created in microseconds. Device and host memory are the same thing here.
//
// Why huge pages: block tables lead all over a pool. With 4 KiB pages nearly every block misses the
// TLB, and every first touch of 4 KiB is a page fault. An allocation of at least 2 MiB therefore
// starts at a multiple of 2 MiB and asks the system for huge pages; where the system has none it
// gets small ones, and nothing else changes. The price: the first byte written to a 2 MiB page
// allocates all of it.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire::cpu {

// Zeroed pages owned by this object and unmapped in its destructor. A device's kernel memory is
// large and lives as long as the device; pages taken from the heap would stay there afterwards, and
// other allocations would take them over.
class Pages {
 public:
    Pages() = default;
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;
    ~Pages();

    // May be called once. Returns false if there is no memory.
    [[nodiscard]] bool map(uint64_t size_bytes);
    template <typename T>
    T *as() const {
        return static_cast<T *>(data_);
    }

 private:
    void *data_ = nullptr;
    uint64_t size_bytes_ = 0;
};

struct MachineMemory {
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;  // available without swapping
};

MachineMemory machine_memory();

struct Device;

quire_status allocate(Device &device, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                      void **host_pointer, quire_error *error);
quire_status import_memory(Device &device, void *host_pointer, uint64_t size_bytes,
                           uint64_t *address, quire_error *error);
// False: no such memory.
bool free_memory(Device &device, uint64_t address, uint64_t size_bytes, uint32_t kind);

}  // namespace quire::cpu
