// SPDX-License-Identifier: Apache-2.0
//
// The canonical form of a block: golden files of every type, pools that are split into shards in
// several ways and give the same bytes, and a reader that survives any bytes.

#include "core/transfer/canonical.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/base/hash.hpp"
#include "core/device/binding.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire;

using Bytes = std::vector<uint8_t>;

// A block whose bytes encode their position; canonical_golden.py uses the same pattern.
struct Sample {
    const char *name;
    uint32_t kind;
    uint32_t k_dtype, k_scale;
    uint32_t v_dtype, v_scale;
    uint32_t heads, k_dim, v_dim;
};

const Sample kSamples[] = {
    {"f32", QUIRE_GROUP_FULL, QUIRE_DTYPE_F32, 0, QUIRE_DTYPE_F32, 0, 2, 8, 8},
    {"f16", QUIRE_GROUP_FULL, QUIRE_DTYPE_F16, 0, QUIRE_DTYPE_F16, 0, 2, 8, 8},
    {"bf16", QUIRE_GROUP_WINDOW, QUIRE_DTYPE_BF16, 0, QUIRE_DTYPE_BF16, 0, 2, 8, 8},
    {"fp8_e4m3", QUIRE_GROUP_FULL, QUIRE_DTYPE_F8_E4M3FN, QUIRE_SCALE_TOKEN_HEAD,
     QUIRE_DTYPE_F8_E4M3FN, QUIRE_SCALE_TOKEN_HEAD, 2, 8, 8},
    {"fp8_e5m2", QUIRE_GROUP_FULL, QUIRE_DTYPE_F8_E5M2, QUIRE_SCALE_HEAD, QUIRE_DTYPE_F8_E5M2,
     QUIRE_SCALE_HEAD, 2, 8, 8},
    {"int8", QUIRE_GROUP_CHUNKED, QUIRE_DTYPE_I8, QUIRE_SCALE_TENSOR, QUIRE_DTYPE_I8,
     QUIRE_SCALE_TENSOR, 2, 8, 8},
    {"int4", QUIRE_GROUP_FULL, QUIRE_DTYPE_I4, QUIRE_SCALE_TOKEN_HEAD, QUIRE_DTYPE_F16, 0, 2, 8, 4},
    {"latent", QUIRE_GROUP_LATENT, QUIRE_DTYPE_I8, QUIRE_SCALE_TOKEN_HEAD, QUIRE_DTYPE_I8,
     QUIRE_SCALE_TOKEN_HEAD, 1, 12, 8},
};

constexpr uint32_t kLayers = 3, kBlockTokens = 4, kTokens = 3;

CanonicalHeader header_of(const Sample &s) {
    CanonicalHeader h{};
    h.group = 1;
    h.group_kind = s.kind;
    bool windowed = s.kind == QUIRE_GROUP_WINDOW || s.kind == QUIRE_GROUP_CHUNKED;
    h.window = windowed ? 7 : 0;
    h.sink_tokens = s.kind == QUIRE_GROUP_WINDOW ? 2 : 0;
    h.block_tokens = kBlockTokens;
    h.token_count = h.id_count = kTokens;
    h.first_position = 8;
    h.group_layers = h.layer_count = kLayers;
    h.group_heads = h.head_count = s.heads;
    h.k_head_dim = s.k_dim;
    h.v_head_dim = s.v_dim;
    h.k_dtype = s.k_dtype;
    h.v_dtype = s.v_dtype;
    h.k_scale = s.k_scale;
    h.v_scale = s.v_scale;
    h.rope = kRopeApplied;
    h.rope_digest = 0x1122334455667788;
    for (uint32_t i = 0; i < 32; ++i) {
        h.namespace_digest[i] = static_cast<uint8_t>(i);
        h.content_digest[i] = static_cast<uint8_t>(0x80 + i);
    }
    return h;
}

uint8_t pattern(uint32_t layer, uint32_t plane, uint32_t head, uint64_t byte) {
    return static_cast<uint8_t>(1 + 61 * layer + 29 * plane + 13 * head + byte);
}

