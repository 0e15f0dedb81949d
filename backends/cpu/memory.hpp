// SPDX-License-Identifier: Apache-2.0
//
// memory: blocks of zeroed pages, and how much memory the machine has.
//
// Why mmap for both kinds: anonymous pages are zero and cost nothing until they are touched, so a
// pool of a terabyte is made in microseconds. Device and host memory are the same thing here.
//
// Why huge pages: a table of blocks leads all over a pool, and with pages of 4 KiB nearly every
// block misses the TLB, and every first touch of 4 KiB is a trap. What has room for one, 2 MiB and
// more, begins at a multiple of 2 MiB and asks the system for huge pages; where there are none it
// gets small ones, and nothing else changes. The price: the first byte written in 2 MiB brings all
// of them.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire::cpu {

// Zeroed pages of this process's own, given back at the end. What a device needs for its kernels is
// large and lives as long as it does: taken from a heap it would keep pages there that others then
// take for theirs.
class Pages {
 public:
    Pages() = default;
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;
    ~Pages();

    // Once. False: there is no memory.
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
    uint64_t free_bytes = 0;  // what could be had without swapping
};

MachineMemory machine_memory();

quire_status mem_alloc(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                       uint64_t *address, void **host_pointer, quire_error *error);
quire_status mem_import(quire_be_device *device, void *host_pointer, uint64_t size_bytes,
                        uint64_t *address, quire_error *error);
void mem_free(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind);

}  // namespace quire::cpu
