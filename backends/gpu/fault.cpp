// SPDX-License-Identifier: Apache-2.0

#include "fault.hpp"

#include <cinttypes>
#include <cstdio>

namespace quire::gpu {

namespace {

int64_t wide(int32_t low, int32_t high) {
    return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(high)} << 32 |
                                static_cast<uint32_t>(low));
}

}  // namespace

void describe_fault(const QueueRecord &record, char *text, size_t text_bytes) {
    const int32_t *v = record.values;
    uint32_t index = record.index;
    switch (record.code) {
        case kFaultSlot:
            std::snprintf(text, text_bytes,
                          "slot %" PRId64 " of token %u is out of range; the pool has %" PRId64
                          " slots",
                          wide(v[0], v[1]), index, wide(v[2], v[3]));
            return;
        case kFaultCounts:
            std::snprintf(text, text_bytes,
                          "row %u is invalid: query tokens %d to %d of %d, length %d", index, v[0],
                          v[1], v[2], v[3]);
            return;
        case kFaultSharedPrefix:
            std::snprintf(text, text_bytes,
                          "shared_prefix says that row %u shares %d blocks with the row before it, "
                          "but it does not",
                          index, v[0]);
            return;
        case kFaultMaskWord:
            std::snprintf(text, text_bytes, "query token %u has the invalid mask word index %d",
                          index, v[0]);
            return;
        case kFaultMaskPosition:
            std::snprintf(text, text_bytes, "query token %u has a mask and the invalid position %d",
                          index, v[0]);
            return;
        case kFaultMaskFirst:
            std::snprintf(text, text_bytes,
                          "the mask of row %u begins at key %d, outside its %d keys", index, v[0],
                          v[1]);
            return;
        case kFaultTableTooShort:
            std::snprintf(text, text_bytes,
                          "row %u has %d tokens, more than its %d block-table entries can hold",
                          index, v[0], v[1]);
            return;
        case kFaultGraph:
            std::snprintf(text, text_bytes,
                          "a graph captured for %d query tokens was launched for a step of %d: "
                          "launch a graph captured for at least as many",
                          v[1], v[0]);
            return;
        case kFaultFence:
            std::snprintf(text, text_bytes, "%s", kFailedFence);
            return;
        default:
            std::snprintf(text, text_bytes,
                          "entry %d of row %u's block table is block %d; the pool has %d blocks",
                          v[1], index, v[0], v[2]);
    }
}

}  // namespace quire::gpu
