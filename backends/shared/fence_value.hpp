// SPDX-License-Identifier: Apache-2.0
//
// fence_value: the value of a fence that failed.
//
// The compilers of CUDA and HIP read it too, so it includes nothing of the host's.
#pragma once

#include <stdint.h>

namespace quire {

// Work before the fence did not run; QUIRE_FENCE_FAILED in the consumer's header.
constexpr uint64_t kFenceFailed = 0xFFFFFFFFFFFFFFFFu;

}  // namespace quire
