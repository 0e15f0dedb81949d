// SPDX-License-Identifier: Apache-2.0

#include "fault.hpp"

#include <cinttypes>
#include <cstdio>

namespace quire::vulkan {

namespace {

// As in kernels/fault.glsl.
enum FaultCode : uint32_t {
    kSlot = 1,
    kCounts = 2,
    kSharedPrefix = 3,
    kMaskWord = 4,
    kMaskPosition = 5,
    kMaskFirst = 6,
    kTableTooShort = 7,
    kBlock = 8
};

int64_t wide(int32_t low, int32_t high) {
    return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(high)} << 32 |
                                static_cast<uint32_t>(low));
}

}  // namespace

void describe_fault(const FaultRecord &record, char *text, size_t text_bytes) {
    const int32_t *v = record.values;
    uint32_t index = record.index;
    switch (record.code) {
        case kSlot:
            std::snprintf(text, text_bytes,
                          "slot %" PRId64 " of token %u is out of range; the pool has %" PRId64
                          " slots",
                          wide(v[0], v[1]), index, wide(v[2], v[3]));
            return;
        case kCounts:
            std::snprintf(text, text_bytes,
                          "row %u is invalid: query tokens %d to %d of %d, length %d", index, v[0],
                          v[1], v[2], v[3]);
            return;
        case kSharedPrefix:
            std::snprintf(text, text_bytes,
                          "shared_prefix says that row %u shares %d blocks with the row before it, "
                          "but it does not",
                          index, v[0]);
            return;
        case kMaskWord:
            std::snprintf(text, text_bytes, "query token %u has the invalid mask word index %d",
                          index, v[0]);
            return;
        case kMaskPosition:
            std::snprintf(text, text_bytes, "query token %u has a mask and the invalid position %d",
                          index, v[0]);
            return;
        case kMaskFirst:
            std::snprintf(text, text_bytes,
                          "the mask of row %u begins at key %d, outside its %d keys", index, v[0],
                          v[1]);
            return;
        case kTableTooShort:
            std::snprintf(text, text_bytes,
                          "row %u has %d tokens, more than its %d block-table entries can hold",
                          index, v[0], v[1]);
            return;
        default:
            std::snprintf(text, text_bytes,
                          "entry %d of row %u's block table is block %d; the pool has %d blocks",
                          v[1], index, v[0], v[2]);
    }
}

}  // namespace quire::vulkan
