// SPDX-License-Identifier: Apache-2.0
//
// Batch invariance: the bits of a query's result depend on its q, its position and the keys and
// values before it, and on nothing else. What every backend owes instead is in metamorphic_test.

#include <functional>

#include "agreement.hpp"
#include "quire/attention.h"
#include "shapes.hpp"

namespace quire::conformance {

class InvarianceTest : public SubjectTest {
 protected:
    InvarianceTest() : SubjectTest(Needs::attention) {}
};

namespace {

// Shapes that this backend serves, each with its own content.
void for_each_shape(Rig &rig, const std::function<void(AttentionSpec)> &body) {
    uint32_t count = options().is_short ? 6 : 30;
    for (uint32_t seed = 1000; seed < 1000 + count; ++seed) {
        AttentionSpec spec = random_spec(seed);
        spec.rows.clear();
        spec.wants_lse = true;
        if (!is_offered(rig, spec.shape)) {
            quire_be_attention_query plain = plain_shape(rig);
            spec.shape = random_spec(seed, &plain).shape;
            spec.shape.flags = spec.shape.group_kind = spec.shape.window = 0;
        }
        spec.shape.flags |= QUIRE_ATTENTION_BATCH_INVARIANT;
        body(spec);
    }
    // What kernels with matrix instructions are made for.
    for (const quire_be_attention_query &shape : common_shapes()) {
        bool is_wanted =
            shape.q_dtype != QUIRE_DTYPE_F32 && (!options().is_short || shape.k_head_dim == 64);
        if (!is_wanted || !is_offered(rig, shape)) continue;
        AttentionSpec spec = random_spec(1000 + shape.k_head_dim, &shape);
        spec.rows.clear();
        spec.wants_lse = true;
        spec.shape.flags = QUIRE_ATTENTION_BATCH_INVARIANT;
        spec.shape.group_kind = spec.shape.window = 0;
        body(spec);
    }
}

AttentionResult run(Rig &rig, AttentionSpec spec, std::vector<RowSpec> rows) {
    spec.rows = std::move(rows);
    return AttentionCase(spec).run(rig);
}

bool is_causal(const AttentionSpec &spec) { return !spec.has(QUIRE_ATTENTION_NOT_CAUSAL); }

// Rows that are only there: one may share the prefix of the row before it.
RowSpec companion(const AttentionSpec &spec, Dice *dice, const std::vector<RowSpec> &rows) {
    RowSpec row;
    row.content = dice->roll(1, 9);
    row.length = static_cast<int32_t>(dice->roll(0, 150));
    auto most = static_cast<uint32_t>(row.length);
    row.new_tokens = static_cast<int32_t>(dice->pick({0u, 1u, dice->roll(0, std::min(most, 5u))}));
    row.new_tokens = std::min(row.new_tokens, row.length);
    row.masked_tokens = static_cast<int32_t>(dice->roll(0, 5));
    row.mask_first = static_cast<int32_t>(dice->roll(0, 150));
    fit_mask(spec, &row);
    if (rows.empty() || dice->roll(0, 1) == 0) return row;
    auto block = static_cast<int32_t>(spec.shape.block_tokens);
    row.shared_tokens = std::min(row.length, rows.back().length) / block * block;
    return row;
}

// The row in company; behind a twin it shares all but the last block with that. Returns its part of
// the result.
AttentionResult run_in_company(Rig &rig, AttentionSpec spec, RowSpec row, Dice *dice) {
    spec.pages_seed = dice->roll(0, UINT32_MAX);
    spec.layout = dice->roll(0, 1) == 0 ? Layout::head_major : Layout::token_major;
    spec.padding = dice->pick({0u, 1u, 3u});
    spec.tells_shared = dice->roll(0, 1) == 0;
    spec.shares_pages = dice->roll(0, 3) != 0;
    spec.rows.clear();
    for (uint32_t i = dice->roll(0, 2); i > 0; --i) {
        spec.rows.push_back(companion(spec, dice, spec.rows));
    }
    if (dice->roll(0, 1) == 0) {
        RowSpec twin = row;
        twin.new_tokens = std::min(row.length, 1);
        twin.masked_tokens = 0;
        fit_mask(spec, &twin);
        spec.rows.push_back(twin);
        auto block = static_cast<int32_t>(spec.shape.block_tokens);
        row.shared_tokens = row.length / block * block;
    }
    uint32_t first_token = 0;
    for (const RowSpec &before : spec.rows) first_token += static_cast<uint32_t>(before.new_tokens);
    spec.rows.push_back(row);
    for (uint32_t i = dice->roll(0, 2); i > 0; --i) {
        spec.rows.push_back(companion(spec, dice, spec.rows));
    }
    return slice(AttentionCase(spec).run(rig), spec, first_token,
                 static_cast<uint32_t>(row.new_tokens));
}

// One row of the variant, alone and in one go; then its tokens in random pieces, in random company.
void expect_schedule_gives_the_same_bits(Rig &rig, Rig &other, AttentionSpec spec, Dice *dice) {
    RowSpec whole;
    whole.length = static_cast<int32_t>(dice->roll(1, 140));
    whole.new_tokens = static_cast<int32_t>(
        dice->roll(1, std::min<uint32_t>(static_cast<uint32_t>(whole.length), 30)));
    whole.masked_tokens = static_cast<int32_t>(dice->roll(0, 12));
    whole.mask_first = static_cast<int32_t>(dice->roll(0, 160));
    fit_mask(spec, &whole);
    spec.wants_lse = true;
    spec.tells_shared = false;
    AttentionResult alone = run(rig, spec, {whole});
    AttentionResult pieces;
    // Masked tokens see each other: they stay together. So do all that see the whole context.
    int32_t together = is_causal(spec) ? whole.masked_tokens : whole.new_tokens;
    int32_t done = whole.length - whole.new_tokens;
    while (done < whole.length) {
        int32_t piece = static_cast<int32_t>(dice->roll(1, 20));
        if (done + piece > whole.length - together) piece = whole.length - done;
        done += piece;
        RowSpec row = whole;
        row.length = done;
        row.new_tokens = piece;
        if (done < whole.length) row.masked_tokens = 0;
        fit_mask(spec, &row);
        Rig &one = dice->roll(0, 1) == 0 ? rig : other;
        pieces = join(pieces, run_in_company(one, spec, row, dice));
    }
    EXPECT_TRUE(pieces == alone) << whole.length << "+" << whole.new_tokens << " ("
                                 << whole.masked_tokens << " masked); " << spec.text();
}

// A shape of the variant, most of them small.
bool find_schedule(Rig &rig, Variant variant, uint64_t seed, AttentionSpec *spec) {
    quire_be_attention_query plain = plain_shape(rig);
    *spec = random_variant(variant, seed, &plain);
    uint32_t group = std::min(2u, spec->shape.q_heads / spec->shape.kv_heads);
    spec->shape.kv_heads = std::min(2u, spec->shape.kv_heads);
    spec->shape.q_heads = spec->shape.kv_heads * group;
    if (seed % 8 == 0 && !find_variant(rig, variant, seed, spec)) return false;
    spec->shape.flags |= QUIRE_ATTENTION_BATCH_INVARIANT;
    return is_offered(rig, spec->shape);
}

}  // namespace

TEST_F(InvarianceTest, chunked_prefill_gives_the_bits_of_one_shot) {
    Rig rig;
    for_each_shape(rig, [&](const AttentionSpec &spec) {
        if (!is_causal(spec)) return;  // a later token is seen by earlier ones
        Dice dice(spec.seed);
        auto length = static_cast<int32_t>(dice.roll(100, 220));
        AttentionResult whole = run(rig, spec, {{0, length, length}});
        AttentionResult chunked;
        for (int32_t done = 0; done < length;) {
            int32_t chunk = std::min(static_cast<int32_t>(dice.roll(1, 90)), length - done);
            done += chunk;
            chunked = join(chunked, run(rig, spec, {{0, done, chunk}}));
        }
        EXPECT_TRUE(chunked == whole) << spec.text();
    });
}

TEST_F(InvarianceTest, decode_gives_the_bits_of_the_last_row_of_a_prefill) {
    Rig rig;
    for_each_shape(rig, [&](const AttentionSpec &spec) {
        for (int32_t length : {1, 2, 63, 64, 65, 129}) {
            auto count = static_cast<uint32_t>(length);
            AttentionResult prefill = run(rig, spec, {{0, length, length}});
            AttentionResult decode = run(rig, spec, {{0, length, 1}});
            EXPECT_TRUE(slice(prefill, spec, count - 1, 1) == decode)
                << length << "; " << spec.text();
        }
    });
}

TEST_F(InvarianceTest, row_gives_the_same_bits_alone_and_in_a_batch) {
    Rig rig;
    for_each_shape(rig, [&](const AttentionSpec &spec) {
        std::vector<RowSpec> rows = {{0, 70, 1},  {1, 130, 130}, {2, 5, 5},
                                     {3, 200, 1}, {4, 0, 1},     {5, 99, 17}};
        AttentionResult batch = run(rig, spec, rows);
        AttentionResult singles;
        for (const RowSpec &row : rows) singles = join(singles, run(rig, spec, {row}));
        EXPECT_TRUE(batch == singles) << spec.text();
    });
}

TEST_F(InvarianceTest, pages_and_layout_do_not_change_a_bit) {
    Rig rig;
    for_each_shape(rig, [&](AttentionSpec spec) {
        std::vector<RowSpec> rows = {{0, 150, 3}, {1, 40, 40}};
        AttentionResult first = run(rig, spec, rows);
        spec.pages_seed += 1;
        EXPECT_TRUE(run(rig, spec, rows) == first) << "pages; " << spec.text();
        spec.layout = spec.layout == Layout::head_major ? Layout::token_major : Layout::head_major;
        spec.padding += 2;
        EXPECT_TRUE(run(rig, spec, rows) == first) << "layout; " << spec.text();
    });
}

TEST_F(InvarianceTest, shared_pages_do_not_change_a_bit) {
    Rig rig;
    for_each_shape(rig, [&](const AttentionSpec &spec) {
        auto shared = static_cast<int32_t>(spec.shape.block_tokens * 2);
        int32_t length = shared + 40;
        AttentionSpec sharing = spec;
        sharing.rows = {{0, length, 2}, {0, length, 2, shared}, {0, length, 2, shared}};
        AttentionResult result = AttentionCase(sharing).run(rig);
        AttentionResult alone = run(rig, spec, {{0, length, 2}});
        for (uint32_t row = 0; row < 3; ++row) {
            EXPECT_TRUE(slice(result, spec, row * 2, 2) == alone) << row << "; " << spec.text();
        }
    });
}

TEST_F(InvarianceTest, block_size_does_not_change_a_bit) {
    Rig rig;
    for_each_shape(rig, [&](AttentionSpec spec) {
        std::vector<RowSpec> rows = {{0, 150, 3}, {1, 40, 40}};
        spec.shape.block_tokens = 16;
        if (!is_offered(rig, spec.shape)) return;
        AttentionResult first = run(rig, spec, rows);
        for (uint32_t block_tokens : {1u, 8u, 13u, 128u}) {
            spec.shape.block_tokens = block_tokens;
            if (!is_offered(rig, spec.shape)) continue;
            EXPECT_TRUE(run(rig, spec, rows) == first) << spec.text();
        }
    });
}

TEST_F(InvarianceTest, runs_and_thread_counts_do_not_change_a_bit) {
    Rig rig;
    Rig single(1);
    Rig many(5);
    for_each_shape(rig, [&](const AttentionSpec &spec) {
        std::vector<RowSpec> rows = {{0, 150, 30}, {1, 40, 40}, {2, 90, 1}};
        AttentionResult first = run(rig, spec, rows);
        EXPECT_TRUE(run(rig, spec, rows) == first) << "run to run; " << spec.text();
        EXPECT_TRUE(run(single, spec, rows) == first) << "one thread; " << spec.text();
        EXPECT_TRUE(run(many, spec, rows) == first) << "five threads; " << spec.text();
    });
}

TEST_F(InvarianceTest, random_schedules_give_the_bits_of_each_row_alone) {
    Rig rig;
    Rig other(3);
    uint32_t count = options().is_short ? 70 : 1'050;
    uint32_t run_count = 0;
    for (uint64_t seed = 1; seed <= count && !HasFailure(); ++seed) {
        Variant variant = kVariants[seed % std::size(kVariants)];
        AttentionSpec spec;
        if (!find_schedule(rig, variant, seed, &spec)) continue;
        SCOPED_TRACE(name_of(variant));
        Dice dice(seed);
        expect_schedule_gives_the_same_bits(rig, other, spec, &dice);
        ++run_count;
    }
    RecordProperty("schedules", std::to_string(run_count));
}

}  // namespace quire::conformance
