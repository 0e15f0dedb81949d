// SPDX-License-Identifier: Apache-2.0
//
// merge: combines attention states over parts of a context into one.
//
//     lse = log sum exp(lse_i)      out = sum exp(lse_i - lse) part_i
// (Ye et al., FlashInfer, arXiv 2501.01005, section 2.2), in the order of the parts. A part with
// lse -inf saw no key: it is not read, and may hold NaN.
//
// Threads: calls on different rows may run side by side.
#pragma once

#include "kernels/element.hpp"
#include "quire/plugin/backend.h"

namespace quire::cpu {

struct MergeCall {
    quire_be_merge args;
    const Element *element;
};

// Merges rows [begin, end); a row is one head of one token. An element of out is written after all
// parts of it were read, so `out` may be one of the parts, and `lse` one of lses.
void merge_rows(const MergeCall &call, uint64_t begin, uint64_t end);

}  // namespace quire::cpu
