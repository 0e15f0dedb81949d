// SPDX-License-Identifier: Apache-2.0

#include "core/session/session_head.hpp"

#include <algorithm>
#include <cstddef>

#include "core/base/hash.hpp"

namespace quire {

namespace {

uint64_t head_bytes_of(uint32_t group_count, uint32_t known) {
    uint64_t end = sizeof(SessionHeader) + uint64_t{group_count} * sizeof(SessionGroup) +
                   uint64_t{known} * sizeof(quire_token);
    return (end + kSessionAlignment - 1) / kSessionAlignment * kSessionAlignment;
}

uint64_t checksum_of(const uint8_t *bytes, uint64_t size_bytes) {
    SessionHeader header;
    std::memcpy(&header, bytes, sizeof header);
    header.checksum = 0;
    return XXH3_64bits_withSeed(bytes + sizeof header, size_bytes - sizeof header,
                                XXH3_64bits(&header, sizeof header));
}

}  // namespace

bool SessionHead::begin(uint32_t group_count, uint32_t known) {
    if (!bytes_.create(head_bytes_of(group_count, known))) return false;
    SessionHeader &h = header();
    h.magic = magic_;
    h.version = kSessionVersion;
    h.byte_order = kSessionByteOrder;
    h.head_bytes = bytes_.size();
    h.group_count = group_count;
    h.known = known;
    return true;
}

void SessionHead::seal(uint64_t total_bytes) {
    header().total_bytes = total_bytes;
    header().checksum = checksum_of(bytes_.data(), bytes_.size());
}

Status SessionHead::read_header(const uint8_t *first, const Geometry &limits) {
    SessionHeader h;
    std::memcpy(&h, first, sizeof h);
    if (h.magic != magic_) {
        return fail(QUIRE_E_ARG, magic_ == kSessionMagic
                                     ? "these bytes are not a session: wrong magic"
                                     : "these bytes are not a hand-over: wrong magic");
    }
    if (h.version != kSessionVersion) {
        return fail(QUIRE_E_INCOMPATIBLE, "the session's version is {}, this library reads {}",
                    h.version, kSessionVersion);
    }
    if (h.byte_order != kSessionByteOrder)
        return fail(QUIRE_E_ARG, "damaged session: wrong byte order");
    if (h.group_count != limits.group_count) {
        return fail(QUIRE_E_ARG, "foreign session: it has {} groups, not {}", h.group_count,
                    limits.group_count);
    }
    if (h.known > limits.max_sequence_tokens) {
        return fail(QUIRE_E_LIMIT, "the session has {} tokens, and max_sequence_tokens is {}",
                    h.known, limits.max_sequence_tokens);
    }
    if (h.head_bytes != head_bytes_of(h.group_count, h.known)) {
        return fail(QUIRE_E_ARG, "damaged session: its head has {} bytes, and its fields need {}",
                    h.head_bytes, head_bytes_of(h.group_count, h.known));
    }
    if (!bytes_.create(sizeof h)) return no_host_memory();
    std::memcpy(bytes_.data(), &h, sizeof h);
    return Status{};
}

Status SessionHead::extend(uint8_t **at, uint64_t *count) {
    constexpr uint64_t kPart = uint64_t{1} << 20;
    uint64_t size = bytes_.size();
    *count = std::min(kPart, header().head_bytes - size);
    if (!bytes_.reserve(size + *count)) return no_host_memory();
    bytes_.resize_within(size + *count);
    *at = bytes_.data() + size;
    return Status{};
}

bool SessionHead::append(const uint8_t *bytes, uint64_t count) {
    const uint64_t size = bytes_.size();
    if (!bytes_.reserve(size + count)) return false;
    bytes_.resize_within(size + count);
    std::memcpy(bytes_.data() + size, bytes, count);
    return true;
}

Status SessionHead::check_groups(const Geometry &limits) const {
    const SessionHeader &h = header();
    uint64_t blocks = 0;
    for (uint32_t g = 0; g < limits.group_count; ++g) {
        const GroupGeometry &geometry = limits.groups[g];
        uint32_t length = h.computed != 0 ? limits.table_length(g, h.computed, h.cross_tokens) : 0;
        uint32_t null_front = group(g).null_front;
        uint32_t gap_end = geometry.first_visible_block(h.computed);
        bool fits = null_front == 0 || (geometry.windowed && null_front > geometry.kept_blocks &&
                                        null_front <= length && null_front <= gap_end);
        if (group(g).length != length || !fits) {
            return fail(QUIRE_E_ARG, "damaged session: the table of group {} has {} blocks", g,
                        group(g).length);
        }
        blocks += geometry.held_entries(length, null_front);
    }
    if (blocks == h.block_count) return Status{};
    return fail(QUIRE_E_ARG, "damaged session: {} blocks, but its tables name {}", h.block_count,
                blocks);
}

Status SessionHead::check(const Geometry &limits) const {
    const SessionHeader &h = header();
    if (h.checksum != checksum_of(bytes_.data(), bytes_.size()))
        return fail(QUIRE_E_ARG, "damaged session: the checksum of its head does not match");
    if (h.block_tokens != limits.block_tokens) {
        return fail(QUIRE_E_ARG, "foreign session: its block_tokens is {}, not {}", h.block_tokens,
                    limits.block_tokens);
    }
    bool reserved = h.reserved0 != 0;
    for (uint64_t word : h.reserved1) reserved |= word != 0;
    if (reserved || h.computed > h.known)
        return fail(QUIRE_E_ARG, "damaged session: its header contradicts itself");
    uint32_t unnamed = static_cast<uint32_t>(
        std::find(tokens(), tokens() + h.known, QUIRE_TOKEN_UNKNOWN) - tokens());
    if (unnamed != h.known) return fail(QUIRE_E_ARG, "session: token {} has no id", unnamed);
    return check_groups(limits);
}

uint32_t session_tokens_in(const SessionHeader &header, const GroupGeometry &group,
                           uint32_t index) {
    uint32_t all = group.cross ? header.cross_tokens : header.computed;
    return std::min(header.block_tokens, all - index * header.block_tokens);
}

}  // namespace quire
