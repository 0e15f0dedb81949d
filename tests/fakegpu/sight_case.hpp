// SPDX-License-Identifier: Apache-2.0
//
// sight_case: a batch for which the processor's and the GPUs' rules of sight are compared.
//
// The two live in headers of the same names, so each side is compiled apart from the other.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

struct SightCase {
    uint32_t group_kind;  // QUIRE_GROUP_*
    uint32_t window;      // tokens; 0: none
    uint32_t sink_tokens;
    bool is_causal;
    bool has_mask;
    std::vector<int32_t> cu_q;
    std::vector<int32_t> lengths;    // per row, as mask_first
    std::vector<int32_t> positions;  // per token, as mask_rows; read where that is not -1
    std::vector<int32_t> mask_rows;
    std::vector<int32_t> mask_first;
    std::vector<uint32_t> mask;
};

// The places that the token of this row sees, ascending, by backends/cpu/kernels/sight.
std::vector<int32_t> seen_by_cpu(const SightCase &one, uint32_t row, int32_t token);

}  // namespace quire
