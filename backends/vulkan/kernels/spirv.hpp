// SPDX-License-Identifier: Apache-2.0
//
// spirv: the compiled kernels, which glslc made of the .comp files at build time.
//
// Threads: any; constant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.hpp"

namespace quire::vulkan {

// What every kernel is pushed; kernels/call.glsl says what lies where.
constexpr uint32_t kPushBytes = 48;

struct Spirv {
    const uint32_t *words;
    size_t size_bytes;
};

// Nothing where the build has not the kernel.
Spirv spirv_of(KernelName name);

}  // namespace quire::vulkan
