// SPDX-License-Identifier: Apache-2.0
//
// dialect: the few words in which kernels are written, and what they mean to each compiler.
//
// With its parts, global.hpp and dialect_warp.hpp, this alone knows whether nvcc, clang or a host
// compiler reads it: nothing else under kernels/ has an #ifdef, and a test checks that. For a host
// compiler the words come from tests/fakegpu/simt.hpp, which runs a block's threads one after
// another and watches them.
//
// A kernel has one block size, takes one struct by value, and keeps what its threads share in one
// struct of SharedArrays. Global memory is reached by 64-bit addresses through load() and store():
// a pool may exceed any 32-bit offset, and the emulator sees every access.
//
// A warp has 32 or 64 lanes, depending on the machine; ask warp_width() and assume nothing.
//
// Rounding: compiled without contraction (-fmad=false, -ffp-contract=off), so `a * b + c` rounds
// twice everywhere; multiply_add() may round once.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.hpp"

#if defined(__CUDACC__) || defined(__HIP__)

// For AMD's GPUs clang compiles by itself: its builtins stand for what HIP's headers and bitcode
// libraries would bring, so that neither has to be installed.
#if defined(__HIP__)
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#endif

#define QUIRE_DEVICE __device__

// Unrolls the next loop: its array stays in registers only if every index is a constant.
#define QUIRE_UNROLL _Pragma("unroll")
// Leaves the next loop a loop: unrolled, a long body or a rare second round is only more code.
#define QUIRE_ROLLED _Pragma("unroll 1")

// Defines a kernel of `threads` threads that takes `Arguments call`. Arguments are read where the
// launch put them and not first copied to a stack; each compiler needs its own way of saying that.
#if defined(__HIP__)
#define QUIRE_KERNEL(name, threads, Arguments, call)                                  \
    [[gnu::always_inline]] static __device__ void name##_body(const Arguments &call); \
    extern "C" __global__ void __launch_bounds__(threads) name(const Arguments) {     \
        name##_body(*(const Arguments *)__builtin_amdgcn_kernarg_segment_ptr());      \
    }                                                                                 \
    static __device__ void name##_body(const Arguments &call)
#else
#define QUIRE_KERNEL(name, threads, Arguments, call)      \
    extern "C" __global__ void __launch_bounds__(threads) \
        name(const __grid_constant__ Arguments call)
#define QUIRE_KERNEL_OF_BLOCKS(name, threads, blocks, Arguments, call) \
    extern "C" __global__ void __launch_bounds__(threads, blocks)      \
        name(const __grid_constant__ Arguments call)
#endif

// The same, with as many registers as leave room for so many blocks on a multiprocessor. NVIDIA's
// compiler may otherwise choose fewer and keep some in memory.
#if !defined(QUIRE_KERNEL_OF_BLOCKS)
#define QUIRE_KERNEL_OF_BLOCKS(name, threads, blocks, Arguments, call) \
    QUIRE_KERNEL(name, threads, Arguments, call)
#endif

// One object of this type, shared by all threads of a block; its initial contents are undefined.
#define QUIRE_SHARED(Type, name) __shared__ Type name

