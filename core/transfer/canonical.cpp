// SPDX-License-Identifier: Apache-2.0

#include "core/transfer/canonical.hpp"

#include <bit>
#include <cstddef>

#include "core/base/hash.hpp"
#include "core/scales/static_scales.hpp"

namespace quire {

static_assert(std::endian::native == std::endian::little, "the format's numbers are read as such");

namespace {

uint64_t checksum(const uint8_t *bytes, uint64_t size_bytes) {
    CanonicalHeader header;
    std::memcpy(&header, bytes, sizeof header);
    header.checksum = 0;
    return XXH3_64bits_withSeed(bytes + sizeof header, size_bytes - sizeof header,
                                XXH3_64bits(&header, sizeof header));
}

Status check_side(uint32_t dtype, uint32_t scale, uint32_t head_dim) {
    if (pool_dtype_bits(dtype) == 0) {
        return fail(QUIRE_E_UNSUPPORTED, "canonical block: element type {dtype} is not known",
                    dtype);
    }
    if (scale > QUIRE_SCALE_TOKEN_HEAD) {
        return fail(QUIRE_E_UNSUPPORTED, "canonical block: kind of scales {} is not known", scale);
    }
    if ((dtype_size_bytes(dtype) != 0) != (scale == QUIRE_SCALE_NONE)) {
        return fail(QUIRE_E_ARG, "canonical block: type {dtype} does not go with scales of kind {}",
                    dtype, scale);
    }
    if (head_dim == 0 || (dtype == QUIRE_DTYPE_I4 && head_dim % 2 != 0)) {
        return fail(QUIRE_E_ARG,
                    "canonical block: a head of {} elements is empty or ends inside a byte",
                    head_dim);
    }
    return Status{};
}

// Checks that [first, first + count) lies in [0, all), and that `all` is at most `most`.
Status check_range(uint32_t first, uint32_t count, uint32_t all, uint32_t most, const char *what) {
    bool fits = all != 0 && all <= most && count != 0 && first < all && count <= all - first;
    return fits ? Status{} : fail(QUIRE_E_ARG, what, first, all);
}

bool padded(uint64_t *end) {
    bool fits = checked_add(*end, kCanonicalAlignment - 1, end);
    *end -= *end % kCanonicalAlignment;
    return fits;
}

// Bytes of one head's row of scales.
uint64_t scale_bytes(uint32_t kind, uint32_t block_tokens) {
    if (kind == QUIRE_SCALE_NONE) return 0;
    return sizeof(float) * (is_static(kind) ? uint64_t{1} : block_tokens);
}

// Bytes of one token's row; a whole number, see check_side().
uint64_t row_bytes(uint32_t head_dim, uint32_t dtype) {
    return uint64_t{head_dim} * pool_dtype_bits(dtype) / 8;
}

}  // namespace

Status CanonicalBlock::check_shape() const {
    const CanonicalHeader &h = header_;
    if (h.group >= kMaxGroups || h.group_kind > QUIRE_GROUP_CROSS) {
        return fail(QUIRE_E_ARG, "canonical block: group {} of kind {} is invalid", h.group,
                    h.group_kind);
    }
    bool windowed = h.group_kind == QUIRE_GROUP_WINDOW || h.group_kind == QUIRE_GROUP_CHUNKED;
    if (windowed != (h.window != 0) || (h.group_kind != QUIRE_GROUP_WINDOW && h.sink_tokens != 0)) {
        return fail(QUIRE_E_ARG, "canonical block: kind {} does not go with a window of {}",
                    h.group_kind, h.window);
    }
    if (!is_power_of_two(h.block_tokens) || h.block_tokens > kMaxDeviceBlockTokens) {
        return fail(QUIRE_E_ARG, "canonical block: block_tokens is {}", h.block_tokens);
    }
    if (h.token_count == 0 || h.token_count > h.block_tokens ||
        (h.id_count != 0 && h.id_count != h.token_count)) {
        return fail(QUIRE_E_ARG, "canonical block: {} tokens and {} token ids", h.token_count,
                    h.id_count);
    }
    if (h.first_position % h.block_tokens != 0 || h.first_position > kMaxTokens) {
        return fail(QUIRE_E_ARG, "canonical block: it cannot begin at position {}",
                    h.first_position);
    }
    QUIRE_TRY(check_range(h.first_layer, h.layer_count, h.group_layers, kMaxLayers,
                          "canonical block: its layers from {} on are not all within {}"));
    QUIRE_TRY(check_range(h.first_head, h.head_count, h.group_heads, UINT32_MAX,
                          "canonical block: its heads from {} on are not all within {}"));
    QUIRE_TRY(check_side(h.k_dtype, h.k_scale, h.k_head_dim));
    QUIRE_TRY(check_side(h.v_dtype, h.v_scale, h.v_head_dim));
    if (h.group_kind == QUIRE_GROUP_LATENT && (h.group_heads != 1 || h.v_head_dim > h.k_head_dim ||
                                               h.v_dtype != h.k_dtype || h.v_scale != h.k_scale)) {
        return fail(QUIRE_E_ARG, "canonical block: a latent row of {} elements has no V of {}",
                    h.k_head_dim, h.v_head_dim);
    }
    if (h.rope > kRopeApplied || (h.rope != kRopeApplied && h.rope_digest != 0)) {
        return fail(QUIRE_E_ARG, "canonical block: rope state {} is not known", h.rope);
    }
    for (uint64_t word : h.reserved0) {
        if (word != 0) return fail(QUIRE_E_ARG, "canonical block: a reserved field is not 0");
    }
    return Status{};
}

// The layout: token ids, then the planes of K and V layer by layer, then those of their scales.
Status CanonicalBlock::lay_out() {
    const CanonicalHeader &h = header_;
    bool latent = h.group_kind == QUIRE_GROUP_LATENT;
    uint64_t k_head = row_bytes(h.k_head_dim, h.k_dtype) * h.block_tokens;  // < 2^32 * 2^2 * 2^8
    uint64_t v_head = row_bytes(h.v_head_dim, h.v_dtype) * h.block_tokens;
    uint64_t head_bytes[kPlanes] = {k_head, latent ? 0 : v_head,
                                    scale_bytes(h.k_scale, h.block_tokens),
                                    latent ? 0 : scale_bytes(h.v_scale, h.block_tokens)};
    uint64_t end = sizeof(CanonicalHeader) + uint64_t{h.id_count} * sizeof(quire_token);
    bool fits = padded(&end);
    for (uint32_t first : {uint32_t{kPlaneK}, uint32_t{kPlaneKScale}}) {
        uint64_t layer_bytes = 0;
        for (uint32_t i = first; i < first + 2; ++i) {
            uint64_t plane = 0;
            part_.planes[i].offset = end + layer_bytes;
            part_.planes[i].head_bytes = head_bytes[i];
            fits = fits && checked_mul(head_bytes[i], h.head_count, &plane) && padded(&plane) &&
                   checked_add(layer_bytes, plane, &layer_bytes) && layer_bytes >> 48 == 0;
        }
        if (!fits) break;
        part_.planes[first].layer_stride = part_.planes[first + 1].layer_stride = layer_bytes;
        end += layer_bytes * h.layer_count;  // < 2^48 * 2^12
    }
    if (!fits) return fail(QUIRE_E_LIMIT, "canonical block: a layer is larger than 2^48 bytes");
    part_.first_layer = h.first_layer;
    part_.layer_count = h.layer_count;
    part_.first_head = h.first_head;
    part_.head_count = h.head_count;
    size_bytes_ = end;
    return Status{};
}

Status CanonicalBlock::describe(const CanonicalHeader &header, CanonicalBlock *out) {
    CanonicalBlock block;
    block.header_ = header;
    block.header_.magic = kCanonicalMagic;
    block.header_.version = kCanonicalVersion;
    block.header_.byte_order = kCanonicalByteOrder;
    QUIRE_TRY(block.check_shape());
    QUIRE_TRY(block.lay_out());
    block.header_.size_bytes = block.size_bytes_;
    *out = block;
    return Status{};
}

Status CanonicalBlock::open(const void *bytes, uint64_t size_bytes, CanonicalBlock *out) {
    if (bytes == nullptr) return fail(QUIRE_E_ARG, "the canonical block is NULL");
    if (size_bytes < sizeof(CanonicalHeader)) {
        return fail(QUIRE_E_ARG, "damaged canonical block: {} bytes, but a header takes {}",
                    size_bytes, sizeof(CanonicalHeader));
    }
    CanonicalHeader header;
    std::memcpy(&header, bytes, sizeof header);
    if (header.magic != kCanonicalMagic) {
        return fail(QUIRE_E_ARG, "these bytes are not a canonical block: wrong magic");
    }
    if (header.version != kCanonicalVersion) {
        return fail(QUIRE_E_INCOMPATIBLE,
                    "the canonical block's version is {}, this library reads {}", header.version,
                    kCanonicalVersion);
    }
    if (header.byte_order != kCanonicalByteOrder) {
        return fail(QUIRE_E_ARG, "damaged canonical block: wrong byte order");
    }
    if (header.size_bytes != size_bytes) {
        return fail(QUIRE_E_ARG, "damaged canonical block: {} bytes, but its header says {}",
                    size_bytes, header.size_bytes);
    }
    const auto *first = static_cast<const uint8_t *>(bytes);
    if (header.checksum != checksum(first, size_bytes)) {
        return fail(QUIRE_E_ARG, "damaged canonical block: its checksum does not match");
    }
    CanonicalBlock block;
    QUIRE_TRY(describe(header, &block));
    if (block.size_bytes_ != size_bytes) {
        return fail(QUIRE_E_ARG, "damaged canonical block: its planes need {} bytes, it has {}",
                    block.size_bytes_, size_bytes);
    }
    for (uint32_t i = 0; i < header.id_count; ++i) {
        quire_token id = 0;
        std::memcpy(&id, first + sizeof header + uint64_t{i} * sizeof id, sizeof id);
        if (id == QUIRE_TOKEN_UNKNOWN) {
            return fail(QUIRE_E_ARG, "canonical block: token {} has no id", i);
        }
    }
    *out = block;
    return Status{};
}

void CanonicalBlock::begin(const quire_token *tokens, uint8_t *out) const {
    std::memset(out, 0, size_bytes_);
    std::memcpy(out, &header_, sizeof header_);
    if (header_.id_count == 0) return;
    std::memcpy(out + sizeof header_, tokens, uint64_t{header_.id_count} * sizeof *tokens);
}

void CanonicalBlock::seal(uint8_t *out) const {
    const CanonicalHeader &h = header_;
    for (uint32_t i = 0; i < kPlanes; ++i) {
        bool is_static_scale = (i == kPlaneKScale && is_static(h.k_scale)) ||
                               (i == kPlaneVScale && is_static(h.v_scale));
        const PlaneLayout &plane = part_.planes[i];
        if (plane.head_bytes == 0 || is_static_scale) continue;
        uint64_t kept = plane.head_bytes / h.block_tokens * h.token_count;
        for (uint32_t layer = 0; layer < h.layer_count; ++layer) {
            uint8_t *head = out + plane.offset + layer * plane.layer_stride;
            for (uint32_t k = 0; k < h.head_count; ++k, head += plane.head_bytes) {
                std::memset(head + kept, 0, plane.head_bytes - kept);
            }
        }
    }
    uint64_t sum = checksum(out, size_bytes_);
    std::memcpy(out + offsetof(CanonicalHeader, checksum), &sum, sizeof sum);
}

Status check_of_group(const CanonicalHeader &h, uint32_t index, const GroupGeometry &group,
                      uint32_t block_tokens) {
    struct {
        const char *what;
        uint32_t is;
        uint32_t wanted;
    } const fields[] = {
        {"foreign canonical block: it belongs to group {}, not {}", h.group, index},
        {"foreign canonical block: its group's kind is {}, not {}", h.group_kind, group.kind},
        {"foreign canonical block: its window is {}, not {}", h.window, group.window},
        {"foreign canonical block: its sink_tokens is {}, not {}", h.sink_tokens,
         group.sink_tokens},
        {"foreign canonical block: its block_tokens is {}, not {}", h.block_tokens, block_tokens},
        {"foreign canonical block: its group has {} layers, not {}", h.group_layers,
         group.layer_count},
        {"foreign canonical block: its group has {} KV heads, not {}", h.group_heads,
         group.kv_heads},
        {"foreign canonical block: its k_head_dim is {}, not {}", h.k_head_dim, group.k_head_dim},
        {"foreign canonical block: its v_head_dim is {}, not {}", h.v_head_dim, group.v_head_dim},
        {"foreign canonical block: its k_dtype is {}, not {}", h.k_dtype, group.k_dtype},
        {"foreign canonical block: its v_dtype is {}, not {}", h.v_dtype, group.v_dtype},
        {"foreign canonical block: its k_scale is {}, not {}", h.k_scale, group.k_scale},
        {"foreign canonical block: its v_scale is {}, not {}", h.v_scale, group.v_scale},
    };
    for (const auto &field : fields) {
        if (field.is != field.wanted) return fail(QUIRE_E_ARG, field.what, field.is, field.wanted);
    }
    return Status{};
}

}  // namespace quire