GroupGeometry geometry_of(const Sample &s) {
    quire_group_desc group{};
    CanonicalHeader h = header_of(s);
    group.kind = h.group_kind;
    group.window = h.window;
    group.sink_tokens = h.sink_tokens;
    group.layer_count = kLayers;
    group.kv_heads = s.heads;
    group.k_head_dim = s.k_dim;
    group.v_head_dim = s.v_dim;
    group.k_dtype = s.k_dtype;
    group.v_dtype = s.v_dtype;
    group.k_scale = s.k_scale;
    group.v_scale = s.v_scale;
    quire_cache_desc desc{};
    desc.block_tokens = kBlockTokens;
    desc.group_count = 1;
    desc.blocks = 4;
    Geometry geometry;
    EXPECT_TRUE(compute_geometry(desc, &group, 0, &geometry).ok());
    return geometry.groups[0];
}

// A shard's block in memory, with every byte set.
struct Held {
    Held(const Sample &s, uint32_t first_layer, uint32_t layers, uint32_t first_head,
         uint32_t heads) {
        Geometry whole;
        whole.block_tokens = kBlockTokens;
        whole.groups[0] = geometry_of(s);
        GroupGeometry group;
        EXPECT_TRUE(compute_part(whole, 0, layers, heads, &group).ok());
        part = part_of(describe_pool(group, kBlockTokens), first_layer, first_head);
        bytes.assign(static_cast<size_t>(group.block_stride), 0xEE);
    }
    void fill() {
        for (uint32_t layer = 0; layer < part.layer_count; ++layer) {
            for (uint32_t p = 0; p < kPlanes; ++p) {
                const PlaneLayout &plane = part.planes[p];
                for (uint64_t i = 0; i < plane.head_bytes * part.head_count; ++i) {
                    uint32_t head = static_cast<uint32_t>(i / plane.head_bytes);
                    bytes[plane.offset + layer * plane.layer_stride + i] = pattern(
                        part.first_layer + layer, p, part.first_head + head, i % plane.head_bytes);
                }
            }
        }
    }

    BlockPart part;
    Bytes bytes;
};

void copy_pieces(const BlockPart &from, const Bytes &source, const BlockPart &to, Bytes *target) {
    each_piece(from, to, [&](const PartPiece &piece) {
        ASSERT_LE(piece.from + piece.size_bytes, source.size());
        ASSERT_LE(piece.to + piece.size_bytes, target->size());
        std::memcpy(target->data() + piece.to, source.data() + piece.from, piece.size_bytes);
    });
}

// One f32 per head.
void fill_static(const CanonicalBlock &block, Bytes *bytes) {
    const CanonicalHeader &h = block.header();
    for (uint32_t p : {uint32_t{kPlaneKScale}, uint32_t{kPlaneVScale}}) {
        uint32_t kind = p == kPlaneKScale ? h.k_scale : h.v_scale;
        const PlaneLayout &plane = block.part().planes[p];
        if (!is_static(kind) || plane.head_bytes == 0) continue;
        for (uint32_t layer = 0; layer < kLayers; ++layer) {
            for (uint32_t head = 0; head < h.head_count; ++head) {
                float value = 0.5f + static_cast<float>(layer) + static_cast<float>(p);
                if (kind == QUIRE_SCALE_HEAD) value += static_cast<float>(head) / 4;
                std::memcpy(bytes->data() + plane.offset + layer * plane.layer_stride +
                                head * plane.head_bytes,
                            &value, sizeof value);
            }
        }
    }
}

CanonicalBlock described(const CanonicalHeader &header) {
    CanonicalBlock block;
    Status status = CanonicalBlock::describe(header, &block);
    EXPECT_TRUE(status.ok()) << status.text;
    return block;
}

const quire_token kIds[kTokens] = {7, 0, 0xFFFFFFFE};

// The sample's bytes, written by shards that hold these ranges.
Bytes written(const Sample &s, const std::vector<std::array<uint32_t, 4>> &cuts) {
    CanonicalBlock block = described(header_of(s));
    Bytes out(block.size_bytes(), 0xDD);
    block.begin(kIds, out.data());
    for (const auto &cut : cuts) {
        Held held(s, cut[0], cut[1], cut[2], cut[3]);
        held.fill();
        copy_pieces(held.part, held.bytes, block.part(), &out);
    }
    fill_static(block, &out);
    block.seal(out.data());
    return out;
}

Bytes whole(const Sample &s) { return written(s, {{0, kLayers, 0, s.heads}}); }

std::string message(const Status &status) { return status.text != nullptr ? status.text : ""; }

