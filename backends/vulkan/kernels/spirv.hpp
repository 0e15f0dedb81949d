// SPDX-License-Identifier: Apache-2.0
//
// spirv: the compiled kernels, made by glslc from the .comp files at build time.
//
// Threads: any; constant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.hpp"

namespace quire::vulkan {

// Size of the push constants of every kernel; kernels/call.glsl has their layout.
constexpr uint32_t kPushBytes = 48;

struct Spirv {
    const uint32_t *words;
    size_t size_bytes;
};

// Empty if the build lacks the kernel.
Spirv spirv_of(KernelName name);

}  // namespace quire::vulkan
