// SPDX-License-Identifier: Apache-2.0
//
// memory: the calls that allocate and free.
//
// While any queue is held, freed memory is only recorded, because held commands may still use it
// and would not finish on their own. It is returned later, by the next memory call or when the
// device is closed.
//
// Threads: any.
#pragma once

#include "device.hpp"

namespace quire::gpu {

quire_status allocate(Device &device, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                      void **host_pointer, quire_error *error);
// False: no such memory.
bool free_memory(Device &device, uint64_t address, uint64_t size_bytes, uint32_t kind);

}  // namespace quire::gpu