// Like QUIRE_SHARED, for more than 48 KiB. NVIDIA's compiler rejects such a declaration: there the
// object lies in the `bytes` that a launch requests, and the kernel has no other shared memory.
#if defined(__HIP__)
#define QUIRE_LARGE_SHARED(Type, name, bytes) __shared__ Type name
#else
#define QUIRE_LARGE_SHARED(Type, name, bytes)                \
    static_assert(sizeof(Type) <= (bytes), "shared memory"); \
    extern __shared__ uint4 name##_bytes[];                  \
    Type &name = *reinterpret_cast<Type *>(&name##_bytes[0])
#endif

#include "global.hpp"

namespace quire::gpu {

// The compute capability of NVIDIA's target, 900 for sm_90; 0 for others.
#if defined(__CUDA_ARCH__)
constexpr uint32_t kNvidiaTarget = __CUDA_ARCH__;
#else
constexpr uint32_t kNvidiaTarget = 0;
#endif

#if defined(__HIP__)
constexpr uint32_t kTeamsOfBlock = kTeamsOnAmd;
#else
constexpr uint32_t kTeamsOfBlock = kTeamsOnNvidia;
#endif

template <typename T, uint32_t count>
struct SharedArray {
    alignas(16) T values[count];

    QUIRE_DEVICE T &operator[](uint32_t index) { return values[index]; }
};

#if defined(__HIP__)
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
QUIRE_DEVICE inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
QUIRE_DEVICE inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
QUIRE_DEVICE inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
QUIRE_DEVICE inline float fabsf(float x) { return __builtin_fabsf(x); }
QUIRE_DEVICE inline float floorf(float x) { return __builtin_floorf(x); }
QUIRE_DEVICE inline float rintf(float x) { return __builtin_rintf(x); }
QUIRE_DEVICE inline float copysignf(float x, float sign) { return __builtin_copysignf(x, sign); }
#endif

//   group_index()        the block's number in the launch
//   barrier()            all threads of the block arrive here before any goes on
//   system_fence()       all observers, including the host, see this thread's earlier writes before
//                        its later ones
//   atomic_max(), atomic_swap_if(), atomic_min()
//                        atomic within a device, a device, a block; two return the previous value
//   swap_raised()        for system_atomic_max() alone; on AMD GPUs atomic for the host too
#if defined(__HIP__)
QUIRE_DEVICE inline uint32_t thread_index() { return __builtin_amdgcn_workitem_id_x(); }
QUIRE_DEVICE inline uint64_t group_index() {
    uint32_t width = __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
    return uint64_t{__builtin_amdgcn_workgroup_id_y()} * width + __builtin_amdgcn_workgroup_id_x();
}
QUIRE_DEVICE inline void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
}
QUIRE_DEVICE inline void system_fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
QUIRE_DEVICE inline uint32_t atomic_max(uint64_t address, uint32_t value) {
    return __hip_atomic_fetch_max(global_pointer<uint32_t>(address), value, __ATOMIC_RELAXED,
                                  __HIP_MEMORY_SCOPE_AGENT);
}
QUIRE_DEVICE inline uint32_t atomic_swap_if(uint64_t address, uint32_t is, uint32_t value) {
    __hip_atomic_compare_exchange_strong(global_pointer<uint32_t>(address), &is, value,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                         __HIP_MEMORY_SCOPE_AGENT);
    return is;
}
QUIRE_DEVICE inline uint64_t swap_raised(uint64_t address, uint64_t is, uint64_t value) {
    __hip_atomic_compare_exchange_strong(global_pointer<uint64_t>(address), &is, value,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                         __HIP_MEMORY_SCOPE_SYSTEM);
    return is;
}
template <uint32_t count>
QUIRE_DEVICE inline void atomic_min(SharedArray<int32_t, count> &array, uint32_t index,
                                    int32_t value) {
    __hip_atomic_fetch_min(&array.values[index], value, __ATOMIC_RELAXED,
                           __HIP_MEMORY_SCOPE_WORKGROUP);
}
#else
QUIRE_DEVICE inline uint32_t thread_index() { return threadIdx.x; }
QUIRE_DEVICE inline uint64_t group_index() { return uint64_t{blockIdx.y} * gridDim.x + blockIdx.x; }
QUIRE_DEVICE inline void barrier() { __syncthreads(); }
QUIRE_DEVICE inline void system_fence() { __threadfence_system(); }
QUIRE_DEVICE inline uint32_t atomic_max(uint64_t address, uint32_t value) {
    return atomicMax(reinterpret_cast<unsigned int *>(address), value);
}
QUIRE_DEVICE inline uint32_t atomic_swap_if(uint64_t address, uint32_t is, uint32_t value) {
    return atomicCAS(reinterpret_cast<unsigned int *>(address), is, value);
}
QUIRE_DEVICE inline uint64_t swap_raised(uint64_t address, uint64_t is, uint64_t value) {
    return atomicCAS(reinterpret_cast<unsigned long long *>(address),
                     static_cast<unsigned long long>(is), static_cast<unsigned long long>(value));
}
template <uint32_t count>
QUIRE_DEVICE inline void atomic_min(SharedArray<int32_t, count> &array, uint32_t index,
                                    int32_t value) {
    atomicMin(&array.values[index], value);
}
#endif

// Raises a word that only kernels of this device write, also in host memory, where the bus may have
// no atomic maximum but has compare-and-swap. On NVIDIA GPUs that is atomic within the device: one
// that is atomic for the host too is not allowed where the bus has no atomic operations at all.
QUIRE_DEVICE inline void system_atomic_max(uint64_t address, uint64_t value) {
    uint64_t before = load<uint64_t>(address);
    while (before < value) {
        uint64_t found = swap_raised(address, before, value);
        if (found == before) return;
        before = found;
    }
}

QUIRE_DEVICE inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }

