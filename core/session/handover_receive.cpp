// SPDX-License-Identifier: Apache-2.0

#include "core/session/handover_receive.hpp"

#include <algorithm>

namespace quire {

namespace {

constexpr uint64_t kHeadPiece = 65536;
constexpr uint64_t kBeginBytes = sizeof(HandoverTail);  // of a part, or all of the tail

}  // namespace

Status HandoverReceive::begin(const SessionIdentity &as, const quire_handover_receive_desc &desc,
                              const quire_seq_desc &seq, const quire_key *keys) {
    as_ = as;
    if (!expected_.create(desc.token_count)) return no_host_memory();
    if (desc.token_count != 0)
        std::memcpy(expected_.data(), desc.tokens,
                    uint64_t{desc.token_count} * sizeof *desc.tokens);
    QUIRE_TRY(expect(Next::header, sizeof(SessionHeader)));
    QUIRE_TRY(import_.create(seq, keys));
    is_held_ = true;
    return Status{};
}

void HandoverReceive::release(bool is_whole) {
    if (!is_held_) return;
    is_held_ = false;
    import_.end(is_whole, &sequence_);
}

void HandoverReceive::tell(quire_handover_progress *out) const {
    const bool has_head = cells_.count() != 0;
    out->token_count = has_head ? import_.head().header().known : 0;
    out->is_whole = sequence_ != 0 ? 1 : 0;
    out->cells = cells_.count();
    out->cells_done = cells_.count() - cells_.left();
    out->size_bytes = taken_bytes_;
    out->seq = sequence_;
}

Status HandoverReceive::write(const uint8_t *bytes, uint64_t size_bytes, uint64_t *used,
                              bool *short_of_blocks) {
    *used = 0;
    *short_of_blocks = false;
    QUIRE_TRY(failure_);
    Status taken = take_bytes(bytes, size_bytes, used, short_of_blocks);
    taken_bytes_ += *used;
    if (taken.ok()) return taken;
    // A shortage passes: what was taken counts, and the next call tries again.
    if (taken.code == QUIRE_E_HOST_MEMORY) return *used != 0 ? Status{} : taken;
    failure_ = taken;
    release(false);
    return taken;
}

Status HandoverReceive::take_bytes(const uint8_t *bytes, uint64_t size_bytes, uint64_t *used,
                                   bool *short_of_blocks) {
    for (;;) {
        if (bytes_.size() == wanted_) {
            if (next_ == Next::none) return Status{};
            QUIRE_TRY(take(short_of_blocks));
            if (*short_of_blocks) return Status{};
            continue;
        }
        const uint64_t count = std::min(size_bytes - *used, wanted_ - bytes_.size());
        if (count == 0) return Status{};
        const uint64_t before = bytes_.size();
        bytes_.resize_within(before + count);
        std::memcpy(bytes_.data() + before, bytes + *used, count);
        *used += count;
    }
}

// The next piece is complete.
Status HandoverReceive::take(bool *short_of_blocks) {
    switch (next_) {
        case Next::header:
            return take_header();
        case Next::head_room: {
            // Room is made as the bytes come, not as the head claims.
            const uint64_t left = import_.head().bytes_left();
            if (left == 0) return take_head();
            return expect(Next::head, std::min(left, kHeadPiece));
        }
        case Next::head:
            if (!import_.head().append(bytes_.data(), wanted_)) return no_host_memory();
            return expect(Next::head_room, 0);
        case Next::blocks:
            QUIRE_TRY(import_.take(short_of_blocks));
            return *short_of_blocks ? Status{} : expect(Next::part_begin, kBeginBytes);
        case Next::part_begin:
            return take_part_begin();
        case Next::part_header:
            return take_part_header();
        case Next::part:
            return take_part();
        default:
            return Status{};
    }
}

// Waits for so many bytes of what comes next.
Status HandoverReceive::expect(Next next, uint64_t size_bytes) {
    if (!bytes_.reserve(size_bytes)) return no_host_memory();
    next_ = next;
    wanted_ = size_bytes;
    bytes_.shrink(0);
    return Status{};
}

// Likewise; the bytes so far are its first ones.
Status HandoverReceive::extend(Next next, uint64_t size_bytes) {
    if (!bytes_.reserve(size_bytes)) return no_host_memory();
    next_ = next;
    wanted_ = size_bytes;
    return Status{};
}

Status HandoverReceive::take_header() {
    QUIRE_TRY(import_.head().read_header(bytes_.data(), books_.geometry));
    return expect(Next::head_room, 0);
}

Status HandoverReceive::take_head() {
    SessionHead &head = import_.head();
    QUIRE_TRY(head.check(books_.geometry));
    QUIRE_TRY(import_.check_identity(as_));
    QUIRE_TRY(check_tokens());
    if (!cells_.create(books_.geometry, head)) return no_host_memory();
    counted_bytes_ = head.size_bytes();
    return expect(Next::blocks, 0);
}

Status HandoverReceive::check_tokens() const {
    const SessionHead &head = import_.head();
    const uint64_t known = head.header().known;
    if (expected_.size() == 0) return Status{};
    if (known != expected_.size()) {
        return fail(QUIRE_E_ARG, "foreign hand-over: it is of {} tokens, not of {}", known,
                    expected_.size());
    }
    uint64_t same = 0;
    while (same < known && head.tokens()[same] == expected_[same]) ++same;
    if (same == known) return Status{};
    return fail(QUIRE_E_ARG, "foreign hand-over: it has another token at place {}", same);
}

// A part, or the tail. What is neither is refused before it is waited for.
Status HandoverReceive::take_part_begin() {
    uint64_t magic = 0;
    std::memcpy(&magic, bytes_.data(), sizeof magic);
    if (magic == kHandoverTailMagic) return take_tail();
    if (magic != kCanonicalMagic)
        return fail(QUIRE_E_ARG, "damaged hand-over: part {} does not begin as a block", parts_);
    return extend(Next::part_header, sizeof(CanonicalHeader));
}

// Which cells the part holds, and that it has their size.
Status HandoverReceive::take_part_header() {
    CanonicalHeader h;
    std::memcpy(&h, bytes_.data(), sizeof h);
    if (h.version != kCanonicalVersion)
        return fail(QUIRE_E_ARG, "damaged hand-over: part {} is of version {}", parts_, h.version);
    const Geometry &geometry = books_.geometry;
    if (h.group >= geometry.group_count)
        return fail(QUIRE_E_ARG, "damaged hand-over: part {} is of group {}", parts_, h.group);
    const GroupGeometry &group = geometry.groups[h.group];
    QUIRE_TRY(check_of_group(h, h.group, group, geometry.block_tokens));
    const SessionGroup &table = import_.head().group(h.group);
    const uint64_t index = h.first_position / geometry.block_tokens;
    const bool is_held =
        index < table.length && !group.is_null(static_cast<uint32_t>(index), table.null_front);
    const bool has_layers = h.layer_count != 0 && h.first_layer < group.layer_count &&
                            h.layer_count <= group.layer_count - h.first_layer;
    if (!is_held || !has_layers) {
        return fail(QUIRE_E_ARG, "damaged hand-over: part {} is of no block of group {}", parts_,
                    h.group);
    }
    part_ = {h.group, static_cast<uint32_t>(index), h.first_layer, h.layer_count};
    const uint32_t end = part_.first_layer + part_.layer_count;
    if (cells_.open_run(part_.group, part_.index, part_.first_layer, end) != part_.layer_count)
        return fail(QUIRE_E_ARG, "damaged hand-over: part {} came before", parts_);
    SessionBlocks at(&books_, &import_.head());
    at.seek(part_.group, part_.index);
    CanonicalBlock form;
    QUIRE_TRY(at.describe(part_.first_layer, part_.layer_count, &form));
    if (h.size_bytes != form.size_bytes()) {
        return fail(QUIRE_E_ARG, "damaged hand-over: a part of {} bytes, where {} belong",
                    h.size_bytes, form.size_bytes());
    }
    return extend(Next::part, h.size_bytes);
}

Status HandoverReceive::take_part() {
    SessionBlocks at(&books_, &import_.head());
    at.seek(part_.group, part_.index);
    CanonicalBlock form;
    QUIRE_TRY(at.check(bytes_.data(), wanted_, part_.first_layer, part_.layer_count, &form));
    const uint32_t block = import_.block_at(part_.group, part_.index);
    const uint32_t all = books_.geometry.groups[part_.group].layer_count;
    if (cells_.open_run(part_.group, part_.index, 0, all) == all)
        clear_host_block(books_.shards, part_.group, block);
    scatter(form, bytes_.data(), books_.shards, block);
    cells_.close(part_);
    counted_bytes_ += wanted_;
    ++parts_;
    return expect(Next::part_begin, kBeginBytes);
}

Status HandoverReceive::take_tail() {
    HandoverTail tail;
    std::memcpy(&tail, bytes_.data(), sizeof tail);
    bool reserved = false;
    for (uint64_t word : tail.reserved0) reserved |= word != 0;
    if (tail.checksum != tail.sum() || reserved ||
        tail.head_checksum != import_.head().header().checksum) {
        return fail(QUIRE_E_ARG, "damaged hand-over: its tail is not of its head");
    }
    if (tail.parts != parts_ || tail.size_bytes != counted_bytes_ + sizeof tail ||
        cells_.left() != 0) {
        return fail(QUIRE_E_ARG,
                    "damaged hand-over: it ends after {} parts, and {} cells are missing", parts_,
                    cells_.left());
    }
    QUIRE_TRY(expect(Next::none, 0));
    release(true);
    return Status{};
}

}  // namespace quire
