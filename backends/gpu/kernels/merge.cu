// SPDX-License-Identifier: Apache-2.0
//
// merge: combines attention states over parts of a context. A group merges one row: one head of one
// token.
//
// `out` may be one of the parts, and `lse` one of lses: a thread reads all parts of an element
// before it writes it, and all lses are read before any is written.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"
#include "number.hpp"
#include "sight.hpp"
#include "softmax.hpp"

namespace quire::gpu {

constexpr uint32_t kMergeThreads = 128;

struct MergeShared {
    SharedArray<uint32_t, 1> idle;
};

QUIRE_KERNEL(quire_merge, 128, MergeCall, call) {
    QUIRE_SHARED(MergeShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    uint64_t row = group_index();
    float top = minus_infinity();
    for (uint32_t i = 0; i < call.part_count; ++i) {
        top = fmaxf(top, load_float(call.lses, i * call.row_count + row));
    }
    float sum = 0.0f;
    for (uint32_t i = 0; i < call.part_count; ++i) {
        float lse = load_float(call.lses, i * call.row_count + row);
        if (lse != minus_infinity()) sum += exp_of_difference(lse, top);
    }
    uint64_t row_bytes = uint64_t{call.head_dim} * bytes_of(call.format, 1);
    for (uint32_t d = thread_index(); d < call.head_dim; d += kMergeThreads) {
        float merged = 0.0f;
        uint64_t part = call.parts + row * row_bytes;
        for (uint32_t i = 0; i < call.part_count; ++i, part += call.row_count * row_bytes) {
            float lse = load_float(call.lses, i * call.row_count + row);
            if (lse == minus_infinity()) continue;
            float weight = exp_of_difference(lse, top) / sum;
            merged += weight * load_number(call.format, part, d);
        }
        store_value(call.format, call.out + row * row_bytes, d, bits_of(merged));
    }
    if (call.lse == 0) return;
    barrier();
    float merged = sum == 0.0f ? minus_infinity() : top + log_of(sum);
    if (thread_index() == 0) store<float>(call.lse + row * 4, merged);
}

}  // namespace quire::gpu
