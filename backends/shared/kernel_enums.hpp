// SPDX-License-Identifier: Apache-2.0
//
// kernel_enums: the numbers that tell GPU kernels of formats and options, in every dialect.
//
// The compilers of CUDA and HIP read it too, so it includes nothing of the host's. The shaders have
// the same numbers in vulkan/kernels/number.glsl and attend_call.glsl.
#pragma once

#include <stdint.h>

namespace quire {

enum Format : uint32_t { kF32, kF16, kBf16, kI8, kI4, kE4m3, kE5m2 };

// Options of an attention call.
enum Option : uint32_t {
    kNotCausal = 1,
    kWindow = 2,
    kChunked = 4,
    kSinkLogits = 8,
    kSoftCap = 16,
    kAlibi = 32,
    kMask = 64,
    kStaticKScale = 128,  // from calibration
    kStaticVScale = 256,
    kOwnKScale = 512,  // per row, in planes beside the codes
    kOwnVScale = 1024,
    kLatent = 2048,         // V is the beginning of K, and shares its scales
    kFirstOwnOption = 4096  // the first of a backend's own
};

}  // namespace quire
