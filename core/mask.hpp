// SPDX-License-Identifier: Apache-2.0
//
// mask: what an item says its last tokens see (QUIRE_MASK_*, step.h): checked, and unfolded into
// positions and bits.
//
// Why unfolded here and not by the backend: a tree's parents are a chain to follow, and every
// backend would follow it; bits are what kernels read.
//
// Threads: any; nothing is kept.
#pragma once

#include "quire/step.h"
#include "status.hpp"

namespace quire {

// Of the last `rows` tokens of an item: their positions, then for each of them `stride` words of
// bits about the keys from `first` on.
struct MaskView {
    const uint32_t *words;
    uint32_t rows;
    uint32_t first;
    uint32_t stride;

    const uint32_t *bits(uint32_t row) const { return words + rows + uint64_t{row} * stride; }
};

// `words` are those given beside the items, word_count of them. `known` counts the item's tokens,
// `computed` are those that need no computing. REQUIRES: draft_count <= token_count <= known.
Status check_mask(const quire_step_item &item, uint32_t index, const uint32_t *words,
                  uint32_t word_count, uint32_t known, uint32_t computed);

// The first token that the mask is about; `known` without a mask. REQUIRES: check_mask().
inline uint32_t first_masked(const quire_step_item &item, uint32_t known) {
    return item.mask_kind != QUIRE_MASK_NONE ? known - item.mask_rows : known;
}
// Words that unfolding takes. REQUIRES: check_mask().
uint64_t unfolded_words(const quire_step_item &item, const uint32_t *words, uint32_t known);
// Writes them to `out`, and answers with what they say. REQUIRES: check_mask().
MaskView unfold_mask(const quire_step_item &item, const uint32_t *words, uint32_t known,
                     uint32_t *out);

// Of each draft the one whose child it is: one that sees what that one sees, and itself, at the
// next position. QUIRE_MASK_ROOT: a child of the last token before the drafts. kNoParent: neither.
// REQUIRES: check_mask().
constexpr uint32_t kNoParent = QUIRE_MASK_ROOT - 1;
void find_parents(const quire_step_item &item, const MaskView &mask, uint32_t known,
                  uint32_t *parents);

}  // namespace quire
