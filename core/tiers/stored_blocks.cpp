// SPDX-License-Identifier: Apache-2.0

#include "core/tiers/stored_blocks.hpp"

namespace quire {

namespace {

// The first head from `head` on that no shard holds in this layer.
uint32_t first_gap(const Shards &shards, uint32_t group, uint32_t layer, uint32_t head) {
    for (bool moves = true; moves;) {
        moves = false;
        for (uint32_t i = 0; i < shards.count(); ++i) {
            if (!shards[i].holds(group)) continue;
            const BlockPart part = shards[i].part(group);
            if (layer - part.first_layer >= part.layer_count) continue;
            if (head - part.first_head >= part.head_count) continue;
            head = part.first_head + part.head_count;
            moves = true;
        }
    }
    return head;
}

}  // namespace

// The smallest rectangle around what the shards hold, all of which must be here.
Status StoredBlocks::find_part(uint32_t group, Rectangle *out) const {
    *out = Rectangle{};
    uint32_t layer = UINT32_MAX, layer_end = 0, head = UINT32_MAX, head_end = 0;
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        if (!books_.shards[i].holds(group)) continue;
        const BlockPart part = books_.shards[i].part(group);
        if (part.first_layer < layer) layer = part.first_layer;
        if (part.first_head < head) head = part.first_head;
        const uint32_t layers = part.first_layer + part.layer_count;
        const uint32_t heads = part.first_head + part.head_count;
        if (layers > layer_end) layer_end = layers;
        if (heads > head_end) head_end = heads;
    }
    if (layer_end == 0) return Status{};
    for (uint32_t l = layer; l < layer_end; ++l) {
        const uint32_t gap = first_gap(books_.shards, group, l, head);
        if (gap >= head_end) continue;
        return fail(QUIRE_E_UNSUPPORTED,
                    "a tier keeps one rectangle of layers and KV heads per group, but this cache "
                    "holds KV head {} only in some of them, not in layer {}",
                    gap, l);
    }
    *out = Rectangle{layer, layer_end - layer, head, head_end - head};
    return Status{};
}

CanonicalHeader StoredBlocks::header(uint32_t group, uint32_t index, const Rectangle &part) const {
    const Geometry &geometry = books_.geometry;
    CanonicalHeader h = whole_header(geometry, group, index, geometry.block_tokens);
    h.first_layer = part.first_layer;
    h.layer_count = part.layer_count;
    h.first_head = part.first_head;
    h.head_count = part.head_count;
    return h;
}

CanonicalHeader StoredBlocks::header(const BlockName &block) const {
    CanonicalHeader h = header(block.group, block.index, parts_[block.group]);
    std::memcpy(h.namespace_digest, block.tenant.bytes, sizeof h.namespace_digest);
    std::memcpy(h.content_digest, block.name.bytes, sizeof h.content_digest);
    return h;
}

Status StoredBlocks::check(uint64_t max_value_bytes) const {
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        Rectangle part;
        QUIRE_TRY(find_part(g, &part));
        if (part.layer_count == 0) continue;
        CanonicalBlock form;
        QUIRE_TRY(CanonicalBlock::describe(header(g, 0, part), &form));
        if (form.size_bytes() <= max_value_bytes) continue;
        return fail(QUIRE_E_ARG, "a block takes {} bytes, and the store takes values of at most {}",
                    form.size_bytes(), max_value_bytes);
    }
    return Status{};
}

void StoredBlocks::open(const uint8_t fingerprint[32]) {
    std::memcpy(fingerprint_, fingerprint, sizeof fingerprint_);
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        Status found = find_part(g, &parts_[g]);
        QUIRE_ASSERT(found.ok());
        forms_[g] = 0;
        if (parts_[g].layer_count == 0) continue;
        CanonicalBlock form;
        Status described = CanonicalBlock::describe(header(g, 0, parts_[g]), &form);
        QUIRE_ASSERT(described.ok());
        forms_[g] = form.size_bytes();
    }
}

quire_store_label StoredBlocks::label(const BlockName &block) const {
    const GroupGeometry &g = books_.geometry.groups[block.group];
    const uint32_t shape[] = {block.group,   g.kind,     g.window,     g.sink_tokens,
                              g.layer_count, g.kv_heads, g.k_head_dim, g.v_head_dim,
                              g.k_dtype,     g.v_dtype,  g.k_scale,    g.v_scale};
    const Rectangle &p = parts_[block.group];
    Sha256 hash;
    hash.add(block.name.bytes, sizeof block.name.bytes);
    hash.add(shape, sizeof shape);
    if (p.layer_count != g.layer_count || p.head_count != g.kv_heads) {
        const uint32_t part[] = {p.first_layer, p.layer_count, p.first_head, p.head_count};
        hash.add(part, sizeof part);
    }
    const Digest key = hash.finish();
    quire_store_label out{};
    std::memcpy(out.key, key.bytes, sizeof out.key);
    std::memcpy(out.fingerprint, fingerprint_, sizeof out.fingerprint);
    std::memcpy(out.name_space, block.tenant.bytes, sizeof out.name_space);
    return out;
}

void StoredBlocks::write(const BlockName &block, const quire_token *tokens,
                         const uint8_t *const *parts, uint8_t *out) const {
    CanonicalBlock form;
    Status described = CanonicalBlock::describe(header(block), &form);
    QUIRE_ASSERT(described.ok() && form.size_bytes() == forms_[block.group]);
    form.begin(tokens, out);
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        if (books_.shards[i].holds(block.group)) gather(books_.shards[i], form, parts[i], out);
    }
    write_scales(books_.scales, form, out);
    form.seal(out);
}

StoredBlocks::Verdict StoredBlocks::judge(const BlockName &block, const quire_token *tokens,
                                          const uint8_t *bytes, uint64_t size_bytes) const {
    CanonicalBlock form;
    if (!CanonicalBlock::open(bytes, size_bytes, &form).ok()) return Verdict::damaged;
    CanonicalHeader wanted = header(block);
    const CanonicalHeader is = form.header();
    wanted.magic = is.magic;  // open() judged these
    wanted.version = is.version;
    wanted.byte_order = is.byte_order;
    wanted.size_bytes = is.size_bytes;
    wanted.checksum = is.checksum;
    const bool is_right =
        std::memcmp(&is, &wanted, sizeof is) == 0 &&
        std::memcmp(bytes + sizeof is, tokens,
                    uint64_t{books_.geometry.block_tokens} * sizeof *tokens) == 0 &&
        has_scales(books_.scales, form, bytes);
    return is_right ? Verdict::right : Verdict::foreign;
}

void StoredBlocks::fill(uint32_t group, uint32_t host_block, const uint8_t *bytes,
                        uint64_t size_bytes) const {
    CanonicalBlock form;
    Status opened = CanonicalBlock::describe(header(group, 0, parts_[group]), &form);
    QUIRE_ASSERT(opened.ok() && form.size_bytes() == size_bytes);
    clear_host_block(books_.shards, group, host_block);
    scatter(form, bytes, books_.shards, host_block);
}

}  // namespace quire
