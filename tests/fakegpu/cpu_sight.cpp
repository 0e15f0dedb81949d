// SPDX-License-Identifier: Apache-2.0

#include "kernels/sight.hpp"
#include "quire/attention.h"
#include "tests/fakegpu/sight_case.hpp"

namespace quire {

namespace {

template <typename T>
uint64_t address_of(const std::vector<T> &array) {
    return reinterpret_cast<uint64_t>(array.data());
}

}  // namespace

std::vector<int32_t> seen_by_cpu(const SightCase &one, uint32_t row, int32_t token) {
    const int32_t block = 0;  // not read
    cpu::AttendPlan plan{};
    plan.flags = one.is_causal ? 0 : uint32_t{QUIRE_ATTENTION_NOT_CAUSAL};
    plan.group_kind = one.group_kind;
    plan.window = one.window;
    plan.sink_tokens = one.sink_tokens;
    cpu::AttendCall call{};
    call.plan = &plan;
    call.args.cu_q = address_of(one.cu_q);
    call.args.lengths = address_of(one.lengths);
    call.args.block_table = reinterpret_cast<uint64_t>(&block);
    if (one.has_mask) {
        call.args.mask = address_of(one.mask);
        call.args.mask_rows = address_of(one.mask_rows);
        call.args.mask_first = address_of(one.mask_first);
        call.args.positions = address_of(one.positions);
    }
    cpu::Row of = cpu::row_at(call, row);
    cpu::Sight sight = cpu::sight_of(call, of, token);
    std::vector<int32_t> seen;
    for (int64_t tile = 0; tile < of.length; tile += cpu::kTileTokens) {
        uint64_t visible = cpu::visible_in_tile(call, of, sight, tile);
        for (int32_t i = 0; i < 64; ++i) {
            if ((visible >> i & 1) != 0) seen.push_back(static_cast<int32_t>(tile) + i);
        }
    }
    return seen;
}

}  // namespace quire
