// SPDX-License-Identifier: Apache-2.0
//
// targets: selects the instruction set of the tile kernels, and the matrix unit, for this
// processor.
//
// The environment's QUIRE_CPU_TARGET names the most to use: "plain", "avx2", "avx512" or "amx". A
// processor that has less uses what it has; with any other word no device opens. AMX needs the
// system's permission, which is requested once and holds for the process: from then on an alternate
// signal stack needs room for another 8 KiB. If some thread's has too little, permission is refused
// and AMX is not used.
//
// Threads: any; decided once.
#pragma once

#include "kernels/matrix.hpp"
#include "kernels/tile.hpp"

namespace quire::cpu {

const TileKernels &tile_kernels();
// The kernels that score keys for queries of this type, and those that sum values, in place of the
// tile kernels; NULL if the tile kernels do. is_fast: the device was opened with
// QUIRE_DEVICE_FAST_16BIT.
const MatrixKernels *matrix_for_keys(Format k, Format q, bool is_fast);
const MatrixKernels *matrix_for_values(Format v, bool is_fast);
// The value of QUIRE_CPU_TARGET if it is not one of these words; NULL if it is, or is unset.
const char *unknown_target();
// The name of the best that is used.
const char *target_name();
// The unit that QUIRE_DEVICE_FAST_16BIT uses here: "amx" or "avx512_bf16"; NULL if none.
const char *fast_16bit_name();

}  // namespace quire::cpu
