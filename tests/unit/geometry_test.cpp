// SPDX-License-Identifier: Apache-2.0
//
// geometry: strides and sizes, and every description that is refused.

#include "core/base/geometry.hpp"

#include <gtest/gtest.h>

#include "core/replica/log.hpp"
#include "host.hpp"

namespace {

using namespace quire;

struct Described {
    quire_cache_desc cache{};
    quire_group_desc groups[2] = {};

    Described() {
        cache.blocks = 16;
        cache.group_count = 1;
        for (quire_group_desc &g : groups)
            g.layer_count = g.kv_heads = g.k_head_dim = g.v_head_dim = 2;
    }
    quire_status compute(Geometry *out, uint64_t free_bytes = 0) {
        return compute_geometry(cache, groups, free_bytes, out).code;
    }
    quire_status compute() {
        Geometry out;
        return compute(&out);
    }
};

TEST(Geometry, a_block_is_layer_then_k_and_v_then_head_then_token) {
    Described d;
    d.groups[0].layer_count = 3;
    d.groups[0].kv_heads = 4;
    d.groups[0].k_head_dim = 8;
    d.groups[0].v_head_dim = 16;
    d.groups[0].k_dtype = QUIRE_DTYPE_F32;
    d.groups[0].v_dtype = QUIRE_DTYPE_BF16;
    Geometry out;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    const GroupGeometry &g = out.groups[0];
    EXPECT_EQ(g.k_token_stride, 8 * 4);
    EXPECT_EQ(g.k_head_stride, 16 * 8 * 4);
    EXPECT_EQ(g.v_offset, 4 * 16 * 8 * 4);
    EXPECT_EQ(g.v_head_stride, 16 * 16 * 2);
    EXPECT_EQ(g.layer_stride, 4 * 16 * 8 * 4 + 4 * 16 * 16 * 2);
    EXPECT_EQ(g.block_stride, 3 * g.layer_stride);
}

// Three layers of four heads, blocks of 16 tokens.
Described with_codes(uint32_t k_dtype, uint32_t v_dtype, uint32_t k_scale, uint32_t v_scale) {
    Described d;
    quire_group_desc &g = d.groups[0];
    g.layer_count = 3;
    g.kv_heads = 4;
    g.k_head_dim = 8;
    g.v_head_dim = 6;
    g.k_dtype = k_dtype;
    g.v_dtype = v_dtype;
    g.k_scale = k_scale;
    g.v_scale = v_scale;
    return d;
}

TEST(Geometry, scales_of_tokens_lie_behind_k_and_v_in_their_layer) {
    Described d = with_codes(QUIRE_DTYPE_I8, 0, QUIRE_SCALE_TOKEN_HEAD, 0);
    Geometry out;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    const GroupGeometry &g = out.groups[0];
    EXPECT_EQ(g.v_dtype, uint32_t{QUIRE_DTYPE_I8});
    EXPECT_EQ(g.v_scale, uint32_t{QUIRE_SCALE_TOKEN_HEAD});
    EXPECT_EQ(g.k_token_stride, 8);
    EXPECT_EQ(g.v_offset, 4 * 16 * 8);
    EXPECT_EQ(g.k_scale_offset, 4 * 16 * (8 + 6));
    EXPECT_EQ(g.scale_head_stride, 16 * 4);
    EXPECT_EQ(g.v_scale_offset, g.k_scale_offset + 4 * 16 * 4);
    EXPECT_EQ(g.layer_stride, g.v_scale_offset + 4 * 16 * 4);
    EXPECT_EQ(g.block_stride, 3 * g.layer_stride);
}

TEST(Geometry, two_elements_of_four_bits_share_a_byte) {
    Described d = with_codes(QUIRE_DTYPE_F16, QUIRE_DTYPE_I4, 0, QUIRE_SCALE_TOKEN_HEAD);
    Geometry out;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    const GroupGeometry &g = out.groups[0];
    EXPECT_EQ(g.v_token_stride, 3);
    EXPECT_EQ(g.v_head_stride, 16 * 3);
    EXPECT_EQ(g.k_scale_offset, 0) << "K holds values";
    EXPECT_EQ(g.v_scale_offset, 4 * 16 * (8 * 2 + 3));
    EXPECT_EQ(g.layer_stride, g.v_scale_offset + 4 * 16 * 4);
    d.groups[0].v_head_dim = 7;
    EXPECT_EQ(d.compute(), QUIRE_E_ARG);
}

TEST(Geometry, every_plane_begins_where_its_elements_may_lie) {
    // One token of one head: planes of 3, 5 and 4 bytes.
    Described d = with_codes(QUIRE_DTYPE_I8, QUIRE_DTYPE_F8_E5M2, QUIRE_SCALE_TOKEN_HEAD,
                             QUIRE_SCALE_TOKEN_HEAD);
    d.cache.block_tokens = d.groups[0].kv_heads = 1;
    d.groups[0].k_head_dim = 3;
    d.groups[0].v_head_dim = 6;
    Geometry out;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    EXPECT_EQ(out.groups[0].v_offset, 3);
    EXPECT_EQ(out.groups[0].k_scale_offset, 12) << "9, rounded up";
    EXPECT_EQ(out.groups[0].v_scale_offset, 16);
    EXPECT_EQ(out.groups[0].layer_stride, 20);
    d.groups[0].v_dtype = QUIRE_DTYPE_F32;
    d.groups[0].v_scale = 0;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    EXPECT_EQ(out.groups[0].v_offset, 4) << "3, rounded up";
    EXPECT_EQ(out.groups[0].k_scale_offset, 4 + 24);
    EXPECT_EQ(out.groups[0].layer_stride, 32);
}

TEST(Geometry, latent_row_has_one_scale) {
    Described d = with_codes(QUIRE_DTYPE_F8_E4M3FN, 0, QUIRE_SCALE_TOKEN_HEAD, 0);
    d.groups[0].kind = QUIRE_GROUP_LATENT;
    d.groups[0].kv_heads = 1;
    Geometry out;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    EXPECT_EQ(out.groups[0].v_offset, 0);
    EXPECT_EQ(out.groups[0].k_scale_offset, 16 * 8);
    EXPECT_EQ(out.groups[0].v_scale_offset, 16 * 8);
    EXPECT_EQ(out.groups[0].layer_stride, 16 * 8 + 16 * 4);
    d.groups[0].v_dtype = QUIRE_DTYPE_F8_E4M3FN;  // V's type given explicitly, the same as K's
    EXPECT_EQ(d.compute(), QUIRE_OK);
    d.groups[0].v_scale = QUIRE_SCALE_HEAD;
    EXPECT_EQ(d.compute(), QUIRE_E_ARG);
}

TEST(Geometry, a_type_and_scales_that_do_not_go_together_are_refused) {
    auto status = [](uint32_t k_dtype, uint32_t v_dtype, uint32_t k_scale, uint32_t v_scale) {
        return with_codes(k_dtype, v_dtype, k_scale, v_scale).compute();
    };
    constexpr uint32_t kOwn = QUIRE_SCALE_TOKEN_HEAD;
    for (uint32_t codes :
         {QUIRE_DTYPE_I8, QUIRE_DTYPE_I4, QUIRE_DTYPE_F8_E4M3FN, QUIRE_DTYPE_F8_E5M2}) {
        EXPECT_EQ(status(codes, 0, kOwn, 0), QUIRE_OK);
        EXPECT_EQ(status(codes, 0, 0, 0), QUIRE_E_ARG) << "unit scales are never assumed";
        EXPECT_EQ(status(codes, codes, kOwn, 0), QUIRE_E_ARG)
            << "V's type is given, but not its scale";
        EXPECT_EQ(status(codes, QUIRE_DTYPE_BF16, kOwn, 0), QUIRE_OK);
        EXPECT_EQ(status(0, codes, 0, kOwn), QUIRE_OK);
        EXPECT_EQ(status(codes, 0, QUIRE_SCALE_TENSOR, 0), QUIRE_OK);
        EXPECT_EQ(status(codes, 0, QUIRE_SCALE_HEAD, 0), QUIRE_OK);
        EXPECT_EQ(status(codes, codes, kOwn, QUIRE_SCALE_HEAD), QUIRE_OK);
        EXPECT_EQ(status(codes, 0, 4, 0), QUIRE_E_UNSUPPORTED) << "not known";
    }
    for (uint32_t values : {0, int{QUIRE_DTYPE_F32}, int{QUIRE_DTYPE_BF16}}) {
        EXPECT_EQ(status(values, 0, kOwn, 0), QUIRE_E_ARG);
        EXPECT_EQ(status(values, 0, 0, kOwn), QUIRE_E_ARG);
        EXPECT_EQ(status(values, values, 0, QUIRE_SCALE_TENSOR), QUIRE_E_ARG);
    }
    // The FNUZ floats are not these types.
    EXPECT_EQ(status((11 << 16) | (8 << 8) | 1, 0, kOwn, 0), QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(status((1 << 16) | (8 << 8) | 1, 0, kOwn, 0), QUIRE_E_UNSUPPORTED) << "unsigned";
}

TEST(Geometry, a_group_of_values_stands_beside_one_of_codes) {
    Described d = with_codes(QUIRE_DTYPE_I4, 0, QUIRE_SCALE_TOKEN_HEAD, 0);
    d.cache.group_count = 2;
    Geometry out;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    EXPECT_EQ(out.groups[0].layer_stride, 4 * 16 * (4 + 3) + 2 * 4 * 16 * 4);
    EXPECT_EQ(out.groups[1].layer_stride, 2 * 16 * (2 + 2) * 2)
        << "the same as without the other group";
    EXPECT_EQ(out.groups[1].scale_head_stride, 0);
}

TEST(Geometry, ranks_with_other_scales_are_of_another_geometry) {
    Described d = with_codes(QUIRE_DTYPE_I8, 0, QUIRE_SCALE_TOKEN_HEAD, 0);
    Geometry out;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    LayerInGroup places[3];
    ASSERT_TRUE(place_layers(nullptr, out, places).ok());
    Array<float> scales(test::host());
    auto digest_now = [&] { return digest_geometry(out, places, 8, scales); };
    uint64_t digest = digest_now();
    out.groups[0].k_scale = QUIRE_SCALE_HEAD;
    EXPECT_NE(digest_now(), digest);
    out.groups[0].k_scale = QUIRE_SCALE_TOKEN_HEAD;
    out.groups[0].v_scale = QUIRE_SCALE_HEAD;
    EXPECT_NE(digest_now(), digest);
    ASSERT_TRUE(scales.create(4));
    uint64_t of_zeros = digest_now();
    scales[3] = 0.25f;
    EXPECT_NE(digest_now(), of_zeros);
}

TEST(Geometry, strides_of_values_are_what_they_always_were) {
    // The plain product, whatever the types: K and V of one block without padding between them.
    for (uint32_t k : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
        for (uint32_t v : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
            Geometry out;
            ASSERT_EQ(with_codes(k, v, 0, 0).compute(&out), QUIRE_OK);
            int64_t k_plane = int64_t{4} * 16 * 8 * dtype_size_bytes(k);
            int64_t v_plane = int64_t{4} * 16 * 6 * dtype_size_bytes(v);
            EXPECT_EQ(out.groups[0].v_offset, k_plane);
            EXPECT_EQ(out.groups[0].layer_stride, k_plane + v_plane);
        }
    }
}

TEST(Geometry, dimensions_that_overflow_are_refused) {
    Described d;
    d.groups[0].k_head_dim = d.groups[0].kv_heads = 0xFFFFFFFF;
    EXPECT_EQ(d.compute(), QUIRE_E_LIMIT);
    d.groups[0].kv_heads = 1 << 20;
    d.groups[0].layer_count = 4096;
    EXPECT_EQ(d.compute(), QUIRE_E_LIMIT);
    d = Described();
    d.groups[0].k_head_dim = 1 << 30;
    d.cache.blocks = 0x7FFFFFFF;
    EXPECT_EQ(d.compute(), QUIRE_E_LIMIT);
    // The codes alone would fit, but not their scales.
    d = with_codes(QUIRE_DTYPE_I4, 0, QUIRE_SCALE_TOKEN_HEAD, 0);
    d.groups[0].k_head_dim = d.groups[0].v_head_dim = 2;
    d.groups[0].kv_heads = 0xFFFFFFFF;
    d.groups[0].layer_count = 4096;
    d.cache.block_tokens = 256;
    d.cache.blocks = 256;
    EXPECT_EQ(d.compute(), QUIRE_E_LIMIT);
}

TEST(Geometry, every_wrong_field_is_refused) {
    auto refused = [](auto change, quire_status expected) {
        Described d;
        change(&d);
        EXPECT_EQ(d.compute(), expected);
    };
    using D = Described *;
    refused([](D d) { d->cache.group_count = 0; }, QUIRE_E_ARG);
    refused([](D d) { d->cache.group_count = 17; }, QUIRE_E_ARG);
    refused([](D d) { d->cache.block_tokens = 4097; }, QUIRE_E_ARG);
    auto with_memory = [](D d, uint32_t block_tokens) {
        d->cache.shard_count = 1;
        d->cache.block_tokens = block_tokens;
    };
    refused([&](D d) { with_memory(d, 12); }, QUIRE_E_ARG);
    refused([&](D d) { with_memory(d, 512); }, QUIRE_E_ARG);
    refused([&](D d) { with_memory(d, 256); }, QUIRE_OK);
    refused([](D d) { d->cache.max_sequence_tokens = 0x80000000; }, QUIRE_E_ARG);
    refused([](D d) { d->cache.blocks = 0; }, QUIRE_E_ARG);
    refused([](D d) { d->cache.blocks = 1; }, QUIRE_E_ARG);
    refused([](D d) { d->cache.blocks = 0x80000000; }, QUIRE_E_ARG);
    refused([](D d) { d->cache.pool_bytes = 1 << 20; }, QUIRE_E_ARG);
    refused([](D d) { d->cache.host_bytes = d->cache.host_blocks = 64; }, QUIRE_E_ARG);
    refused([](D d) { d->groups[0].kind = 6; }, QUIRE_E_UNSUPPORTED);
    refused([](D d) { d->groups[0].kind = QUIRE_GROUP_WINDOW; }, QUIRE_E_ARG);
    refused([](D d) { d->groups[0].window = 4; }, QUIRE_E_ARG);
    refused([](D d) { d->groups[0].layer_count = 0; }, QUIRE_E_ARG);
    refused([](D d) { d->groups[0].layer_count = 4097; }, QUIRE_E_ARG);
    refused([](D d) { d->groups[0].kv_heads = 0; }, QUIRE_E_ARG);
    refused([](D d) { d->groups[0].k_head_dim = 0; }, QUIRE_E_ARG);
    refused([](D d) { d->groups[0].v_head_dim = 0; }, QUIRE_E_ARG);
    refused([](D d) { d->groups[0].k_dtype = 5; }, QUIRE_E_UNSUPPORTED);
}

// A window group of K and V beside rows of 132 bytes, as of an indexer: 128 codes and a scale.
Described with_opaque() {
    Described d;
    d.cache.group_count = 2;
    d.groups[0].kind = QUIRE_GROUP_WINDOW;
    d.groups[0].window = 8;
    d.groups[1] = quire_group_desc{};
    d.groups[1].layer_count = 3;
    d.groups[1].opaque_bytes = 132;
    return d;
}

TEST(Geometry, opaque_rows_take_as_many_bytes_as_the_caller_says) {
    Described d = with_opaque();
    Geometry out;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    EXPECT_EQ(out.groups[1].k_token_stride, 132);
    EXPECT_EQ(out.groups[1].layer_stride, 132 * 16);
    EXPECT_EQ(out.groups[1].block_stride, 3 * 132 * 16);
    EXPECT_TRUE(out.groups[1].full);
    // pool_bytes buys blocks of both groups.
    d.cache.blocks = 0;
    d.cache.pool_bytes = uint64_t{7} * (3 * 132 * 16 + 2 * 2 * 2 * 16 * 4);
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    EXPECT_EQ(out.groups[1].blocks, 7u);
    d.groups[1].opaque_bytes = 133;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    EXPECT_EQ(out.groups[1].blocks, 6u);
    // The largest of all that can be described does not overflow.
    d.cache.pool_bytes = 0;
    d.cache.blocks = 0x7FFFFFFF;
    d.groups[1].opaque_bytes = 0xFFFFFFFF;
    d.groups[1].layer_count = 4094;
    d.groups[1].block_tokens = 4096;
    EXPECT_EQ(d.compute(), QUIRE_E_LIMIT);
}

TEST(Geometry, nothing_describes_the_inside_of_an_opaque_row) {
    auto refused = [](auto change, quire_status expected) {
        Described d = with_opaque();
        change(&d.groups[1], &d.cache);
        EXPECT_EQ(d.compute(), expected);
    };
    using G = quire_group_desc *;
    using C = quire_cache_desc *;
    refused([](G, C) {}, QUIRE_OK);
    refused([](G g, C) { g->kv_heads = 1; }, QUIRE_E_ARG);
    refused([](G g, C) { g->k_head_dim = 1; }, QUIRE_E_ARG);
    refused([](G g, C) { g->v_head_dim = 1; }, QUIRE_E_ARG);
    refused([](G g, C) { g->k_dtype = QUIRE_DTYPE_F16; }, QUIRE_E_ARG);
    refused([](G g, C) { g->v_dtype = QUIRE_DTYPE_F16; }, QUIRE_E_ARG);
    refused([](G g, C) { g->k_scale = QUIRE_SCALE_TENSOR; }, QUIRE_E_ARG);
    refused([](G g, C) { g->v_scale = QUIRE_SCALE_TENSOR; }, QUIRE_E_ARG);
    refused([](G g, C) { g->kind = QUIRE_GROUP_LATENT; }, QUIRE_E_ARG);
    refused([](G g, C) { g->kind = QUIRE_GROUP_RECURRENT; }, QUIRE_OK);
    refused([](G, C c) { c->shard_count = 1; }, QUIRE_E_UNSUPPORTED);
}

TEST(Geometry, ranks_with_other_opaque_rows_are_of_another_geometry) {
    Described d = with_opaque();
    auto digest = [&] {
        Geometry out;
        EXPECT_EQ(d.compute(&out), QUIRE_OK);
        LayerInGroup places[5];
        EXPECT_TRUE(place_layers(nullptr, out, places).ok());
        return digest_geometry(out, places, 8, Array<float>(test::host()));
    };
    const uint64_t before = digest();
    d.groups[1].opaque_bytes = 133;
    EXPECT_NE(digest(), before);
}

TEST(Geometry, bytes_and_fractions_buy_whole_blocks_of_every_group) {
    Described d;
    d.cache.group_count = 2;
    d.cache.blocks = 0;
    Geometry out;
    uint64_t row =
        2 * 2 * 16 * (2 + 2) * 2 * 2;  // both groups: layers, heads, tokens, K and V, bytes
    d.cache.pool_bytes = 10 * row + row - 1;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    EXPECT_EQ(out.groups[0].blocks, 10u);
    EXPECT_EQ(out.groups[1].blocks, 10u);
    d.cache.pool_bytes = 2 * row - 1;
    EXPECT_EQ(d.compute(), QUIRE_E_ARG);
    d.cache.pool_bytes = 0;
    d.cache.pool_fraction = 0.5F;
    d.cache.reserve_bytes = 3 * row;
    ASSERT_EQ(d.compute(&out, 20 * row), QUIRE_OK);
    EXPECT_EQ(out.groups[0].blocks, 7u);
    EXPECT_EQ(d.compute(&out, 6 * row), QUIRE_E_ARG);
    for (float fraction : {-0.1F, 1.1F, __builtin_nanf("")}) {
        d.cache.pool_fraction = fraction;
        EXPECT_EQ(d.compute(&out, 20 * row), QUIRE_E_ARG);
    }
}

TEST(Geometry, layers_lie_where_they_are_said_to) {
    Described d;
    d.cache.group_count = 2;
    Geometry out;
    ASSERT_EQ(d.compute(&out), QUIRE_OK);
    LayerInGroup places[4];
    const uint32_t alternating[] = {1, 0, 1, 0};
    ASSERT_TRUE(place_layers(alternating, out, places).ok());
    EXPECT_EQ(places[2].group, 1u);
    EXPECT_EQ(places[2].layer, 1u);
    ASSERT_TRUE(place_layers(nullptr, out, places).ok());
    EXPECT_EQ(places[1].group, 0u);
    EXPECT_EQ(places[2].group, 1u);
    const uint32_t unequal[] = {0, 0, 0, 1}, unknown[] = {0, 0, 1, 2};
    EXPECT_EQ(place_layers(unequal, out, places).code, QUIRE_E_ARG);
    EXPECT_EQ(place_layers(unknown, out, places).code, QUIRE_E_ARG);
}

TEST(Geometry, without_memory_a_block_may_hold_any_number_of_tokens) {
    for (uint32_t tokens : {1u, 3u, 12u, 528u, 768u, 4096u}) {
        Described d;
        d.cache.block_tokens = tokens;
        Geometry out;
        ASSERT_EQ(d.compute(&out), QUIRE_OK);
        EXPECT_EQ(out.groups[0].size.tokens(), tokens);
        EXPECT_EQ(out.groups[0].k_head_stride, 2 * 2 * int64_t{tokens});
    }
}

TEST(Geometry, a_position_divides_into_block_and_slot) {
    constexpr uint32_t most = 0xFFFFFFFF;
    for (uint32_t tokens = 1; tokens <= kMaxBlockTokens; ++tokens) {
        const BlockSize size(tokens);
        const uint32_t last = most - most % tokens;  // the last multiple
        for (uint32_t near :
             {0u, tokens, 1000 * tokens, 0x80000000u - 0x80000000u % tokens, last}) {
            for (uint32_t at : {near - 1, near, near + 1, near + tokens / 2}) {
                ASSERT_EQ(size.block_of(at), at / tokens) << at << " / " << tokens;
                ASSERT_EQ(size.slot_of(at), at % tokens) << at << " / " << tokens;
                const uint32_t blocks = at / tokens + (at % tokens != 0 ? 1 : 0);
                ASSERT_EQ(size.blocks_of(at), blocks) << at << " / " << tokens;
            }
        }
    }
}

TEST(Geometry, a_gap_in_a_chunk_leaves_whole_chunks_of_whole_blocks) {
    GroupGeometry g;
    g.kind = QUIRE_GROUP_CHUNKED;
    g.windowed = true;
    for (uint32_t tokens : {1u, 3u, 4u, 12u, 48u}) {
        for (uint32_t window = 1; window < 60; ++window) {
            g.size = BlockSize(tokens);
            g.window = window;
            for (uint32_t n = 1; n < 200; ++n) {
                const uint32_t null_front = g.first_visible_block(n) + 1;
                uint32_t whole = n;
                while (whole % window != 0 || whole % tokens != 0) --whole;
                ASSERT_EQ(g.longest_whole(n, null_front, 200), whole) << window << ' ' << tokens;
            }
        }
    }
}

TEST(Geometry, a_state_reaches_back_to_the_newest_snapshot_alone) {
    GroupGeometry g;
    g.kind = QUIRE_GROUP_RECURRENT;
    g.windowed = g.recurrent = true;
    g.size = BlockSize(4);
    EXPECT_EQ(g.first_visible_block(0), 0u);
    EXPECT_EQ(g.first_visible_block(8), 1u) << "the snapshot that ends there";
    EXPECT_EQ(g.first_visible_block(9), 2u) << "the running state";
    EXPECT_EQ(g.needed_before(8), 1u);
    EXPECT_EQ(g.longest_whole(10, 2, 10), 10u) << "nothing was taken back";
    EXPECT_EQ(g.longest_whole(9, 1, 10), 8u);
    EXPECT_EQ(g.longest_whole(9, 2, 10), 0u) << "the snapshot at 8 is gone";
    EXPECT_EQ(g.longest_whole(3, 0, 10), 0u);
}

TEST(Geometry, a_window_sees_its_newest_tokens_and_its_own_is_among_them) {
    GroupGeometry g;
    g.windowed = true;
    g.size = BlockSize(8);
    for (uint32_t window = 1; window < 40; ++window) {
        g.window = window;
        for (uint32_t position = 0; position < 100; ++position) {
            uint32_t oldest = position + 1 > window ? position + 1 - window : 0;
            ASSERT_EQ(g.first_visible_block(position), oldest / 8);
        }
    }
}

}  // namespace
