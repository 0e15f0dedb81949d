// SPDX-License-Identifier: Apache-2.0
//
// dialect_warp: the dialect's words for kernels in which a warp works by itself: asynchronous
// copies in many groups, fragments in registers, loads of 8 x 8 matrices. Like dialect.hpp, this
// file alone knows which compiler reads it.
//
// AMD's GPUs have none of this: has_warp_words() is false there, the words are declared and never
// defined, and a kernel that needs them has no body.
//
//   exp2_of()                2^x, within 2 ulp; 0 below 2^-126 (PTX ISA, ex2.approx.ftz.f32)
//   warp_barrier()           orders the accesses of a warp's lanes to shared memory
//   shuffle_from()           the value given by this lane of the warp
//   lowest_bit()             the index of the lowest bit that is set; REQUIRES: one is
//   device_fence()           what this thread wrote, or saw before a barrier, is seen by the device
//                            before what it writes later; so it sees what others fenced
//   take_ticket()            adds 1 to a word and returns what it was; atomic within a device
//   copy_unit_async()        copies 16 bytes into shared memory, or zeros if `is_seen` is false,
//                            when nothing is read; end_copies() ends a group of copies
//   wait_copies_but<n>()     all but the thread's newest n groups are complete
//   pack_bf16(), pack_f16()  two numbers, rounded to nearest, as 16-bit numbers, the first low
//   f16_of_pair()            one of a pair as f32
//   even_bytes_first()       the word's bytes 0, 2, 1, 3
//   load_matrices()          four matrices of 8 x 8 16-bit numbers. Lane 8 i + j gives the unit
//                            that holds row j of matrix i; to[i] is the lane's two elements of
//                            matrix i: row lane / 4, columns 2 (lane % 4) and the next (PTX ISA,
//                            ldmatrix .x4)
//   load_matrices_turned()   the same of the transposed matrices (ldmatrix .x4.trans)
//   turn_matrix()            transposes an 8 x 8 matrix of 16-bit numbers that lies in lanes as
//                            load_matrices() leaves it (PTX ISA, movmatrix)
//   multiply_eight()         sums += A B for 16 x 16 of A and 16 x 8 of B: sums[i] is row
//                            lane / 4 + i / 2 * 8, column 2 (lane % 4) + i % 2; b[i] holds rows
//                            2 (lane % 4) + 8 i and the next, of column lane / 4
//   multiply_matrices()      sums += A B for 16 x 16 matrices of 16-bit numbers, scattered as
//                            row_of_a() and the functions beside it say, two numbers per word
#pragma once

#include "dialect.hpp"

namespace quire::gpu {

#if defined(__HIP__)

QUIRE_DEVICE constexpr bool has_warp_words() { return false; }
QUIRE_DEVICE inline void no_such_kernel() { __builtin_trap(); }

QUIRE_DEVICE float exp2_of(float x);
QUIRE_DEVICE void warp_barrier();
QUIRE_DEVICE uint64_t shuffle_from(uint64_t value, uint32_t lane);
QUIRE_DEVICE uint32_t lowest_bit(uint32_t bits);
QUIRE_DEVICE void device_fence();
QUIRE_DEVICE uint32_t take_ticket(uint64_t address);
QUIRE_DEVICE uint32_t pack_bf16(float low, float high);
QUIRE_DEVICE float f16_of_pair(uint32_t pair, uint32_t which);
QUIRE_DEVICE uint32_t even_bytes_first(uint32_t word);
template <uint32_t count>
QUIRE_DEVICE void copy_unit_async(SharedArray<FourWords, count> &to, uint32_t index, uint64_t from,
                                  bool is_seen);
template <uint32_t groups>
QUIRE_DEVICE void wait_copies_but();
template <uint32_t count>
QUIRE_DEVICE void load_matrices(SharedArray<FourWords, count> &from, uint32_t index,
                                uint32_t (&to)[4]);
template <uint32_t count>
QUIRE_DEVICE void load_matrices_turned(SharedArray<FourWords, count> &from, uint32_t index,
                                       uint32_t (&to)[4]);
template <bool is_bf16>
QUIRE_DEVICE void multiply_matrices(const uint32_t (&a)[4], const uint32_t (&b)[4],
                                    float (&sums)[8]);
QUIRE_DEVICE uint32_t turn_matrix(uint32_t pair);
template <bool is_bf16>
QUIRE_DEVICE void multiply_eight(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&sums)[4]);

#elif defined(__CUDACC__)

QUIRE_DEVICE constexpr bool has_warp_words() { return true; }
QUIRE_DEVICE inline void no_such_kernel() { __trap(); }

