// SPDX-License-Identifier: Apache-2.0
//
// targets: which instruction set this processor's tile kernels use, and which matrix unit.
//
// The environment's QUIRE_CPU_TARGET names one of "plain", "avx2", "avx512", "amx" to use at most;
// a processor that has less uses what it has; with another word no device opens. AMX needs the
// system's leave, which is asked for once and holds for the process: from then on an alternate
// signal stack has to have room for another 8 KiB, and where a thread's has not, leave is refused
// and AMX left alone.
//
// Threads: any; decided once.
#pragma once

#include "kernels/matrix.hpp"
#include "kernels/tile.hpp"

namespace quire::cpu {

const TileKernels &tile_kernels();
// What scores keys for queries of this type, and what sums up values, instead of the tile kernels;
// NULL: they do. is_fast: of a device that was opened with QUIRE_DEVICE_FAST_16BIT.
const MatrixKernels *matrix_for_keys(Format k, Format q, bool is_fast);
const MatrixKernels *matrix_for_values(Format v, bool is_fast);
// What QUIRE_CPU_TARGET says, if it is none of these words; NULL: it is, or says nothing.
const char *unknown_target();
// Of the best that is used.
const char *target_name();
// What QUIRE_DEVICE_FAST_16BIT brings here: "amx" or "avx512_bf16"; NULL: nothing.
const char *fast_16bit_name();

}  // namespace quire::cpu
