// SPDX-License-Identifier: Apache-2.0
//
// kernels: those of backends/gpu, by the host's compiler.

#include "kernels/all.cu"
