// SPDX-License-Identifier: Apache-2.0
//
// matrix_unit: how the matrix instructions of each architecture round.
//
// Products of 16-bit numbers are exact in all of them. What differs is their sum, which is not
// that of IEEE arithmetic:
//   v100, a100, h100  4, 8 and 16 products and the accumulator are aligned to the largest exponent
//                     among them, cut off below its 23rd, 24th and 25th fractional bit, and added
//                     exactly; the sum is cut off to f32. Ada has A100's units.
//   mi200             four products are summed in pairs, each sum rounded to nearest, then added
//                     to the accumulator; subnormal numbers count as 0 before and after each step
//   mi300             eight products are aligned and cut off at the 24th bit; their sum and the
//                     accumulator are rounded down to 31 and 24 bits below the larger's exponent
//                     and added, and the result is rounded to nearest
//
// Sources: F. A. Khattak, M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (arXiv 2512.07004)
// with its MATLAB-tensor-core; P. Xie et al., "MMA-Sim" (arXiv 2511.10909), which agrees and has
// AMD's; M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor
// cores" (PeerJ CS 7:e330) for V100.
//
// Threads: any; stateless.
#pragma once

#include <cstdint>

namespace fakegpu {

enum class MatrixUnit { of_width, v100, a100, h100, mi200, mi300 };

// The unit that the environment variable FAKEGPU_MATRIX names, as above. Without it A100's for 32
// lanes, whose error is largest among the GPUs that the backends serve, and MI200's for 64.
MatrixUnit chosen_unit(uint32_t warp_width);

// A 16-bit number as its unit sees it: integer * 2^(exponent - fraction bits of the format).
struct Term {
    int32_t integer;
    int32_t exponent;
    float value;
};
Term term_of(MatrixUnit unit, bool is_bf16, uint16_t bits);

// sum + a[0] b[0] + ... + a[15] b[15], as one instruction of K = 16 or several of less compute it.
float multiply_row(MatrixUnit unit, bool is_bf16, const Term *a, const Term *b, float sum);

}  // namespace fakegpu
