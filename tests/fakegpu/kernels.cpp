// SPDX-License-Identifier: Apache-2.0
//
// kernels: those of backends/gpu, compiled by the host's compiler.

#include "kernels/all.cu"
