// SPDX-License-Identifier: Apache-2.0
//
// mask: what an item says about what its last tokens see (QUIRE_MASK_*, step.h): validated, and
// unfolded into positions and bits.
//
// Why unfolded here and not by the backend: kernels read bits, and otherwise every backend would
// have to follow the chains of a tree's parents.
//
// Threads: any; nothing is kept.
#pragma once

#include "core/base/status.hpp"
#include "quire/step.h"

namespace quire {

// The mask of the last `rows` tokens of an item: their positions, then for each of them `stride`
// words of bits for the keys from `first` on.
struct MaskView {
    const uint32_t *words;
    uint32_t rows;
    uint32_t first;
    uint32_t stride;

    const uint32_t *bits(uint32_t row) const { return words + rows + uint64_t{row} * stride; }
};

// words: [word_count] the token array passed with the items. `known` includes the item's tokens;
// the first `computed` tokens need no computing. REQUIRES: draft_count <= token_count <= known.
Status check_mask(const quire_step_item &item, uint32_t index, const uint32_t *words,
                  uint32_t word_count, uint32_t known, uint32_t computed);

// The first token that the mask describes; `known` without a mask. REQUIRES: check_mask().
inline uint32_t first_masked(const quire_step_item &item, uint32_t known) {
    return item.mask_kind != QUIRE_MASK_NONE ? known - item.mask_rows : known;
}
// Words that the unfolded mask takes. REQUIRES: check_mask().
uint64_t unfolded_words(const quire_step_item &item, const uint32_t *words, uint32_t known);
// Writes these words to `out` and returns a view of them. REQUIRES: check_mask().
MaskView unfold_mask(const quire_step_item &item, const uint32_t *words, uint32_t known,
                     uint32_t *out);

// Finds the parent of each draft: a child sees what its parent sees, and itself, at the next
// position. QUIRE_MASK_ROOT: it is a child of the last token before the drafts. kNoParent: neither.
// REQUIRES: check_mask().
constexpr uint32_t kNoParent = QUIRE_MASK_ROOT - 1;
void find_parents(const quire_step_item &item, const MaskView &mask, uint32_t known,
                  uint32_t *parents);

}  // namespace quire
