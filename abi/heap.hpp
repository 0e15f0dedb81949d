// SPDX-License-Identifier: Apache-2.0
//
// heap: the library's own host allocator, used when the instance brings none: mimalloc, compiled
// in.
#pragma once

#include "core/host_memory.hpp"

namespace quire::abi {

HostAllocator default_allocator();

}  // namespace quire::abi