// Warp collectives: every lane of a warp must take part in each.
#if defined(__HIP__)
QUIRE_DEVICE constexpr uint32_t warp_width() { return __AMDGCN_WAVEFRONT_SIZE__; }
QUIRE_DEVICE inline uint32_t shuffle_xor(uint32_t value, uint32_t mask) {
    uint32_t lane = __builtin_amdgcn_mbcnt_lo(~0u, 0);
    if (warp_width() == 64) lane = __builtin_amdgcn_mbcnt_hi(~0u, lane);
    auto from = static_cast<int>((lane ^ mask) * sizeof value);
    return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(from, static_cast<int>(value)));
}
QUIRE_DEVICE inline float shuffle_xor(float value, uint32_t mask) {
    return __builtin_bit_cast(float, shuffle_xor(__builtin_bit_cast(uint32_t, value), mask));
}
QUIRE_DEVICE inline uint64_t ballot(bool vote) { return __builtin_amdgcn_ballot_w64(vote); }
#else
QUIRE_DEVICE inline uint32_t warp_width() { return 32; }
QUIRE_DEVICE inline uint32_t shuffle_xor(uint32_t value, uint32_t mask) {
    return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}
QUIRE_DEVICE inline float shuffle_xor(float value, uint32_t mask) {
    return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}
QUIRE_DEVICE inline uint64_t ballot(bool vote) { return __ballot_sync(0xFFFFFFFFu, vote); }
#endif

// A lane's elements of a 16 x 16 matrix of 16-bit numbers; the first fragment_elements() are used.
struct Fragment {
    uint16_t v[8];
};

// sums += A B, all three scattered as below. REQUIRES: has_fragments() for this type. If
// flushes_subnormals(), subnormal numbers of A and B count as 0, as in f16 on MI200 (MIOpen, "MI200
// MFMA behavior specifics"); multiply_small_fragments() keeps them.
#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__)
#if defined(__gfx908__)
QUIRE_DEVICE constexpr bool has_fragments(bool is_bf16) { return !is_bf16; }
#else
QUIRE_DEVICE constexpr bool has_fragments(bool) { return true; }
#endif
QUIRE_DEVICE inline void multiply_fragments([[maybe_unused]] bool is_bf16, const Fragment &a,
                                            const Fragment &b, float *sums) {
    using Half4 = _Float16 __attribute__((ext_vector_type(4)));
    using Short4 = short __attribute__((ext_vector_type(4)));
    using Float4 = float __attribute__((ext_vector_type(4)));
    Short4 left, right;
    Float4 sum;
    for (int i = 0; i < 4; ++i) {
        left[i] = static_cast<short>(a.v[i]);
        right[i] = static_cast<short>(b.v[i]);
        sum[i] = sums[i];
    }
#if !defined(__gfx908__)
    if (is_bf16) {
        sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(left, right, sum, 0, 0, 0);
        for (int i = 0; i < 4; ++i) sums[i] = sum[i];
        return;
    }
#endif
    sum = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Half4, left),
                                                __builtin_bit_cast(Half4, right), sum, 0, 0, 0);
    for (int i = 0; i < 4; ++i) sums[i] = sum[i];
}
// Uses f32 products, four k at a time: k 0, 4, 8 and 12 first, and so on.
QUIRE_DEVICE inline void multiply_small_fragments(const Fragment &a, const Fragment &b,
                                                  float *sums) {
    using Float4 = float __attribute__((ext_vector_type(4)));
    Float4 sum;
    for (int i = 0; i < 4; ++i) sum[i] = sums[i];
    for (int i = 0; i < 4; ++i) {
        auto left = static_cast<float>(__builtin_bit_cast(_Float16, a.v[i]));
        auto right = static_cast<float>(__builtin_bit_cast(_Float16, b.v[i]));
        sum = __builtin_amdgcn_mfma_f32_16x16x4f32(left, right, sum, 0, 0, 0);
    }
    for (int i = 0; i < 4; ++i) sums[i] = sum[i];
}
#elif defined(__HIP__)
QUIRE_DEVICE constexpr bool has_fragments(bool) { return false; }
QUIRE_DEVICE inline void multiply_fragments(bool, const Fragment &, const Fragment &, float *) {}
QUIRE_DEVICE inline void multiply_small_fragments(const Fragment &, const Fragment &, float *) {}
#else
QUIRE_DEVICE constexpr bool has_fragments(bool) { return true; }
// Volatile: every lane of a warp must reach the instruction, so the compiler must not move it into
// a branch that some lanes skip.
QUIRE_DEVICE inline void multiply_fragments(bool is_bf16, const Fragment &a, const Fragment &b,
                                            float *sums) {
    uint32_t left[4], right[4];
    for (int i = 0; i < 4; ++i) {
        left[i] = a.v[2 * i] | uint32_t{a.v[2 * i + 1]} << 16;
        right[i] = b.v[2 * i] | uint32_t{b.v[2 * i + 1]} << 16;
    }
    for (int side = 0; side < 2; ++side) {
        float *c = sums + 4 * side;
        if (is_bf16) {
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[2 * side]),
                  "r"(right[2 * side + 1]));
        } else {
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[2 * side]),
                  "r"(right[2 * side + 1]));
        }
    }
}
QUIRE_DEVICE inline void multiply_small_fragments(const Fragment &, const Fragment &, float *) {}
#endif
#if defined(__gfx90a__)
QUIRE_DEVICE constexpr bool flushes_subnormals(bool is_bf16) { return !is_bf16; }
#else
QUIRE_DEVICE constexpr bool flushes_subnormals(bool) { return false; }
#endif

