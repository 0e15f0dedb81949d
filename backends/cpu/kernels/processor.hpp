// SPDX-License-Identifier: Apache-2.0
//
// processor: what this machine's processor and operating system let kernels use.
//
// Threads: any.
#pragma once

namespace quire::cpu {

// Each checks for everything that a target's units are compiled for (meson.build).
bool has_avx2();
bool has_avx512();
// VDPBF16PS, in addition to AVX-512.
bool has_avx512_bf16();
// Tiles of int8 and bf16, in addition to AVX-512. Linux grants them on request, and this requests
// them: once it returns true the process has them for good (targets.hpp says what follows).
bool has_amx();

}  // namespace quire::cpu
