// SPDX-License-Identifier: Apache-2.0
//
// canonical: a block as bytes that every device, process and language reads alike, in the format of
// docs/canonical-form.md.
//
// It holds some layers and heads of one group. So a shard can write what it holds, and a reader
// with other shards can take what it needs from several such blocks (block_part).
//
// Invariant of a CanonicalBlock that open() returned: every field has a value that the page allows,
// and every plane lies within the bytes.
//
// Threads: any; the bytes are the caller's.
#pragma once

#include "core/device/block_part.hpp"

namespace quire {

constexpr uint64_t kCanonicalMagic = 0x4B4C424552495551;  // "QUIREBLK"
constexpr uint32_t kCanonicalVersion = 1;
constexpr uint32_t kCanonicalByteOrder = 0x01020304;
constexpr uint64_t kCanonicalAlignment = 64;  // of every plane: a cache line, a vector, a burst

enum : uint32_t { kRopeNotStated = 0, kRopeNotApplied = 1, kRopeApplied = 2 };

struct CanonicalHeader {
    uint64_t magic;
    uint32_t version;
    uint32_t byte_order;
    uint64_t size_bytes;  // of the whole block
    uint64_t checksum;    // XXH3, 64 bits, with 0 in this place
    uint32_t group;
    uint32_t group_kind;
    uint32_t window;
    uint32_t sink_tokens;
    uint32_t block_tokens;
    uint32_t token_count;  // slots that hold content, from the first slot on
    uint64_t first_position;
    uint32_t group_layers;
    uint32_t first_layer;
    uint32_t layer_count;
    uint32_t group_heads;
    uint32_t first_head;
    uint32_t head_count;
    uint32_t k_head_dim;
    uint32_t v_head_dim;
    uint32_t k_dtype;
    uint32_t v_dtype;
    uint32_t k_scale;
    uint32_t v_scale;
    uint32_t rope;
    uint32_t id_count;     // token ids after the header: token_count, or 0
    uint64_t rope_digest;  // digest of the rotation applied to K; 0: not stated
    uint8_t namespace_digest[32];
    uint8_t content_digest[32];
    uint64_t reserved0[8];
};
static_assert(sizeof(CanonicalHeader) == 256);

class CanonicalBlock {
 public:
    // Lays out a block that the header describes; ignores the header's size_bytes and checksum.
    // Errors  QUIRE_E_ARG or QUIRE_E_UNSUPPORTED: a field has a value that the page does not allow.
    static Status describe(const CanonicalHeader &header, CanonicalBlock *out);
    // Checks everything that the bytes say. REQUIRES: nothing of the bytes.
    static Status open(const void *bytes, uint64_t size_bytes, CanonicalBlock *out);

    const CanonicalHeader &header() const { return header_; }
    uint64_t size_bytes() const { return size_bytes_; }
    // Its planes, from the first byte on. Scales of static kinds are planes of one f32 per head.
    const BlockPart &part() const { return part_; }

    // Writes header and token ids, and zeros everywhere else. out: [size_bytes()].
    void begin(const quire_token *tokens, uint8_t *out) const;
    // Zeros what follows the last token, and writes size and checksum. The planes are filled
    // between the two calls.
    void seal(uint8_t *out) const;

 private:
    Status check_shape() const;
    Status lay_out();

    CanonicalHeader header_{};
    BlockPart part_;
    uint64_t size_bytes_ = 0;
};

// OK if the block belongs to this group, number `index` in a cache with blocks of block_tokens. The
// message says what differs.
Status check_of_group(const CanonicalHeader &header, uint32_t index, const GroupGeometry &group,
                      uint32_t block_tokens);

}  // namespace quire
