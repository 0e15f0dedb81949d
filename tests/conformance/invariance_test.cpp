// SPDX-License-Identifier: Apache-2.0
//
// Batch invariance: the bits of a query's result depend on its q, its position and the keys and
// values before it, and on nothing else. What every backend owes instead is in metamorphic_test.

#include <functional>

#include "attention_case.hpp"
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
            spec.shape.flags = spec.shape.window = 0;
        }
        body(spec);
    }
}

AttentionResult run(Rig &rig, AttentionSpec spec, std::vector<RowSpec> rows) {
    spec.rows = std::move(rows);
    return AttentionCase(spec).run(rig);
}

bool is_causal(const AttentionSpec &spec) { return spec.shape.flags == 0; }

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

}  // namespace quire::conformance
