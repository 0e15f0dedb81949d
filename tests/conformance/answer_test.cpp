// SPDX-License-Identifier: Apache-2.0
//
// Answers: query_attention and plan_create agree on every shape that is queried.

#include <cstring>

#include "attention_case.hpp"
#include "shapes.hpp"

namespace quire::conformance {

class AnswerTest : public SubjectTest {
 protected:
    AnswerTest() : SubjectTest(Needs::attention) {}
};

namespace {

// The answer starts as garbage, so that a reason without a terminator shows.
void expect_agreement(Rig &rig, const quire_be_attention_query &shape) {
    quire_be_answer answer;
    std::memset(&answer, 0x5A, sizeof answer);
    answer.struct_size = sizeof answer;
    Error error;
    must(api().query_attention(rig.device(), &shape, &answer, &error), error);
    ASSERT_LE(answer.support, uint32_t{QUIRE_BE_SLOW});
    ASSERT_NE(memchr(answer.reason, 0, sizeof answer.reason), nullptr)
        << "the reason is not terminated";
    bool is_offered = answer.support != QUIRE_BE_NO;
    EXPECT_EQ(answer.reason[0] == 0, is_offered) << "only a no has a reason";
    if (is_offered) {
        EXPECT_EQ(answer.alignment & (answer.alignment - 1), 0u) << answer.alignment;
        EXPECT_GT(answer.alignment, 0u);
        EXPECT_LE(answer.alignment, 4096u) << "mem_alloc aligns to 4,096";
    }
    quire_be_plan_desc desc{};
    desc.struct_size = sizeof desc;
    desc.shape = shape;
    desc.max_rows = desc.max_query_tokens = desc.max_blocks_per_row = 4;
    AttentionSpec spec;
    spec.shape = shape;
    PlanOptions options(spec);
    options.put_into(&desc);
    quire_be_plan *plan = nullptr;
    quire_status status = api().plan_create(rig.device(), &desc, &plan, &error);
    EXPECT_EQ(status == QUIRE_OK, is_offered)
        << "query says " << (is_offered ? "yes" : answer.reason) << ", plan_create returns "
        << status;
    if (status == QUIRE_OK) api().plan_destroy(plan);
}

std::string text_of(const quire_be_attention_query &shape) {
    AttentionSpec spec;
    spec.shape = shape;
    std::string text = spec.text();
    return text.substr(text.find(": ") + 2, text.find(", rows") - text.find(": ") - 2);
}

}  // namespace

TEST_F(AnswerTest, query_and_plan_agree_on_every_shape_of_the_matrix) {
    Rig rig;
    auto index = static_cast<uint32_t>(options().seed);
    for (const SweptShape &swept : swept_shapes()) {
        if (swept.kind == Kind::write) continue;
        // Creating a plan may compile a kernel. 7 divides no dimension of the matrix.
        if (options().is_short && index++ % 7 != 0) continue;
        SCOPED_TRACE(text_of(swept.shape));
        expect_agreement(rig, swept.shape);
        if (HasFailure()) return;
    }
}

TEST_F(AnswerTest, query_and_plan_agree_on_random_shapes) {
    Rig rig;
    for (uint64_t seed : seeds(1, 400, 60)) {
        quire_be_attention_query shape = random_spec(seed).shape;
        if (seed % 2 == 0) {
            shape = random_variant(kVariants[seed % std::size(kVariants)], seed).shape;
        }
        if (seed % 4 == 1) put_types(random_codes(seed), &shape);
        if (seed % 13 == 0) shape.k_scale_kind = static_cast<uint32_t>(seed) / 13 % 6;
        if (seed % 3 == 0) shape.window = 9;  // with NOT_CAUSAL too
        if (seed % 11 == 0) shape.group_kind = static_cast<uint32_t>(seed) / 11 % 6;
        if (seed % 5 == 0) shape.q_heads += 1;
        if (seed % 7 == 0) shape.k_head_dim *= 3;
        SCOPED_TRACE(text_of(shape));
        expect_agreement(rig, shape);
        if (HasFailure()) return;
    }
}

TEST_F(AnswerTest, same_question_has_the_same_answer) {
    Rig rig;
    for (const SweptShape &swept : swept_shapes()) {
        Answer first = ask(rig, swept.shape);
        Answer second = ask(rig, swept.shape);
        ASSERT_EQ(first.support, second.support) << text_of(swept.shape);
        ASSERT_EQ(first.reason, second.reason) << text_of(swept.shape);
    }
}

TEST_F(AnswerTest, pool_that_takes_attention_takes_writes) {
    Rig rig;
    for (const SweptShape &swept : swept_shapes()) {
        if (swept.kind != Kind::causal || !is_offered(rig, swept.shape)) continue;
        quire_be_attention_query write = swept.shape;
        write.q_heads = write.q_dtype = 0;
        EXPECT_TRUE(is_offered(rig, write)) << text_of(swept.shape);
    }
}

}  // namespace quire::conformance
