// SPDX-License-Identifier: Apache-2.0

#include "core/device/mask.hpp"

#include <cstring>

#include "core/base/checked.hpp"

namespace quire {

namespace {

constexpr uint64_t kMaxMaskWords = 1u << 28;  // 1 GiB: more is a mistake

// Where the words of QUIRE_MASK_BITS lie.
struct BitsLayout {
    uint32_t first;
    const uint32_t *positions;
    const uint32_t *bits;
};

BitsLayout bits_layout(const quire_step_item &item, const uint32_t *words) {
    const uint32_t *at = words + item.mask_offset;
    return BitsLayout{at[0], at + 1, at + 1 + item.mask_rows};
}

uint32_t stride_of(uint32_t key_count) { return ceil_div(key_count, 32); }

Status check_parents(const quire_step_item &item, uint32_t index, const uint32_t *words,
                     uint32_t word_count) {
    if (item.mask_rows != item.draft_count) {
        return fail(QUIRE_E_ARG, "items[{}].mask_rows is {}: a tree has draft_count rows", index,
                    item.mask_rows);
    }
    if (uint64_t{item.mask_offset} + item.mask_rows > word_count) {
        return fail(QUIRE_E_ARG, "items[{}]: its mask reaches past the {} tokens given", index,
                    word_count);
    }
    for (uint32_t i = 0; i < item.mask_rows; ++i) {
        uint32_t parent = words[item.mask_offset + i];
        if (parent == QUIRE_MASK_ROOT || parent < i) continue;
        return fail(QUIRE_E_ARG,
                    "items[{}]: draft {}'s parent is neither an earlier draft nor QUIRE_MASK_ROOT",
                    index, i);
    }
    return Status{};
}

Status check_bits(const quire_step_item &item, uint32_t index, const uint32_t *words,
                  uint32_t word_count, uint32_t known) {
    uint64_t end = uint64_t{item.mask_offset} + 1 + item.mask_rows;
    if (end > word_count) {
        return fail(QUIRE_E_ARG, "items[{}]: its mask reaches past the {} tokens given", index,
                    word_count);
    }
    BitsLayout layout = bits_layout(item, words);
    uint32_t masked = known - item.mask_rows;
    if (layout.first > masked) {
        return fail(QUIRE_E_ARG,
                    "items[{}]: its mask's bits begin at key {}, after the first masked token",
                    index, layout.first);
    }
    end += uint64_t{item.mask_rows} * stride_of(known - layout.first);
    if (end > word_count) {
        return fail(QUIRE_E_ARG, "items[{}]: its mask reaches past the {} tokens given", index,
                    word_count);
    }
    for (uint32_t i = 0; i < item.mask_rows; ++i) {
        if (layout.positions[i] >= masked && layout.positions[i] < known) continue;
        return fail(
            QUIRE_E_ARG,
            "items[{}]: the position of masked token {} is outside the range of the masked tokens",
            index, i);
    }
    return Status{};
}

// A draft sees what its parent sees, and itself.
void unfold_parents(const quire_step_item &item, const uint32_t *parents, uint32_t first,
                    uint32_t stride, uint32_t *out) {
    uint32_t *bits = out + item.mask_rows;
    for (uint32_t i = 0; i < item.mask_rows; ++i) {
        uint32_t *own = bits + uint64_t{i} * stride;
        uint32_t parent = parents[i];
        if (parent == QUIRE_MASK_ROOT) {
            out[i] = first;
            std::memset(own, 0, uint64_t{stride} * 4);
        } else {
            out[i] = out[parent] + 1;
            std::memcpy(own, bits + uint64_t{parent} * stride, uint64_t{stride} * 4);
        }
        own[i / 32] |= 1u << (i % 32);
    }
}

}  // namespace

Status check_mask(const quire_step_item &item, uint32_t index, const uint32_t *words,
                  uint32_t word_count, uint32_t known, uint32_t computed) {
    if (item.mask_kind == QUIRE_MASK_NONE) {
        if (item.mask_offset == 0 && item.mask_rows == 0) return Status{};
        return fail(QUIRE_E_ARG, "items[{}] has mask_rows or mask_offset, but no mask_kind", index);
    }
    if (item.mask_kind > QUIRE_MASK_BITS) {
        return fail(QUIRE_E_UNSUPPORTED, "items[{}].mask_kind {} is not known", index,
                    item.mask_kind);
    }
    if (item.mask_rows == 0 || item.mask_rows > known || known - item.mask_rows < computed) {
        return fail(
            QUIRE_E_ARG,
            "items[{}].mask_rows is {}: must be 1 up to the number of tokens not yet computed",
            index, item.mask_rows);
    }
    if (item.max_compute != 0 && item.max_compute < known - computed) {
        return fail(
            QUIRE_E_ARG,
            "items[{}].max_compute {} would split the masked tokens: compute them in one step",
            index, item.max_compute);
    }
    if (item.mask_kind == QUIRE_MASK_PARENTS) {
        QUIRE_TRY(check_parents(item, index, words, word_count));
    } else {
        QUIRE_TRY(check_bits(item, index, words, word_count, known));
    }
    uint64_t unfolded = unfolded_words(item, words, known);
    if (unfolded > kMaxMaskWords) {
        return fail(QUIRE_E_LIMIT, "items[{}]: its mask takes {} words unfolded, at most 2^28",
                    index, unfolded);
    }
    return Status{};
}

uint64_t unfolded_words(const quire_step_item &item, const uint32_t *words, uint32_t known) {
    if (item.mask_kind == QUIRE_MASK_NONE) return 0;
    uint32_t first = item.mask_kind == QUIRE_MASK_BITS ? bits_layout(item, words).first
                                                       : first_masked(item, known);
    return item.mask_rows * (1 + uint64_t{stride_of(known - first)});
}

MaskView unfold_mask(const quire_step_item &item, const uint32_t *words, uint32_t known,
                     uint32_t *out) {
    uint32_t rows = item.mask_rows;
    if (item.mask_kind == QUIRE_MASK_PARENTS) {
        MaskView view{out, rows, first_masked(item, known), stride_of(rows)};
        unfold_parents(item, words + item.mask_offset, view.first, view.stride, out);
        return view;
    }
    BitsLayout layout = bits_layout(item, words);
    MaskView view{out, rows, layout.first, stride_of(known - layout.first)};
    std::memcpy(out, layout.positions, uint64_t{rows} * 4);
    std::memcpy(out + rows, layout.bits, uint64_t{rows} * view.stride * 4);
    return view;
}

void find_parents(const quire_step_item &item, const MaskView &mask, uint32_t known,
                  uint32_t *parents) {
    uint32_t count = item.draft_count, base = known - count, masked = known - mask.rows;
    auto sees = [&](uint32_t draft, uint32_t place) {
        uint32_t own = base + draft;
        if (own < masked) return place <= own;
        if (place < mask.first) return true;
        uint32_t bit = place - mask.first;
        return (mask.bits(own - masked)[bit / 32] >> (bit % 32) & 1) != 0;
    };
    auto position = [&](uint32_t draft) {
        uint32_t own = base + draft;
        return own < masked ? own : mask.words[own - masked];
    };
    for (uint32_t i = 0; i < count; ++i) {
        bool whole = sees(i, base + i);
        for (uint32_t place = mask.first; place < base; ++place) whole = whole && sees(i, place);
        for (uint32_t k = i + 1; k < count; ++k) whole = whole && !sees(i, base + k);
        uint32_t parent = i;
        while (parent != 0 && !sees(i, base + parent - 1)) --parent;
        bool is_root = parent-- == 0;
        for (uint32_t k = 0; !is_root && k < parent; ++k) {
            whole = whole && sees(i, base + k) == sees(parent, base + k);
        }
        whole = whole && position(i) == (is_root ? base : position(parent) + 1);
        whole = whole && (is_root || parents[parent] != kNoParent);
        parents[i] = !whole ? kNoParent : is_root ? QUIRE_MASK_ROOT : parent;
    }
}

}  // namespace quire
