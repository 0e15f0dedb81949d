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

Status SessionBlocks::describe(uint32_t first_layer, uint32_t layer_count,
                               CanonicalBlock *out) const {
    const GroupGeometry &group = books_->geometry.groups[group_];
    CanonicalHeader h = whole_header(books_->geometry, group_, index_,
                                     session_tokens_in(head_->header(), group, index_));
    h.first_layer = first_layer;
    h.layer_count = layer_count;
    std::memcpy(h.namespace_digest, head_->header().name_space, sizeof h.namespace_digest);
    return CanonicalBlock::describe(h, out);
}

const quire_token *SessionBlocks::tokens() const {
    if (books_->geometry.groups[group_].cross) return nullptr;
    return head_->tokens() + uint64_t{index_} * books_->geometry.block_tokens;
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

Status SessionBlocks::check(const uint8_t *bytes, uint64_t size_bytes, uint32_t first_layer,
                            uint32_t layer_count, CanonicalBlock *out) const {
    CanonicalBlock expected;
    QUIRE_TRY(describe(first_layer, layer_count, &expected));
    QUIRE_TRY(CanonicalBlock::open(bytes, size_bytes, out));
    const CanonicalHeader &is = out->header(), &wanted = expected.header();
    QUIRE_TRY(
        check_of_group(is, group_, books_->geometry.groups[group_], books_->geometry.block_tokens));
    bool same = is.token_count == wanted.token_count && is.id_count == wanted.id_count &&
                is.first_position == wanted.first_position &&
                is.first_layer == wanted.first_layer && is.layer_count == wanted.layer_count &&
                is.head_count == wanted.head_count;
    same = same && std::memcmp(is.namespace_digest, wanted.namespace_digest,
                               sizeof is.namespace_digest) == 0;
    same = same && (tokens() == nullptr ||
                    std::memcmp(bytes + sizeof is, tokens(), uint64_t{is.id_count} * 4) == 0);
    if (!same) {
        return fail(QUIRE_E_ARG, "damaged session: block {} of group {} is another one", index_,
                    group_);
    }
    if (has_scales(books_->scales, *out, bytes)) return Status{};
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
