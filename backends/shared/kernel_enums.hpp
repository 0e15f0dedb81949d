// SPDX-License-Identifier: Apache-2.0
//
// kernel_enums: the numbers by which GPU kernels are told of formats and options, in every dialect.
//
// Read by the compilers of CUDA and HIP too, so it includes nothing of the host's. The shaders have
// them in vulkan/kernels/number.glsl and attend_call.glsl.
#pragma once

#include <stdint.h>

namespace quire {

enum Format : uint32_t { kF32, kF16, kBf16, kI8, kI4, kE4m3, kE5m2 };

// Of an attention call.
enum Option : uint32_t {
    kNotCausal = 1,
    kWindow = 2,
    kChunked = 4,
    kSinkLogits = 8,
    kSoftCap = 16,
    kAlibi = 32,
    kMask = 64,
    kStaticKScale = 128,  // of a calibration
    kStaticVScale = 256,
    kOwnKScale = 512,  // of each row, in planes beside the codes
    kOwnVScale = 1024,
    kLatent = 2048,         // V is the beginning of K, and so are its scales
    kFirstOwnOption = 4096  // the first that is a backend's own
};

}  // namespace quire