// Pairs of 16-bit numbers, the first in the low half.
//   pack_f16()              two numbers that f16 represents exactly
//   bytes_as_tops()         the word's bytes 2 * pair and 2 * pair + 1, each as a half's upper byte
//   add_f16_pairs(), multiply_f16_pairs(), multiply_bf16_pairs()
//                           subnormal numbers are kept; for bf16, if the product is exact
//   e4m3_to_f16()           converts two codes. REQUIRES: has_e4m3_to_f16()
#if defined(__HIP__)
using HalfPair = _Float16 __attribute__((ext_vector_type(2)));
QUIRE_DEVICE inline uint32_t pack_f16(float low, float high) {
    HalfPair halves = {static_cast<_Float16>(low), static_cast<_Float16>(high)};
    return __builtin_bit_cast(uint32_t, halves);
}
QUIRE_DEVICE inline uint32_t bytes_as_tops(uint32_t word, uint32_t pair) {
    return __builtin_amdgcn_perm(0, word, pair == 0 ? 0x010C000Cu : 0x030C020Cu);
}
QUIRE_DEVICE inline uint32_t add_f16_pairs(uint32_t a, uint32_t b) {
    return __builtin_bit_cast(uint32_t,
                              __builtin_bit_cast(HalfPair, a) + __builtin_bit_cast(HalfPair, b));
}
QUIRE_DEVICE inline uint32_t multiply_f16_pairs(uint32_t a, uint32_t b) {
    return __builtin_bit_cast(uint32_t,
                              __builtin_bit_cast(HalfPair, a) * __builtin_bit_cast(HalfPair, b));
}
QUIRE_DEVICE inline uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
    float low = __builtin_bit_cast(float, a << 16) * __builtin_bit_cast(float, b << 16);
    float high =
        __builtin_bit_cast(float, a & 0xFFFF0000u) * __builtin_bit_cast(float, b & 0xFFFF0000u);
    return __builtin_bit_cast(uint32_t, low) >> 16 | __builtin_bit_cast(uint32_t, high);
}
QUIRE_DEVICE constexpr bool has_e4m3_to_f16() { return false; }
QUIRE_DEVICE inline uint32_t e4m3_to_f16(uint32_t) { return 0; }
#else
QUIRE_DEVICE inline uint32_t pack_f16(float low, float high) {
    uint32_t halves;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
    return halves;
}
QUIRE_DEVICE inline uint32_t bytes_as_tops(uint32_t word, uint32_t pair) {
    return __byte_perm(word, 0, pair == 0 ? 0x1404 : 0x3424);
}
QUIRE_DEVICE inline uint32_t add_f16_pairs(uint32_t a, uint32_t b) {
    uint32_t sums;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
    return sums;
}
QUIRE_DEVICE inline uint32_t multiply_f16_pairs(uint32_t a, uint32_t b) {
    uint32_t products;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
    return products;
}
// Adds -0, which changes no product's sign.
QUIRE_DEVICE inline uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
    uint32_t products;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(products) : "r"(a), "r"(b), "r"(0x80008000u));
    return products;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
