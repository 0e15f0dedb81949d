// SPDX-License-Identifier: Apache-2.0
//
// processor: what this machine's processor, and the system on it, let kernels use.
//
// Threads: any.
#pragma once

namespace quire::cpu {

// Each asks for all that a target's units are compiled for (meson.build).
bool has_avx2();
bool has_avx512();
// VDPBF16PS, beside AVX-512.
bool has_avx512_bf16();
// Tiles of int8 and bf16, beside AVX-512. Linux wants to be asked for them, and this asks: once it
// answers true the process has them for good (targets.hpp says what follows).
bool has_amx();

}  // namespace quire::cpu
