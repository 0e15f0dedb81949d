// SPDX-License-Identifier: Apache-2.0
//
// matrix_instructions: the instructions beyond AVX-512 that kernels/matrix_amx and
// kernels/pairs_avx512 use, by name, and nothing else about a matrix unit.
//
// They have a header of their own so that a test can build the same kernels over another version of
// it, in plain C++ (tests/matrix), for processors without these instructions. That version also
// says what each computes.
//
// A tile's number is part of its instruction, hence a template argument. The compiler does not know
// what tile instructions read and write: callers must call order_memory() between them and the code
// that writes or reads those bytes.
//
// Included by units compiled for more than the baseline: internal linkage only.
//
// Threads: any; each thread has its own tiles.
#pragma once

#include <immintrin.h>

#include <cstddef>

namespace quire::cpu::QUIRE_CPU_TARGET {
namespace {

inline void order_memory() { __asm__ volatile("" ::: "memory"); }

// AMX. `config` is 64 bytes in the TILECFG format.
inline void load_tile_config(const void *config) {
    using Bytes64 = const char[64];
    __asm__ volatile("ldtilecfg %0" ::"m"(*static_cast<Bytes64 *>(config)));
}
inline void release_tiles() { __asm__ volatile("tilerelease"); }

template <int kTile>
inline void clear_tile() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// Rows of a tile, `stride` bytes apart.
template <int kTile>
inline void load_tile(const void *rows, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(kTile));
}
template <int kTile>
inline void store_tile(void *rows, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride), "i"(kTile));
}
// sums += left * right: groups of four signed bytes into int32, or pairs of bf16 into f32.
template <int kSums, int kLeft, int kRight>
inline void multiply_bytes() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
}
template <int kSums, int kLeft, int kRight>
inline void multiply_halves() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft),
                     "i"(kRight));
}

// AVX512-VBMI: selects bytes from the concatenation of two registers; the lowest seven bits of each
// byte of `places` are an index.
#if defined(__AVX512VBMI__)
inline __m512i bytes_at(__m512i first, __m512i places, __m512i second) {
    return _mm512_permutex2var_epi8(first, places, second);
}
#endif

// AVX512-BF16: adds to each lane of sums the two products of a pair in a and a pair in b.
#if defined(__AVX512BF16__)
inline __m512 add_pairs_of_halves(__m512 sums, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
#endif

}  // namespace
}  // namespace quire::cpu::QUIRE_CPU_TARGET