QUIRE_DEVICE constexpr bool has_e4m3_to_f16() { return true; }
QUIRE_DEVICE inline uint32_t e4m3_to_f16(uint32_t codes) {
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
    return halves;
}
#else
QUIRE_DEVICE constexpr bool has_e4m3_to_f16() { return false; }
QUIRE_DEVICE inline uint32_t e4m3_to_f16(uint32_t) { return 0; }
#endif
#endif

// Stores eight two-byte elements in one instruction. REQUIRES: index is a multiple of 8.
template <uint32_t count>
QUIRE_DEVICE inline void store_eight(SharedArray<uint16_t, count> &to, uint32_t index,
                                     const uint32_t (&pairs)[4]) {
    *reinterpret_cast<uint4 *>(&to.values[index]) = uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
}

// Asynchronous copies of 16 bytes, eight two-byte elements each. They are complete for the thread
// that started them after its wait_copies(), and for others after a barrier that follows. Those
// started before its second-to-last end_copies() are complete after wait_older_copies(). On AMD
// GPUs copies are complete at once.
#if defined(__HIP__)
template <uint32_t count>
QUIRE_DEVICE inline void copy_async(SharedArray<uint16_t, count> &to, uint32_t index,
                                    uint64_t from) {
    using Sixteen = UnitOf<uint4>;
    *reinterpret_cast<Sixteen *>(&to.values[index]) = load<Sixteen>(from);
}
QUIRE_DEVICE inline void end_copies() {}
QUIRE_DEVICE inline void wait_older_copies() {}
QUIRE_DEVICE inline void wait_copies() {}
#else
template <uint32_t count>
QUIRE_DEVICE inline void copy_async(SharedArray<uint16_t, count> &to, uint32_t index,
                                    uint64_t from) {
    auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&to.values[index]));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
QUIRE_DEVICE inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
QUIRE_DEVICE inline void wait_older_copies() {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}
QUIRE_DEVICE inline void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif

}  // namespace quire::gpu

#else

#include "simt.hpp"

#define QUIRE_DEVICE
#define QUIRE_UNROLL
#define QUIRE_ROLLED

#define QUIRE_KERNEL(name, threads, Arguments, call)                                      \
    static void name(const Arguments &call);                                              \
    static const fakegpu::Kernel name##_kernel = {                                        \
        #name, threads, sizeof(Arguments),                                                \
        [](const void *arguments) { name(*static_cast<const Arguments *>(arguments)); }}; \
    static void name(const Arguments &call)
#define QUIRE_KERNEL_OF_BLOCKS(name, threads, blocks, Arguments, call) \
    QUIRE_KERNEL(name, threads, Arguments, call)

#define QUIRE_SHARED(Type, name) Type &name = fakegpu::shared_object<Type>()

#if defined(FAKEGPU_IS_HIP)
#define QUIRE_LARGE_SHARED(Type, name, bytes) QUIRE_SHARED(Type, name)
#else
#define QUIRE_LARGE_SHARED(Type, name, bytes) Type &name = fakegpu::large_shared_object<Type>()
#endif