QUIRE_DEVICE inline float exp2_of(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
QUIRE_DEVICE inline void warp_barrier() { __syncwarp(); }
QUIRE_DEVICE inline uint64_t shuffle_from(uint64_t value, uint32_t lane) {
    return __shfl_sync(0xFFFFFFFFu, value, static_cast<int>(lane));
}
QUIRE_DEVICE inline uint32_t lowest_bit(uint32_t bits) {
    return static_cast<uint32_t>(__ffs(static_cast<int>(bits))) - 1;
}
// Not __threadfence(), which orders more, and waits longer for it.
QUIRE_DEVICE inline void device_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
QUIRE_DEVICE inline uint32_t take_ticket(uint64_t address) {
    return atomicAdd(reinterpret_cast<unsigned int *>(address), 1u);
}
QUIRE_DEVICE inline uint32_t pack_bf16(float low, float high) {
    uint32_t halves;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
    return halves;
}
QUIRE_DEVICE inline float f16_of_pair(uint32_t pair, uint32_t which) {
    float value;
    auto half_bits = static_cast<uint16_t>(pair >> (16 * which));
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half_bits));
    return value;
}
QUIRE_DEVICE inline uint32_t even_bytes_first(uint32_t word) {
    return __byte_perm(word, 0, 0x3120);
}
template <uint32_t count>
QUIRE_DEVICE inline void copy_unit_async(SharedArray<FourWords, count> &to, uint32_t index,
                                         uint64_t from, bool is_seen) {
    auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&to.values[index]));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(is_seen ? 16u : 0u)
                 : "memory");
}
template <uint32_t groups>
QUIRE_DEVICE inline void wait_copies_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
template <uint32_t count>
QUIRE_DEVICE inline void load_matrices(SharedArray<FourWords, count> &from, uint32_t index,
                                       uint32_t (&to)[4]) {
    auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&from.values[index]));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}
template <uint32_t count>
QUIRE_DEVICE inline void load_matrices_turned(SharedArray<FourWords, count> &from, uint32_t index,
                                              uint32_t (&to)[4]) {
    auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&from.values[index]));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}
// Volatile, like multiply_fragments().
template <bool is_bf16>
QUIRE_DEVICE inline void multiply_matrices(const uint32_t (&a)[4], const uint32_t (&b)[4],
                                           float (&sums)[8]) {
    QUIRE_UNROLL
    for (uint32_t side = 0; side < 2; ++side) {
        float *c = sums + 4 * side;
        if constexpr (is_bf16) {
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * side]),
                  "r"(b[2 * side + 1]));
        } else {
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * side]),
                  "r"(b[2 * side + 1]));
        }
    }
}

QUIRE_DEVICE inline uint32_t turn_matrix(uint32_t pair) {
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}
template <bool is_bf16>
QUIRE_DEVICE inline void multiply_eight(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                        float (&sums)[4]) {
    if constexpr (is_bf16) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}

#else

}  // namespace quire::gpu

#include "warp_words.hpp"

namespace quire::gpu {

#if defined(FAKEGPU_IS_HIP)
constexpr bool has_warp_words() { return false; }
#else
constexpr bool has_warp_words() { return true; }
#endif
inline void no_such_kernel() {
    fakegpu::fault("a kernel that this GPU does not have", fakegpu::Where::current());
}

using fakegpu::load_matrices;
using fakegpu::load_matrices_turned;
using fakegpu::shuffle_from;
using fakegpu::turn_matrix;
using fakegpu::wait_copies_but;
using fakegpu::warp_barrier;

inline uint32_t lowest_bit(uint32_t bits) { return static_cast<uint32_t>(__builtin_ctz(bits)); }
inline float exp2_of(float x) {
    float power = exp2f(x);
    return power < 0x1p-126f ? 0.0f : power;
}
inline void device_fence() { system_fence(); }
inline uint32_t take_ticket(uint64_t address) {
    auto before = load<uint32_t>(address);
    while (atomic_swap_if(address, before, before + 1) != before) before = load<uint32_t>(address);
    return before;
}
inline uint32_t pack_bf16(float low, float high) {
    auto bits = [](float value) {
        auto exact = __builtin_bit_cast(uint32_t, value);
        if (value != value) return exact >> 16 | 0x40u;
        return (exact + 0x7FFFu + (exact >> 16 & 1u)) >> 16;
    };
    return bits(low) | bits(high) << 16;
}
inline float f16_of_pair(uint32_t pair, uint32_t which) {
    return fakegpu::f16_of(pair >> (16 * which));
}
inline uint32_t even_bytes_first(uint32_t word) {
    return (word & 0xFF0000FFu) | (word & 0xFF00u) << 8 | (word >> 8 & 0xFF00u);
}
template <uint32_t count>
void copy_unit_async(SharedArray<FourWords, count> &to, uint32_t index, uint64_t from, bool is_seen,
                     fakegpu::Where where = fakegpu::Where::current()) {
    fakegpu::copy_unit_async(to, index, is_seen ? from : 0, where);
}
template <bool is_bf16>
void multiply_matrices(const uint32_t (&a)[4], const uint32_t (&b)[4], float (&sums)[8],
                       fakegpu::Where where = fakegpu::Where::current()) {
    Fragment left, right;
    for (uint32_t i = 0; i < 8; ++i) {
        left.v[i] = static_cast<uint16_t>(a[i / 2] >> (i % 2 * 16));
        right.v[i] = static_cast<uint16_t>(b[i / 2] >> (i % 2 * 16));
    }
    multiply_fragments(is_bf16, left, right, sums, where);
}
template <bool is_bf16>
void multiply_eight(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&sums)[4],
                    fakegpu::Where where = fakegpu::Where::current()) {
    uint32_t right[4] = {b[0], b[1], 0, 0};
    float all[8] = {sums[0], sums[1], sums[2], sums[3]};
    multiply_matrices<is_bf16>(a, right, all, where);
    for (uint32_t i = 0; i < 4; ++i) sums[i] = all[i];
}

#endif

}  // namespace quire::gpu
