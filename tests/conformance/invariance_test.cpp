// SPDX-License-Identifier: Apache-2.0
//
// Batch invariance: the bits of a query's result depend on its q, its position and the keys and
// values before it, and on nothing else. metamorphic_test has what every backend owes.

#include <cmath>
#include <functional>

#include "agreement.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class InvarianceTest : public SubjectTest {
 protected:
    InvarianceTest() : SubjectTest(Needs::attention) {}
};

namespace {

// Shapes that this backend serves, each with its own content.
void for_each_shape(Rig &rig, const std::function<void(AttentionSpec)> &body) {
    for (uint64_t seed : seeds(1000, 30, 6)) {
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
    // The shapes that kernels with matrix instructions are made for.
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
        if (shape.q_dtype != QUIRE_DTYPE_BF16 || shape.k_head_dim != 64) continue;
        constexpr uint32_t kOwn = QUIRE_SCALE_TOKEN_HEAD;
        uint32_t codes = QUIRE_DTYPE_F8_E4M3FN;
        put_types({codes, codes, kOwn, kOwn}, &spec.shape);
        if (is_offered(rig, spec.shape)) body(spec);
    }
}

AttentionResult run(Rig &rig, AttentionSpec spec, std::vector<RowSpec> rows) {
    spec.rows = std::move(rows);
    return AttentionCase(spec).run(rig);
}

bool is_causal(const AttentionSpec &spec) { return !spec.has(QUIRE_ATTENTION_NOT_CAUSAL); }

// Filler rows: one may share the prefix of the row before it.
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

// Runs the row in company; after a twin, it shares all but the last block with the twin. Returns
// the row's part of the result.
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

// Runs one row of the variant alone and all at once, then its tokens in random
// pieces in random company.
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
    // Masked tokens see each other, so they stay together. So do tokens that see the whole context.
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

// A shape of the variant; most are small.
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

// A shape for kernels with matrix instructions: 16 bits or codes, query heads over one KV head.
AttentionSpec prompt_spec(Variant variant, uint64_t seed) {
    constexpr uint32_t kTypes[] = {QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16};
    constexpr uint32_t kCodes[] = {0, 0, QUIRE_DTYPE_I8, QUIRE_DTYPE_F8_E4M3FN,
                                   QUIRE_DTYPE_F8_E5M2};
    constexpr uint32_t kHeads[] = {1, 8, 3, 4};
    constexpr uint32_t kDims[] = {16, 80, 128};
    quire_be_attention_query fit{};
    fit.q_dtype = fit.k_dtype = fit.v_dtype = kTypes[seed % 2];
    fit.k_head_dim = fit.v_head_dim = kDims[seed / 4 % 3];
    fit.block_tokens = 16;
    AttentionSpec spec = random_variant(variant, seed, &fit);
    spec.shape.kv_heads = 1;
    spec.shape.q_heads = kHeads[seed % 4];
    uint32_t code = kCodes[seed % 5];
    uint32_t scales = seed / 5 % 2 == 0 ? QUIRE_SCALE_TOKEN_HEAD : QUIRE_SCALE_HEAD;
    if (code != 0) put_types({code, code, scales, scales}, &spec.shape);
    spec.shape.flags |= QUIRE_ATTENTION_BATCH_INVARIANT;
    spec.tells_shared = false;
    spec.wants_lse = true;
    return spec;
}

// A row of slightly more than 64 queries, sometimes across place 512.
RowSpec prompt_of(const AttentionSpec &spec, Dice *dice) {
    RowSpec row;
    row.new_tokens = static_cast<int32_t>(64 / spec.shape.q_heads + dice->roll(2, 4));
    bool is_long = dice->roll(0, 5) == 0;
    row.length = is_long ? 514 : static_cast<int32_t>(dice->roll(0, 90)) + row.new_tokens;
    row.masked_tokens = static_cast<int32_t>(dice->roll(0, 40));
    row.mask_first = static_cast<int32_t>(dice->roll(0, 200));
    fit_mask(spec, &row);
    return row;
}

// The K and V of one place in a row, with one KV head.
struct PlantedRow {
    unsigned char *k;
    unsigned char *v;
};
PlantedRow row_at(AttentionCase *attention, uint32_t row, int32_t place) {
    const OracleInput &input = attention->input();
    const quire_be_pool &pool = input.pool;
    auto block_tokens = static_cast<int32_t>(pool.block_tokens);
    size_t first = size_t{row} * input.block_table_stride;
    int32_t id = input.block_table[first + static_cast<size_t>(place / block_tokens)];
    int64_t at = id * pool.block_stride + input.layer * pool.layer_stride;
    unsigned char *block = &attention->bytes()[static_cast<size_t>(at)];
    return {block + place % block_tokens * pool.k_token_stride,
            block + pool.v_offset + place % block_tokens * pool.v_token_stride};
}

// Runs the rows with planted values in `row`: V at `place` is NaN, the next V has an infinity, and
// the K after that is NaN.
AttentionResult run_planted(Rig &rig, AttentionSpec spec, std::vector<RowSpec> rows, uint32_t row,
                            int32_t place) {
    spec.rows = std::move(rows);
    AttentionCase attention(spec);
    auto row_bytes = static_cast<size_t>(spec.shape.k_head_dim) * 2;
    std::fill_n(row_at(&attention, row, place).v, row_bytes, static_cast<unsigned char>(0xFF));
    unsigned char *next = row_at(&attention, row, place + 1).v;
    uint32_t infinity = spec.shape.v_dtype == QUIRE_DTYPE_F16 ? 0x7C00 : 0x7F80;
    next[0] = static_cast<unsigned char>(infinity & 0xFF);
    next[1] = static_cast<unsigned char>(infinity >> 8);
    std::fill_n(row_at(&attention, row, place + 2).k, row_bytes, static_cast<unsigned char>(0xFF));
    return attention.run(rig);
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

// A backend may choose a kernel for prompts by the batch; the bits must be the same.
TEST_F(InvarianceTest, prompt_gives_the_same_bits_alone_and_among_short_rows) {
    Rig rig;
    for (uint64_t round : seeds(0, 10, 2)) {
        uint64_t seed = round * std::size(kVariants);
        for (Variant variant : kVariants) {
            AttentionSpec spec = prompt_spec(variant, ++seed);
            if (!is_offered(rig, spec.shape)) continue;
            Dice dice(seed);
            RowSpec prompt = prompt_of(spec, &dice);
            AttentionResult alone = run(rig, spec, {prompt});
            AttentionResult batch =
                run(rig, spec, {{1, 9, 1}, {2, 1, 1}, {3, 20, 1}, prompt, {4, 3, 1}});
            auto tokens = static_cast<uint32_t>(prompt.new_tokens);
            EXPECT_TRUE(slice(batch, spec, 3, tokens) == alone)
                << name_of(variant) << ": " << prompt.length << "+" << prompt.new_tokens << " ("
                << prompt.masked_tokens << " masked); " << spec.text();
        }
    }
}

TEST_F(InvarianceTest, short_row_gives_the_same_bits_alone_and_beside_a_prompt) {
    Rig rig;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        AttentionSpec spec = prompt_spec(Variant::causal, seed);
        if (spec.shape.q_heads == 1 || !is_offered(rig, spec.shape)) continue;
        auto prompt = static_cast<int32_t>(192 / spec.shape.q_heads);
        std::vector<RowSpec> rows = {{1, 70, 1}, {2, prompt, prompt}, {3, 5, 2}};
        AttentionResult batch = run(rig, spec, rows);
        AttentionResult first = run(rig, spec, {rows[0]}), last = run(rig, spec, {rows[2]});
        EXPECT_TRUE(slice(batch, spec, 0, 1) == first) << spec.text();
        EXPECT_TRUE(slice(batch, spec, 1 + static_cast<uint32_t>(prompt), 2) == last)
            << spec.text();
    }
}

// A kernel for prompts loads keys that some of its queries see and others do not.
TEST_F(InvarianceTest, keys_that_are_no_numbers_touch_no_query_of_a_prompt_before_them) {
    Rig rig;
    uint32_t run_count = 0;
    constexpr uint64_t kSeeds[] = {0, 1, 5, 6};  // of f16, bf16, bf16 and f16
    for (uint64_t seed : kSeeds) {
        AttentionSpec spec = prompt_spec(Variant::causal, seed);
        if (seed == 1) spec.shape.q_heads = 16;  // all that a matrix has room for, of one token
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        Dice dice(seed);
        RowSpec prompt = prompt_of(spec, &dice);
        auto tokens = static_cast<uint32_t>(prompt.new_tokens);
        // Odd: kernels process an even number of tokens at once, so the
        // token before sees a different range.
        uint32_t before = tokens / 2 | 1u;
        int32_t place = prompt.length - prompt.new_tokens + static_cast<int32_t>(before);
        AttentionResult right = run(rig, spec, {prompt});
        AttentionResult alone = run_planted(rig, spec, {prompt}, 0, place);
        EXPECT_TRUE(slice(alone, spec, 0, before) == slice(right, spec, 0, before)) << spec.text();
        EXPECT_TRUE(std::isnan(alone.lse.back())) << "the NaN is not read; " << spec.text();
        std::vector<RowSpec> rows = {{1, 9, 1}, {2, 1, 1}, {3, 20, 1}, prompt, {4, 3, 1}};
        AttentionResult batch = run_planted(rig, spec, rows, 3, place);
        EXPECT_EQ(slice(batch, spec, 3, tokens).out, alone.out) << spec.text();
    }
    if (run_count == 0) GTEST_SKIP() << "the backend offers no such shape";
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
    uint32_t run_count = 0;
    for (uint64_t seed : seeds(1, 1'050, 70)) {
        if (HasFailure()) break;
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
