// SPDX-License-Identifier: Apache-2.0

#include "kernels/targets.hpp"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire::cpu {

namespace plain {
extern const TileKernels kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const TileKernels kernels;
}
namespace avx512 {
extern const TileKernels kernels;
}
namespace amx {
extern const MatrixKernels kernels;
}
#endif

namespace {

struct Chosen {
    const TileKernels *tile;
    const MatrixKernels *matrix;
};

#if defined(__x86_64__)
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

// The state of AMX is large, so a process has to ask for it.
bool may_use_tiles() {
#if defined(__linux__)
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of Linux 5.16
    constexpr long kTileData = 18;               // its number among the states of XSAVE
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

bool has_amx() {
    return has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
           __builtin_cpu_supports("amx-bf16") && may_use_tiles();
}
#endif

// The best first.
Chosen choose() {
#if defined(__x86_64__)
    const char *most = std::getenv("QUIRE_CPU_TARGET");
    auto is_most = [most](const char *name) {
        return most != nullptr && std::strcmp(most, name) == 0;
    };
    if (is_most(plain::kernels.name)) return {&plain::kernels, nullptr};
    if (has_avx512() && !is_most(avx2::kernels.name)) {
        bool has_matrix = !is_most(avx512::kernels.name) && has_amx();
        return {&avx512::kernels, has_matrix ? &amx::kernels : nullptr};
    }
    if (has_avx2()) return {&avx2::kernels, nullptr};
#endif
    return {&plain::kernels, nullptr};
}

const Chosen &chosen() {
    static const Chosen once = choose();
    return once;
}

}  // namespace

const TileKernels &tile_kernels() { return *chosen().tile; }
const MatrixKernels *matrix_kernels() { return chosen().matrix; }
const char *target_name() {
    return chosen().matrix != nullptr ? chosen().matrix->name : chosen().tile->name;
}

}  // namespace quire::cpu
