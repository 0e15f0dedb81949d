// SPDX-License-Identifier: Apache-2.0
//
// targets: which instruction set this processor's tile kernels use, and which matrix unit.
//
// The environment's QUIRE_CPU_TARGET names one of "plain", "avx2", "avx512", "amx" to use at most;
// a processor that has less uses what it has. AMX needs the system's leave, which is asked for once
// and holds for the process: from then on an alternate signal stack has to have room for another
// 8 KiB, and where a thread's has not, leave is refused and AMX left alone.
//
// Threads: any; decided once.
#pragma once

#include "kernels/matrix.hpp"
#include "kernels/tile.hpp"

namespace quire::cpu {

const TileKernels &tile_kernels();
const MatrixKernels *matrix_kernels();  // NULL: there is none
// Of the best that is used.
const char *target_name();

}  // namespace quire::cpu
