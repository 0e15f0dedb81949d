// SPDX-License-Identifier: Apache-2.0

#include "kernels/processor.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire::cpu {

#if defined(__x86_64__)

namespace {

// The AMX state is large, so a process has to request it.
bool may_use_tiles() {
#if defined(__linux__)
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of Linux 5.16
    constexpr long kTileData = 18;               // its number among the XSAVE states
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

}  // namespace

bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

bool has_amx() {
    return has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
           __builtin_cpu_supports("amx-bf16") && may_use_tiles();
}

#else

bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_avx512_bf16() { return false; }
bool has_amx() { return false; }

#endif

}  // namespace quire::cpu
