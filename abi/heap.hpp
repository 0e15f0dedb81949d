// SPDX-License-Identifier: Apache-2.0
//
// heap: the library's own host allocator, used when the instance supplies none: mimalloc, compiled
// in, or the system's allocator in sanitized builds.
#pragma once

#include "core/base/host_memory.hpp"

namespace quire::abi {

HostAllocator default_allocator();

}  // namespace quire::abi
