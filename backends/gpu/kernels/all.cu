// SPDX-License-Identifier: Apache-2.0
//
// all: every kernel, for a single compiler run and one code object.

#include "attend.cu"
#include "attend_fragments.cu"
#include "attend_prefill.cu"
#include "copy.cu"
#include "decode.cu"
#include "fence.cu"
#include "fill.cu"
#include "items.cu"
#include "kv_write.cu"
#include "merge.cu"
#include "move.cu"
#include "reduce.cu"
#include "rows.cu"
