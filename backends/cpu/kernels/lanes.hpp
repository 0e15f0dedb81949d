// SPDX-License-Identifier: Apache-2.0
//
// lanes: sixteen f32 side by side, in the instruction set that the including file is compiled for.
//
// Each lanes_*.hpp defines the same names, so that the kernels are written once:
//     Lanes                         the value
//     kAccumulators                 Lanes that fit in registers beside a loop's operands
//     kE4m3Factor                   factor for the result of load_e4m3()
//     all, load, store, add, sub, mul, div, fma, larger, select, below, rounded
//     times_power_of_two            a 2^n, n whole and from -150 to 127; may be 0 if 2^n is not a
//                                   normal number
//     sum, top                      over the lanes
//     sums                          of several Lanes at once
//     transpose                     of sixteen
//     load_f16, load_bf16, load_i8, load_i4, load_e4m3, load_e5m2
//
// sum() adds lanes i and i + 8, then i + 4, i + 2, i + 1, in every version: what takes one
// instruction on one instruction set and four on another must not round differently from kernel to
// kernel. fma() rounds once where such an instruction exists.
//
// Included by units compiled for more than the baseline: everything here has internal linkage, or
// the linker could use this copy of an inline function on processors that cannot run it.
//
// Threads: any; nothing is kept.
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "kernels/lanes_avx512.hpp"  // IWYU pragma: export
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "kernels/lanes_avx2.hpp"  // IWYU pragma: export
#else
#include "kernels/lanes_plain.hpp"  // IWYU pragma: export
#endif
