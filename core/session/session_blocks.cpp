// SPDX-License-Identifier: Apache-2.0

#include "core/session/session_blocks.hpp"

#include "core/base/checked.hpp"

namespace quire {

bool SessionBlocks::is_null() const {
    return books_->geometry.groups[group_].is_null(index_, head_->group(group_).null_front);
}

void SessionBlocks::skip_nulls() {
    for (; !at_end(); ++group_, index_ = 0) {
        while (index_ < head_->group(group_).length && is_null()) ++index_;
        if (index_ < head_->group(group_).length) return;
    }
}

void SessionBlocks::rewind() {
    group_ = index_ = 0;
    skip_nulls();
}

void SessionBlocks::next() {
    ++index_;
    skip_nulls();
}

Status SessionBlocks::describe(CanonicalBlock *out) const {
    const GroupGeometry &group = books_->geometry.groups[group_];
    CanonicalHeader h{};
    h.group = group_;
    h.group_kind = group.kind;
    h.window = group.window;
    h.sink_tokens = group.sink_tokens;
    h.block_tokens = books_->geometry.block_tokens;
    h.token_count = session_tokens_in(head_->header(), group, index_);
    h.first_position = uint64_t{index_} << books_->geometry.block_shift;
    h.group_layers = h.layer_count = group.layer_count;
    h.group_heads = h.head_count = group.kv_heads;
    h.k_head_dim = group.k_head_dim;
    h.v_head_dim = group.v_head_dim;
    h.k_dtype = group.k_dtype;
    h.v_dtype = group.v_dtype;
    h.k_scale = group.k_scale;
    h.v_scale = group.v_scale;
    h.id_count = group.cross ? 0 : h.token_count;
    std::memcpy(h.namespace_digest, head_->header().name_space, sizeof h.namespace_digest);
    return CanonicalBlock::describe(h, out);
}

const quire_token *SessionBlocks::tokens() const {
    if (books_->geometry.groups[group_].cross) return nullptr;
    return head_->tokens() + (uint64_t{index_} << books_->geometry.block_shift);
}

// Calls visit(offset of the f32 in the block, the scale) for each layer and head of a side with
// static scales.
template <typename Visit>
void SessionBlocks::each_scale(const CanonicalBlock &form, Visit visit) const {
    const CanonicalHeader &h = form.header();
    const PlaneKind planes[] = {kPlaneKScale, kPlaneVScale};
    const uint32_t kinds[] = {h.k_scale, h.v_scale};
    for (uint32_t side = 0; side < 2; ++side) {
        const PlaneLayout &plane = form.part().planes[planes[side]];
        if (!is_static(kinds[side]) || plane.head_bytes == 0) continue;
        for (uint32_t layer = 0; layer < h.layer_count; ++layer) {
            const float *scales = books_->scales.of(group_, layer) + side * h.head_count;
            for (uint32_t head = 0; head < h.head_count; ++head) {
                visit(plane.offset + layer * plane.layer_stride + head * plane.head_bytes,
                      scales[head]);
            }
        }
    }
}

void SessionBlocks::write_scales(const CanonicalBlock &form, uint8_t *bytes) const {
    each_scale(form,
               [&](uint64_t at, float scale) { std::memcpy(bytes + at, &scale, sizeof scale); });
}

Status SessionBlocks::check_header(const uint8_t *bytes) const {
    CanonicalBlock expected;
    QUIRE_TRY(describe(&expected));
    CanonicalHeader is;
    std::memcpy(&is, bytes, sizeof is);
    if (is.magic != kCanonicalMagic || is.version != kCanonicalVersion) {
        return fail(QUIRE_E_ARG, "damaged session: block {} of group {} does not begin as one",
                    index_, group_);
    }
    QUIRE_TRY(
        check_of_group(is, group_, books_->geometry.groups[group_], books_->geometry.block_tokens));
    if (is.size_bytes == expected.size_bytes()) return Status{};
    return fail(QUIRE_E_ARG, "damaged session: a block of {} bytes, where {} belong", is.size_bytes,
                expected.size_bytes());
}

Status SessionBlocks::check(const uint8_t *bytes, uint64_t size_bytes, CanonicalBlock *out) const {
    CanonicalBlock expected;
    QUIRE_TRY(describe(&expected));
    QUIRE_TRY(CanonicalBlock::open(bytes, size_bytes, out));
    const CanonicalHeader &is = out->header(), &wanted = expected.header();
    QUIRE_TRY(
        check_of_group(is, group_, books_->geometry.groups[group_], books_->geometry.block_tokens));
    bool same = is.token_count == wanted.token_count && is.id_count == wanted.id_count &&
                is.first_position == wanted.first_position &&
                is.layer_count == wanted.layer_count && is.head_count == wanted.head_count;
    same = same && std::memcmp(is.namespace_digest, wanted.namespace_digest,
                               sizeof is.namespace_digest) == 0;
    same = same && (tokens() == nullptr ||
                    std::memcmp(bytes + sizeof is, tokens(), uint64_t{is.id_count} * 4) == 0);
    if (!same) {
        return fail(QUIRE_E_ARG, "damaged session: block {} of group {} is another one", index_,
                    group_);
    }
    bool same_scales = true;
    each_scale(*out, [&](uint64_t at, float scale) {
        same_scales = same_scales && std::memcmp(bytes + at, &scale, sizeof scale) == 0;
    });
    if (same_scales) return Status{};
    return fail(QUIRE_E_ARG,
                "foreign session: the static scales of group {} differ from the cache's: give it "
                "the calibration that the exporting cache had",
                group_);
}

Status SessionBlocks::total_bytes(uint64_t *out) {
    uint64_t sum = 0;
    for (rewind(); !at_end(); next()) {
        CanonicalBlock form;
        QUIRE_TRY(describe(&form));
        if (!checked_add(sum, form.size_bytes(), &sum))
            return fail(QUIRE_E_LIMIT, "a session of more than 2^64 bytes");
    }
    rewind();
    *out = sum;
    return Status{};
}

}  // namespace quire