namespace quire::gpu {

constexpr uint32_t kNvidiaTarget = 0;
#if defined(FAKEGPU_IS_HIP)
constexpr uint32_t kTeamsOfBlock = kTeamsOnAmd;
#else
constexpr uint32_t kTeamsOfBlock = kTeamsOnNvidia;
#endif

using fakegpu::add_f16_pairs;
using fakegpu::atomic_max;
using fakegpu::atomic_min;
using fakegpu::atomic_swap_if;
using fakegpu::ballot;
using fakegpu::barrier;
using fakegpu::bytes_as_tops;
using fakegpu::copy_async;
using fakegpu::e4m3_to_f16;
using fakegpu::end_copies;
using fakegpu::flushes_subnormals;
using fakegpu::FourWords;
using fakegpu::Fragment;
using fakegpu::group_index;
using fakegpu::has_e4m3_to_f16;
using fakegpu::has_fragments;
using fakegpu::load;
using fakegpu::multiply_bf16_pairs;
using fakegpu::multiply_f16_pairs;
using fakegpu::multiply_fragments;
using fakegpu::multiply_small_fragments;
using fakegpu::pack_f16;
using fakegpu::SharedArray;
using fakegpu::shuffle_xor;
using fakegpu::store;
using fakegpu::store_eight;
using fakegpu::system_atomic_max;
using fakegpu::system_fence;
using fakegpu::thread_index;
using fakegpu::wait_copies;
using fakegpu::wait_older_copies;
using fakegpu::warp_width;

inline float multiply_add(float a, float b, float c) { return a * b + c; }

}  // namespace quire::gpu

#endif

namespace quire::gpu {

QUIRE_DEVICE inline uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
QUIRE_DEVICE inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// How the instructions scatter 16 x 16 matrices over a warp's lanes: with 32 lanes, mma.sync
// m16n8k16 and a second one for columns 8 to 15; with 64, MFMA 16x16x16. These functions give the
// row or column of the calling lane's element i.
constexpr uint32_t kMostElementsOfLane = 8;
QUIRE_DEVICE inline uint32_t fragment_elements() { return warp_width() == 32 ? 8 : 4; }
QUIRE_DEVICE inline uint32_t lane_index() { return thread_index() % warp_width(); }
QUIRE_DEVICE inline uint32_t row_of_a(uint32_t i) {
    if (warp_width() == 64) return lane_index() % 16;
    return lane_index() / 4 + i / 2 % 2 * 8;
}
QUIRE_DEVICE inline uint32_t k_of_a(uint32_t i) {
    if (warp_width() == 64) return lane_index() / 16 * 4 + i;
    return lane_index() % 4 * 2 + i % 2 + i / 4 * 8;
}
QUIRE_DEVICE inline uint32_t column_of_b(uint32_t i) {
    if (warp_width() == 64) return lane_index() % 16;
    return lane_index() / 4 + i / 4 * 8;
}
QUIRE_DEVICE inline uint32_t k_of_b(uint32_t i) {
    if (warp_width() == 64) return lane_index() / 16 * 4 + i;
    return lane_index() % 4 * 2 + i % 2 + i / 2 % 2 * 8;
}
QUIRE_DEVICE inline uint32_t row_of_sum(uint32_t i) {
    if (warp_width() == 64) return lane_index() / 16 * 4 + i;
    return lane_index() / 4 + i / 2 % 2 * 8;
}
QUIRE_DEVICE inline uint32_t column_of_sum(uint32_t i) {
    if (warp_width() == 64) return lane_index() % 16;
    return lane_index() % 4 * 2 + i % 2 + i / 4 * 8;
}

// The largest value in the warp, returned to every lane.
QUIRE_DEVICE inline uint32_t warp_max(uint32_t value) {
    for (uint32_t step = warp_width() / 2; step != 0; step /= 2) {
        uint32_t other = shuffle_xor(value, step);
        value = other > value ? other : value;
    }
    return value;
}

// The words of shared/kernels; vulkan/kernels/dialect.glsl has the same.
#define QUIRE_FUNCTION QUIRE_DEVICE inline
#define QUIRE_IN(Type) const Type &
#define QUIRE_INOUT(Type) Type &
#define QUIRE_PRECISE

QUIRE_FUNCTION float floor_of(float x) { return floorf(x); }
QUIRE_FUNCTION float size_of(float x) { return fabsf(x); }
QUIRE_FUNCTION float with_sign_of(float x, float size) { return copysignf(size, x); }
QUIRE_FUNCTION int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
QUIRE_FUNCTION int32_t larger(int32_t a, int32_t b) { return a < b ? b : a; }
QUIRE_FUNCTION uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
QUIRE_FUNCTION uint32_t larger(uint32_t a, uint32_t b) { return a < b ? b : a; }

}  // namespace quire::gpu
