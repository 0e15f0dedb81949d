// SPDX-License-Identifier: Apache-2.0
//
// global: load() and store() of global memory, as GPUs have them; the emulator has its own. Part of
// dialect.hpp, which includes it once its macros are there.
//
// An access is one instruction of 1, 2, 4, 8 or 16 bytes. REQUIRES: the address is aligned to that.
// Compilers keep the order of a thread's accesses; between threads barriers and atomics do.
#pragma once

namespace quire::gpu {

// The type that loads and stores this many bytes in one instruction.
template <uint32_t size_bytes>
struct UnitOfBytes;
template <>
struct UnitOfBytes<1> {
    using Type = uint8_t;
};
template <>
struct UnitOfBytes<2> {
    using Type = uint16_t;
};
template <>
struct UnitOfBytes<4> {
    using Type = uint32_t;
};
template <>
struct UnitOfBytes<8> {
    using Type = uint64_t;
};
template <>
struct UnitOfBytes<16> {
#if defined(__HIP__)
    using Type = uint32_t __attribute__((ext_vector_type(4)));
#else
    using Type = uint4;
#endif
};
template <typename T>
using UnitOf = typename UnitOfBytes<sizeof(T)>::Type;

struct alignas(16) FourWords {
    uint32_t v[4];
};

// Unless told that an address is global, a compiler assumes that it may be in any memory and has
// the hardware find out. NVIDIA's forgets what __isGlobal() tells it, hence the instructions.
#if defined(__HIP__)
template <typename T>
QUIRE_DEVICE inline auto *global_pointer(uint64_t address) {
    return reinterpret_cast<__attribute__((address_space(1))) T *>(address);
}
template <typename T>
QUIRE_DEVICE inline T load(uint64_t address) {
    UnitOf<T> unit = *global_pointer<const UnitOf<T>>(address);
    return __builtin_bit_cast(T, unit);
}
template <typename T>
QUIRE_DEVICE inline void store(uint64_t address, T value) {
    *global_pointer<UnitOf<T>>(address) = __builtin_bit_cast(UnitOf<T>, value);
}
#else
#define QUIRE_GLOBAL_UNIT(Type, name, kind)                                                    \
    QUIRE_DEVICE inline void load_unit(uint64_t address, Type &to) {                           \
        asm volatile("ld.global." name " %0, [%1];" : "=" kind(to) : "l"(address) : "memory"); \
    }                                                                                          \
    QUIRE_DEVICE inline void store_unit(uint64_t address, Type value) {                        \
        asm volatile("st.global." name " [%0], %1;" ::"l"(address), kind(value) : "memory");   \
    }
QUIRE_GLOBAL_UNIT(uint16_t, "u16", "h")
QUIRE_GLOBAL_UNIT(uint32_t, "u32", "r")
QUIRE_GLOBAL_UNIT(uint64_t, "u64", "l")
#undef QUIRE_GLOBAL_UNIT
QUIRE_DEVICE inline void load_unit(uint64_t address, uint8_t &to) {
    uint16_t wide;
    asm volatile("ld.global.u8 %0, [%1];" : "=h"(wide) : "l"(address) : "memory");
    to = static_cast<uint8_t>(wide);
}
QUIRE_DEVICE inline void store_unit(uint64_t address, uint8_t value) {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(address), "h"(uint16_t{value}) : "memory");
}
QUIRE_DEVICE inline void load_unit(uint64_t address, uint4 &to) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                 : "l"(address)
                 : "memory");
}
QUIRE_DEVICE inline void store_unit(uint64_t address, uint4 value) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.x),
                 "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}
template <typename T>
QUIRE_DEVICE inline T load(uint64_t address) {
    UnitOf<T> unit;
    load_unit(address, unit);
    return __builtin_bit_cast(T, unit);
}
template <typename T>
QUIRE_DEVICE inline void store(uint64_t address, T value) {
    store_unit(address, __builtin_bit_cast(UnitOf<T>, value));
}
#endif

}  // namespace quire::gpu
