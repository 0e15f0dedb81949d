// SPDX-License-Identifier: Apache-2.0

#include "kernels/merge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attend_call.hpp"

namespace quire::cpu {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kPiece = 256;  // elements of a row summed at once

// Weight i is exp(lse_i - top) / sum.
struct Weights {
    float top;
    float sum;  // 0 if no part saw a key
};

// exp(lse - top), also where both are infinite and their difference is NaN.
float share_of(float lse, float top) { return lse == top ? 1.0f : std::exp(lse - top); }

Weights weigh(const MergeCall &call, uint64_t row, uint64_t row_count) {
    const auto *lses = array_at<const float>(call.args.lses);
    Weights weights = {-kInfinity, 0.0f};
    for (uint64_t i = 0; i < call.args.part_count; ++i) {
        weights.top = std::max(weights.top, lses[i * row_count + row]);
    }
    for (uint64_t i = 0; i < call.args.part_count; ++i) {
        float lse = lses[i * row_count + row];
        if (lse != -kInfinity) weights.sum += share_of(lse, weights.top);
    }
    return weights;
}

// Merges elements [first, first + count) of a row.
void merge_piece(const MergeCall &call, uint64_t row, uint64_t row_count, uint32_t first,
                 uint32_t count, const Weights &weights) {
    const Element &element = *call.element;
    const auto *lses = array_at<const float>(call.args.lses);
    const auto *parts = array_at<const std::byte>(call.args.parts);
    float part[kPiece];
    float sum[kPiece] = {};
    for (uint64_t i = 0; i < call.args.part_count; ++i) {
        float lse = lses[i * row_count + row];
        if (lse == -kInfinity) continue;
        uint64_t at = (i * row_count + row) * call.args.head_dim + first;
        element.load(parts + at * element.size_bytes, part, count);
        float weight = share_of(lse, weights.top) / weights.sum;
        for (uint32_t d = 0; d < count; ++d) sum[d] += weight * part[d];
    }
    auto *out = array_at<std::byte>(call.args.out);
    element.store(sum, out + (row * call.args.head_dim + first) * element.size_bytes, count);
}

}  // namespace

void merge_rows(const MergeCall &call, uint64_t begin, uint64_t end) {
    uint64_t row_count = uint64_t{call.args.token_count} * call.args.heads;
    auto *lses = array_at<float>(call.args.lse);
    for (uint64_t row = begin; row < end; ++row) {
        Weights weights = weigh(call, row, row_count);
        for (uint32_t first = 0; first < call.args.head_dim; first += kPiece) {
            uint32_t count = std::min(kPiece, call.args.head_dim - first);
            merge_piece(call, row, row_count, first, count, weights);
        }
        // Written last: it may be one of those that were read.
        if (lses != nullptr) lses[row] = weights.top + std::log(weights.sum);
    }
}

}  // namespace quire::cpu
