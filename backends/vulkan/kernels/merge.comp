// SPDX-License-Identifier: Apache-2.0
//
// merge: combines attention states over parts of a context. A workgroup merges one row: one head of
// one token.
//
// `out` may be one of the parts, and `lse` one of lses: a lane reads all parts of an element before
// it writes it, and all lses are read before any is written.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"
#include "fault.glsl"
#include "number.glsl"
#include "dialect.glsl"
#include "../../shared/kernels/softmax.h"

// attention.cpp, MergeArguments.
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Arguments {
    uint64_t parts, lses, out_to, lse;
    uint64_t row_count;
    uint part_count, head_dim, format;
};

void main() {
    if (is_idle()) return;
    Arguments call = Arguments(push.arguments);
    uint64_t row = workgroup();
    float top = kMinusInfinity;
    for (uint i = 0; i < call.part_count; ++i) {
        top = max(top, load_float(call.lses, int64_t(i * call.row_count + row)));
    }
    float sum = 0.0;
    for (uint i = 0; i < call.part_count; ++i) {
        float lse = load_float(call.lses, int64_t(i * call.row_count + row));
        if (lse != kMinusInfinity) sum += exp_of_difference(lse, top);
    }
    uint size = bytes_of(call.format, 1);
    for (uint d = lane(); d < call.head_dim; d += kLanes) {
        float merged = 0.0;
        for (uint i = 0; i < call.part_count; ++i) {
            uint64_t part = i * call.row_count + row;
            float lse = load_float(call.lses, int64_t(part));
            if (lse == kMinusInfinity) continue;
            float value = load_number(call.format, call.parts + part * call.head_dim * size, d);
            merged += exp_of_difference(lse, top) / sum * value;
        }
        store_value(call.format, call.out_to + row * call.head_dim * size, d,
                    floatBitsToUint(merged));
    }
    if (call.lse == 0) return;
    memoryBarrierBuffer();
    barrier();
    float merged = sum == 0.0 ? kMinusInfinity : top + log_of(sum);
    if (lane() == 0) store_word(call.lse + row * 4, floatBitsToUint(merged));
}
