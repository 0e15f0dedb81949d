// SPDX-License-Identifier: Apache-2.0

#include "kernels/targets.hpp"

#include <cstdlib>
#include <cstring>

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
#endif

namespace {

// The best first.
const TileKernels &choose() {
#if defined(__x86_64__)
    const char *most = std::getenv("QUIRE_CPU_TARGET");
    bool may_have_avx512 = most == nullptr || (std::strcmp(most, plain::kernels.name) != 0 &&
                                               std::strcmp(most, avx2::kernels.name) != 0);
    bool may_have_avx2 = most == nullptr || std::strcmp(most, plain::kernels.name) != 0;
    bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
    bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
    if (has_avx512 && may_have_avx512) return avx512::kernels;
    if (has_avx2 && may_have_avx2) return avx2::kernels;
#endif
    return plain::kernels;
}

}  // namespace

const TileKernels &tile_kernels() {
    static const TileKernels &chosen = choose();
    return chosen;
}

}  // namespace quire::cpu
