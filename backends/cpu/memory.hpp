// SPDX-License-Identifier: Apache-2.0
//
// memory: blocks of zeroed pages, and how much memory the machine has.
//
// Why mmap for both kinds: anonymous pages are zero and cost nothing until they are touched, so a
// pool of a terabyte is made in microseconds. Device and host memory are the same thing here.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire::cpu {

struct MachineMemory {
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;  // what could be had without swapping
};

MachineMemory machine_memory();

quire_status mem_alloc(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                       uint64_t *address, void **host_pointer, quire_error *error);
void mem_free(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind);

}  // namespace quire::cpu
