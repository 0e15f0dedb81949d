// SPDX-License-Identifier: Apache-2.0
//
// width: selects the compilation of the kernels that this processor runs.

#include "kernels.hpp"

namespace quire::bench {

extern const Kernels kKernels16;
#if defined(__x86_64__)
extern const Kernels kKernels32;
extern const Kernels kKernels64;
#endif

const Kernels &kernels() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return kKernels64;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kKernels32;
#endif
    return kKernels16;
}

}  // namespace quire::bench
