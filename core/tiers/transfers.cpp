// SPDX-License-Identifier: Apache-2.0

#include "core/tiers/transfers.hpp"

namespace quire {

Transfer *Transfers::take(uint32_t kind, uint64_t size_bytes) {
    for (uint32_t slot = 0; slot < kMost; ++slot) {
        Transfer &t = slots_[slot];
        if (t.cookie != 0) continue;
        if (!t.bytes.reserve(size_bytes)) return nullptr;
        t.bytes.resize_within(size_bytes);
        t.cookie = ++cookies_ * kMost + slot;  // 2^56 requests in a tier's life
        t.kind = kind;
        t.is_cancelled = false;
        t.serial = 0;
        t.piece = {t.bytes.data(), size_bytes};
        sum_of(kind) += size_bytes;
        ++count_;
        ++counts_[kind];
        return &t;
    }
    return nullptr;
}

Transfer *Transfers::find(uint64_t cookie, uint32_t kind) {
    Transfer &t = slots_[cookie % kMost];
    return cookie != 0 && t.cookie == cookie && t.kind == kind ? &t : nullptr;
}

void Transfers::end(Transfer *transfer) {
    sum_of(transfer->kind) -= transfer->piece.size_bytes;
    transfer->cookie = 0;
    --count_;
    --counts_[transfer->kind];
}

}  // namespace quire
