// SPDX-License-Identifier: Apache-2.0
//
// dialect: the few words in which kernels are written, and what they mean to each compiler.
//
// This is the only file that knows whether nvcc, hipcc or a host's compiler reads it: nothing else
// under kernels/ has an #ifdef, and a test looks. For a host's compiler the words are those of
// tests/fakegpu/simt.hpp, which runs a block's threads one after another and watches them.
//
// A kernel is of one block size, takes one struct by value, and keeps what its threads share in one
// struct of SharedArrays. Global memory is reached by 64-bit addresses through load() and store():
// a pool may be larger than any 32-bit offset, and the emulator sees every access.
//
// Width of a warp: 32 or 64, by the machine; ask warp_width(), count on nothing.
//
// Rounding: compiled without contraction (-fmad=false, -ffp-contract=off), so that what is written
// as `a * b + c` rounds twice everywhere; multiply_add() may round once.
#pragma once

#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__) || defined(__HIPCC__)

#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#endif

#define QUIRE_DEVICE __device__

// Read where the launch put it, and not copied to a stack first: nvcc has to be told.
#if defined(__HIPCC__)
#define QUIRE_ARGUMENT
#else
#define QUIRE_ARGUMENT __grid_constant__
#endif

// Defines a kernel of `threads` threads that takes `Arguments call`.
#define QUIRE_KERNEL(name, threads, Arguments, call) \
    extern "C" __global__ void __launch_bounds__(threads) name(const QUIRE_ARGUMENT Arguments call)

// One object of this type for all threads of a block; what it holds at first is anything.
#define QUIRE_SHARED(Type, name) __shared__ Type name

namespace quire::gpu {

template <typename T, uint32_t count>
struct SharedArray {
    T values[count];

    QUIRE_DEVICE T &operator[](uint32_t index) { return values[index]; }
};

template <typename T>
QUIRE_DEVICE inline T load(uint64_t address) {
    return *reinterpret_cast<const T *>(address);
}
template <typename T>
QUIRE_DEVICE inline void store(uint64_t address, T value) {
    *reinterpret_cast<T *>(address) = value;
}

QUIRE_DEVICE inline uint32_t thread_index() { return threadIdx.x; }
QUIRE_DEVICE inline uint64_t group_index() { return uint64_t{blockIdx.y} * gridDim.x + blockIdx.x; }

// All threads of the block come here before one goes on.
QUIRE_DEVICE inline void barrier() { __syncthreads(); }

// What this thread wrote is seen by all, the host among them, before what it writes next.
QUIRE_DEVICE inline void system_fence() { __threadfence_system(); }

// Of one device. Each returns what was there before.
QUIRE_DEVICE inline uint32_t atomic_max(uint64_t address, uint32_t value) {
    return atomicMax(reinterpret_cast<unsigned int *>(address), value);
}
QUIRE_DEVICE inline uint32_t atomic_swap_if(uint64_t address, uint32_t is, uint32_t value) {
    return atomicCAS(reinterpret_cast<unsigned int *>(address), is, value);
}
// In memory of the host too, where a bus may carry no maximum, but does a comparison and exchange.
QUIRE_DEVICE inline void system_atomic_max(uint64_t address, uint64_t value) {
    auto *at = reinterpret_cast<unsigned long long *>(address);
    unsigned long long before = *at;
    while (before < value) {
        unsigned long long found = atomicCAS_system(at, before, value);
        if (found == before) return;
        before = found;
    }
}
template <uint32_t count>
QUIRE_DEVICE inline void atomic_min(SharedArray<int32_t, count> &array, uint32_t index,
                                    int32_t value) {
    atomicMin(&array.values[index], value);
}

QUIRE_DEVICE inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }

// Warp collectives: every lane of a warp takes part in each.
#if defined(__HIPCC__)
QUIRE_DEVICE inline uint32_t warp_width() { return warpSize; }
QUIRE_DEVICE inline uint32_t shuffle_xor(uint32_t value, uint32_t mask) {
    return __shfl_xor(value, static_cast<int>(mask));
}
QUIRE_DEVICE inline float shuffle_xor(float value, uint32_t mask) {
    return __shfl_xor(value, static_cast<int>(mask));
}
QUIRE_DEVICE inline uint64_t ballot(bool vote) { return __ballot(vote); }
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

}  // namespace quire::gpu

#else

#include "simt.hpp"

#define QUIRE_DEVICE

#define QUIRE_KERNEL(name, threads, Arguments, call)                                      \
    static void name(const Arguments &call);                                              \
    static const fakegpu::Kernel name##_kernel = {                                        \
        #name, threads, sizeof(Arguments),                                                \
        [](const void *arguments) { name(*static_cast<const Arguments *>(arguments)); }}; \
    static void name(const Arguments &call)

#define QUIRE_SHARED(Type, name) Type &name = fakegpu::shared_object<Type>()

namespace quire::gpu {

using fakegpu::atomic_max;
using fakegpu::atomic_min;
using fakegpu::atomic_swap_if;
using fakegpu::ballot;
using fakegpu::barrier;
using fakegpu::group_index;
using fakegpu::load;
using fakegpu::SharedArray;
using fakegpu::shuffle_xor;
using fakegpu::store;
using fakegpu::system_atomic_max;
using fakegpu::system_fence;
using fakegpu::thread_index;
using fakegpu::warp_width;

inline float multiply_add(float a, float b, float c) { return a * b + c; }

}  // namespace quire::gpu

#endif

namespace quire::gpu {

QUIRE_DEVICE inline uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
QUIRE_DEVICE inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// The largest of a warp's, for every lane.
QUIRE_DEVICE inline uint32_t warp_max(uint32_t value) {
    for (uint32_t step = warp_width() / 2; step != 0; step /= 2) {
        uint32_t other = shuffle_xor(value, step);
        value = other > value ? other : value;
    }
    return value;
}

// One load of 16 bytes.
struct alignas(16) FourWords {
    uint32_t v[4];
};

}  // namespace quire::gpu
