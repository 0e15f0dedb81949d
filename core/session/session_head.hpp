// SPDX-License-Identifier: Apache-2.0
//
// session_head: what comes before a session's blocks: identity, lengths, table shapes and tokens,
// in the format of docs/session-format.md.
//
// Threads: any; the bytes are the object's.
#pragma once

#include "core/base/geometry.hpp"

namespace quire {

constexpr uint64_t kSessionMagic = 0x5145534552495551;  // "QUIRESEQ"
constexpr uint32_t kSessionVersion = 1;
constexpr uint32_t kSessionByteOrder = 0x01020304;
constexpr uint64_t kSessionAlignment = 64;

struct SessionHeader {
    uint64_t magic;
    uint32_t version;
    uint32_t byte_order;
    uint64_t head_bytes;   // of this header, the groups and the tokens, padded
    uint64_t total_bytes;  // of the session
    uint64_t checksum;     // XXH3, 64 bits, of the head, with 0 in this place
    uint32_t known;
    uint32_t computed;
    uint32_t block_tokens;
    uint32_t group_count;
    uint32_t cross_tokens;
    uint32_t reserved0;
    uint64_t block_count;
    uint8_t fingerprint[32];
    uint8_t name_space[32];
    uint8_t keys_digest[16];
    uint64_t reserved1[13];
};
static_assert(sizeof(SessionHeader) == 256);

// The shape of a group's table.
struct SessionGroup {
    uint32_t length;
    uint32_t null_front;  // entries from the group's kept_blocks to here are null
};

class SessionHead {
 public:
    explicit SessionHead(const HostAllocator *host, uint64_t magic = kSessionMagic)
        : bytes_(host), magic_(magic) {}

    // Writing: begin() makes room and zeros it; the fields are filled through the references;
    // seal() writes sizes and checksum. False: no memory.
    [[nodiscard]] bool begin(uint32_t group_count, uint32_t known);
    void seal(uint64_t total_bytes);

    // Reading: the first sizeof(SessionHeader) bytes say how many the head has. Then extend() makes
    // room for more of them, until there are none, and check() judges all. Memory grows with the
    // bytes that have come, not with what they claim. `limits` is the cache's.
    Status read_header(const uint8_t *first, const Geometry &limits);
    // *at: where the next *count bytes of the head go; count 0: it is whole.
    Status extend(uint8_t **at, uint64_t *count);
    // The same in the reader's own pieces. append() is false if there is no memory.
    uint64_t bytes_left() const { return header().head_bytes - bytes_.size(); }
    [[nodiscard]] bool append(const uint8_t *bytes, uint64_t count);
    Status check(const Geometry &limits) const;

    SessionHeader &header() { return *reinterpret_cast<SessionHeader *>(bytes_.data()); }
    const SessionHeader &header() const {
        return *reinterpret_cast<const SessionHeader *>(bytes_.data());
    }
    SessionGroup &group(uint32_t index) {
        return reinterpret_cast<SessionGroup *>(bytes_.data() + sizeof(SessionHeader))[index];
    }
    const SessionGroup &group(uint32_t index) const {
        return reinterpret_cast<const SessionGroup *>(bytes_.data() + sizeof(SessionHeader))[index];
    }
    quire_token *tokens() { return reinterpret_cast<quire_token *>(&group(header().group_count)); }
    const quire_token *tokens() const {
        return reinterpret_cast<const quire_token *>(&group(header().group_count));
    }
    const uint8_t *bytes() const { return bytes_.data(); }
    uint64_t size_bytes() const { return bytes_.size(); }

 private:
    Status check_groups(const Geometry &limits) const;

    Array<uint8_t> bytes_;
    uint64_t magic_;  // names what the head begins: a session, or a hand-over
};

// Tokens that lie in block `index` of a group, of a session with such a head.
uint32_t session_tokens_in(const SessionHeader &header, const GroupGeometry &group, uint32_t index);

}  // namespace quire
