// SPDX-License-Identifier: Apache-2.0
//
// Claims that the processor has a matrix unit, for kernels that are built over the stand-in; checks
// the processor for what they need besides.

#include "kernels/processor.hpp"

namespace quire::cpu {

bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_bf16() { return has_avx512(); }
bool has_amx() { return has_avx512(); }

}  // namespace quire::cpu
