// SPDX-License-Identifier: Apache-2.0
//
// targets: which instruction set this processor's tile kernels use.
//
// The environment's QUIRE_CPU_TARGET names one of "plain", "avx2", "avx512" to use at most; a
// processor that has less uses what it has.
//
// Threads: any; decided once.
#pragma once

#include "kernels/tile.hpp"

namespace quire::cpu {

const TileKernels &tile_kernels();

}  // namespace quire::cpu