Status opened(const Bytes &bytes) {
    CanonicalBlock block;
    return CanonicalBlock::open(bytes.data(), bytes.size(), &block);
}

// Writes the checksum that matches the changed bytes.
void reseal(Bytes *bytes) {
    CanonicalHeader h;
    std::memcpy(&h, bytes->data(), sizeof h);
    h.checksum = 0;
    std::memcpy(bytes->data(), &h, sizeof h);
    h.checksum = XXH3_64bits_withSeed(bytes->data() + sizeof h, bytes->size() - sizeof h,
                                      XXH3_64bits(&h, sizeof h));
    std::memcpy(bytes->data(), &h, sizeof h);
}

TEST(Canonical, golden_file_of_every_type_is_what_is_written_and_is_read) {
    for (const Sample &s : kSamples) {
        Bytes bytes = whole(s);
        std::string path = quire::tests::place(QUIRE_GOLDEN) + "/" + s.name + ".block";
        if (std::getenv("QUIRE_WRITE_GOLDEN") != nullptr) {
            std::ofstream(path, std::ios::binary)
                .write(reinterpret_cast<const char *>(bytes.data()),
                       static_cast<std::streamsize>(bytes.size()));
        }
        std::ifstream file(path, std::ios::binary);
        Bytes golden{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
        EXPECT_EQ(golden, bytes) << path;
        CanonicalBlock block;
        Status status = CanonicalBlock::open(golden.data(), golden.size(), &block);
        ASSERT_TRUE(status.ok()) << s.name << ": " << status.text;
        EXPECT_TRUE(check_of_group(block.header(), 1, geometry_of(s), kBlockTokens).ok());
        EXPECT_EQ(block.size_bytes(), golden.size());
    }
}

TEST(Canonical, shards_of_any_cut_write_the_same_bytes) {
    for (const Sample &s : kSamples) {
        Bytes one = whole(s);
        EXPECT_EQ(written(s, {{0, 1, 0, s.heads}, {1, 2, 0, s.heads}}), one) << s.name;
        if (s.heads == 1) continue;
        EXPECT_EQ(written(s, {{0, kLayers, 0, 1}, {0, kLayers, 1, 1}}), one) << s.name;
        EXPECT_EQ(written(s, {{0, 2, 0, 1}, {0, 2, 1, 1}, {2, 1, 0, 2}}), one) << s.name;
    }
}

TEST(Canonical, a_pool_gets_back_what_it_wrote_up_to_the_last_token) {
    for (const Sample &s : kSamples) {
        Bytes bytes = whole(s);
        CanonicalBlock block = described(header_of(s));
        Held wanted(s, 0, kLayers, 0, s.heads), got(s, 0, kLayers, 0, s.heads);
        wanted.fill();
        copy_pieces(block.part(), bytes, got.part, &got.bytes);
        for (uint32_t layer = 0; layer < kLayers; ++layer) {
            for (const PlaneLayout &plane : got.part.planes) {
                uint64_t row = plane.head_bytes / kBlockTokens;
                for (uint64_t i = 0; i < plane.head_bytes * s.heads; ++i) {
                    uint64_t at = plane.offset + layer * plane.layer_stride + i;
                    bool used = i % plane.head_bytes < row * kTokens;
                    ASSERT_EQ(got.bytes[at], used ? wanted.bytes[at] : 0) << s.name << " " << at;
                }
            }
        }
    }
}

TEST(Canonical, a_part_says_which_layers_and_heads_it_is) {
    const Sample &s = kSamples[0];
    CanonicalHeader h = header_of(s);
    h.first_layer = 1;
    h.layer_count = 2;
    h.first_head = 1;
    h.head_count = 1;
    CanonicalBlock part = described(h);
    Bytes bytes(part.size_bytes());
    part.begin(kIds, bytes.data());
    Held held(s, 0, kLayers, 0, s.heads);
    held.fill();
    copy_pieces(held.part, held.bytes, part.part(), &bytes);
    part.seal(bytes.data());
    EXPECT_TRUE(opened(bytes).ok());
    uint64_t first = part.part().planes[kPlaneK].offset;
    EXPECT_EQ(first % kCanonicalAlignment, 0u);
    EXPECT_EQ(bytes[first], pattern(1, kPlaneK, 1, 0));
    EXPECT_LT(bytes.size(), whole(s).size());
}

TEST(Canonical, what_is_damaged_or_foreign_is_refused_in_words) {
    const Bytes good = whole(kSamples[3]);
    auto damaged = [&](size_t at, uint8_t byte, bool resealed) {
        Bytes bad = good;
        bad[at] = byte;
        if (resealed) reseal(&bad);
        return opened(bad);
    };
    EXPECT_NE(message(damaged(0, 'X', true)).find("magic"), std::string::npos);
    EXPECT_EQ(damaged(8, 2, true).code, QUIRE_E_INCOMPATIBLE);
    EXPECT_NE(message(damaged(12, 1, true)).find("order"), std::string::npos);
    EXPECT_NE(message(damaged(300, 0x5A, false)).find("checksum"), std::string::npos);
    EXPECT_EQ(damaged(36, 9, true).code, QUIRE_E_ARG);   // kind
    EXPECT_EQ(damaged(52, 5, true).code, QUIRE_E_ARG);   // more tokens than slots
    EXPECT_EQ(damaged(56, 3, true).code, QUIRE_E_ARG);   // position within a block
    EXPECT_EQ(damaged(68, 1, true).code, QUIRE_E_ARG);   // layers past the last
    EXPECT_EQ(damaged(104, 0, true).code, QUIRE_E_ARG);  // codes without a scale
    EXPECT_EQ(damaged(112, 3, true).code, QUIRE_E_ARG);  // rope
    EXPECT_EQ(damaged(192, 1, true).code, QUIRE_E_ARG);  // reserved
    EXPECT_EQ(damaged(72, 2, true).code, QUIRE_E_ARG);   // fewer layers than bytes
    Bytes shorter(good.begin(), good.end() - 1);
    EXPECT_EQ(opened(shorter).code, QUIRE_E_ARG);
    EXPECT_EQ(opened(Bytes(255)).code, QUIRE_E_ARG);
    Bytes unnamed = good;
    std::memset(unnamed.data() + sizeof(CanonicalHeader), 0xFF, sizeof(quire_token));
    reseal(&unnamed);
    EXPECT_NE(message(opened(unnamed)).find("no id"), std::string::npos);
    CanonicalBlock none;
    EXPECT_EQ(CanonicalBlock::open(nullptr, 0, &none).code, QUIRE_E_ARG);
    Status other =
        check_of_group(header_of(kSamples[3]), 1, geometry_of(kSamples[0]), kBlockTokens);
    EXPECT_NE(message(other).find("k_dtype"), std::string::npos);
}

// Whatever the header says, even with a correct checksum: either the block is refused or every
// plane lies within the bytes.
TEST(Canonical, a_reader_survives_any_bytes) {
    std::mt19937 random(11);
    uint64_t taken = 0, refused = 0;
    for (uint32_t round = 0; round < 60000; ++round) {
        const Sample &s = kSamples[random() % std::size(kSamples)];
        Bytes bytes = whole(s);
        uint32_t changes = 1 + random() % 4;
        for (uint32_t i = 0; i < changes; ++i) {
            size_t at = random() % (random() % 4 == 0 ? bytes.size() : sizeof(CanonicalHeader));
            uint32_t value = random() % 3 == 0 ? 0xFFFFFFFF : random() % 70;
            if (random() % 2 == 0 && at + 4 <= bytes.size()) {
                std::memcpy(bytes.data() + at / 4 * 4, &value, 4);
            } else {
                bytes[at] = static_cast<uint8_t>(random());
            }
        }
        if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 64));
        if (bytes.size() >= sizeof(CanonicalHeader)) {
            uint64_t size_bytes = bytes.size();
            if (random() % 2 == 0) std::memcpy(bytes.data() + 16, &size_bytes, 8);
            if (random() % 8 != 0) reseal(&bytes);
        }
        CanonicalBlock block;
        if (!CanonicalBlock::open(bytes.data(), bytes.size(), &block).ok()) {
            ++refused;
            continue;
        }
        ++taken;
        for (const PlaneLayout &plane : block.part().planes) {
            if (plane.head_bytes == 0) continue;
            uint64_t end = plane.offset + (block.part().layer_count - 1) * plane.layer_stride +
                           block.part().head_count * plane.head_bytes;
            ASSERT_LE(end, bytes.size());
        }
    }
    EXPECT_GT(taken, 1000u);
    EXPECT_GT(refused, 10000u);
}

}  // namespace
