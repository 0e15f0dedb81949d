// SPDX-License-Identifier: Apache-2.0
//
// Refusals of options: what attention.h does not define has no kernel. An option whose numbers or
// addresses are missing, or given without being requested, is refused and never ignored.

#include <cmath>
#include <limits>

#include "attention_case.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class OptionRefusalTest : public SubjectTest {
 protected:
    OptionRefusalTest() : SubjectTest(Needs::attention) {}
};

namespace {

using Shape = quire_be_attention_query;
using SpoilShape = void (*)(Shape &shape);

struct Undefined {
    const char *what;
    SpoilShape spoil;
};

void make_latent(Shape &s) {
    s.group_kind = QUIRE_GROUP_LATENT;
    s.kv_heads = 1;
}

void make_rope(Shape &s) {
    s.flags = QUIRE_BE_ATTENTION_ROPE;
    s.rotated_dim = s.k_head_dim;
}

void make_window(Shape &s, uint32_t kind) {
    s.group_kind = kind;
    s.window = 32;
}

const Undefined kUndefined[] = {
    {"not causal with a mask",
     [](Shape &s) {
         s.flags = QUIRE_ATTENTION_NOT_CAUSAL;
         s.flags |= QUIRE_ATTENTION_MASK;
     }},
    {"not causal in a window",
     [](Shape &s) {
         make_window(s, QUIRE_GROUP_WINDOW);
         s.flags = QUIRE_ATTENTION_NOT_CAUSAL;
     }},
    {"not causal in a chunk",
     [](Shape &s) {
         make_window(s, QUIRE_GROUP_CHUNKED);
         s.flags = QUIRE_ATTENTION_NOT_CAUSAL;
     }},
    {"causal in a cross group", [](Shape &s) { s.group_kind = QUIRE_GROUP_CROSS; }},
    {"a mask in a cross group",
     [](Shape &s) {
         s.group_kind = QUIRE_GROUP_CROSS;
         s.flags = QUIRE_ATTENTION_NOT_CAUSAL;
         s.flags |= QUIRE_ATTENTION_MASK;
     }},
    {"ALiBi in a cross group",
     [](Shape &s) {
         s.group_kind = QUIRE_GROUP_CROSS;
         s.flags = QUIRE_ATTENTION_NOT_CAUSAL;
         s.flags |= QUIRE_BE_ATTENTION_ALIBI;
     }},
    {"a rope in a cross group",
     [](Shape &s) {
         make_rope(s);
         s.group_kind = QUIRE_GROUP_CROSS;
         s.flags |= QUIRE_ATTENTION_NOT_CAUSAL;
     }},
    {"a window in a full group", [](Shape &s) { s.window = 9; }},
    {"a window group without a window", [](Shape &s) { s.group_kind = QUIRE_GROUP_WINDOW; }},
    {"a chunked group without a chunk", [](Shape &s) { s.group_kind = QUIRE_GROUP_CHUNKED; }},
    {"sink tokens in a full group", [](Shape &s) { s.sink_tokens = 4; }},
    {"sink tokens in a chunked group",
     [](Shape &s) {
         make_window(s, QUIRE_GROUP_CHUNKED);
         s.sink_tokens = 4;
     }},
    {"a group of no known kind", [](Shape &s) { s.group_kind = 99; }},
    {"a latent group of two heads", [](Shape &s) { s.group_kind = QUIRE_GROUP_LATENT; }},
    {"a latent V larger than K",
     [](Shape &s) {
         make_latent(s);
         s.v_head_dim = s.k_head_dim + 8;
     }},
    {"a latent group of two types",
     [](Shape &s) {
         make_latent(s);
         s.v_dtype = s.k_dtype == QUIRE_DTYPE_F16 ? QUIRE_DTYPE_BF16 : QUIRE_DTYPE_F16;
     }},
    {"a latent group of two kinds of scales",
     [](Shape &s) {
         make_latent(s);
         s.k_dtype = s.v_dtype = QUIRE_DTYPE_I8;
         s.k_scale_kind = QUIRE_SCALE_TOKEN_HEAD;
         s.v_scale_kind = QUIRE_SCALE_HEAD;
     }},
    {"values with a scale", [](Shape &s) { s.k_scale_kind = QUIRE_SCALE_HEAD; }},
    {"codes without a scale", [](Shape &s) { s.v_dtype = QUIRE_DTYPE_I8; }},
    {"a scale of no known kind",
     [](Shape &s) {
         s.k_dtype = QUIRE_DTYPE_F8_E4M3FN;
         s.k_scale_kind = 4;
     }},
    {"two elements in a byte, and an odd number of them",
     [](Shape &s) {
         s.v_dtype = QUIRE_DTYPE_I4;
         s.v_scale_kind = QUIRE_SCALE_TOKEN_HEAD;
         s.v_head_dim -= 1;
     }},
    {"a query of codes", [](Shape &s) { s.q_dtype = QUIRE_DTYPE_I8; }},
    {"a rope of no elements",
     [](Shape &s) {
         make_rope(s);
         s.rotated_dim = 0;
     }},
    {"a rope of an odd number of elements",
     [](Shape &s) {
         make_rope(s);
         s.rotated_dim -= 1;
     }},
    {"a rope larger than the head",
     [](Shape &s) {
         make_rope(s);
         s.rotated_dim += 2;
     }},
    {"a rope over the latent",
     [](Shape &s) {
         make_latent(s);
         make_rope(s);
     }},
    {"a pairing of no known kind",
     [](Shape &s) {
         make_rope(s);
         s.rope_pairing = 9;
     }},
    {"elements to turn, and no rope", [](Shape &s) { s.rotated_dim = 8; }},
};

// A plan with one option, for a test to corrupt.
struct GivenPlan {
    GivenPlan(Rig &rig, SpoilShape put) {
        desc.struct_size = sizeof desc;
        desc.shape = plain_shape(rig);
        put(desc.shape);
        desc.max_rows = desc.max_query_tokens = desc.max_blocks_per_row = 4;
        desc.soft_cap = (desc.shape.flags & QUIRE_BE_ATTENTION_SOFT_CAP) != 0 ? 30.0f : 0.0f;
        slopes.assign(desc.shape.q_heads, 0.5f);
        frequencies.assign(desc.shape.rotated_dim / 2, 0.1f);
        rope = {sizeof rope, 1.0f, frequencies.data()};
        if ((desc.shape.flags & QUIRE_BE_ATTENTION_ALIBI) != 0) desc.alibi_slopes = slopes.data();
        if ((desc.shape.flags & QUIRE_BE_ATTENTION_ROPE) != 0) desc.rope = &rope;
    }

    quire_be_plan_desc desc{};
    std::vector<float> slopes;
    std::vector<float> frequencies;
    quire_be_rope rope{};
};

struct SpoiltPlan {
    const char *what;
    SpoilShape put;
    quire_status expected;
    void (*spoil)(GivenPlan &plan);
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void put_nothing(Shape &) {}
void put_cap(Shape &s) { s.flags = QUIRE_BE_ATTENTION_SOFT_CAP; }
void put_alibi(Shape &s) { s.flags = QUIRE_BE_ATTENTION_ALIBI; }

const SpoiltPlan kSpoiltPlans[] = {
    {"a cap of 0", put_cap, QUIRE_E_ARG, [](GivenPlan &p) { p.desc.soft_cap = 0.0f; }},
    {"a cap below 0", put_cap, QUIRE_E_ARG, [](GivenPlan &p) { p.desc.soft_cap = -1.0f; }},
    {"a NaN cap", put_cap, QUIRE_E_ARG, [](GivenPlan &p) { p.desc.soft_cap = kNan; }},
    {"a cap that was not requested", put_nothing, QUIRE_E_ARG,
     [](GivenPlan &p) { p.desc.soft_cap = 30.0f; }},
    {"no slopes", put_alibi, QUIRE_E_ARG, [](GivenPlan &p) { p.desc.alibi_slopes = nullptr; }},
    {"a NaN slope", put_alibi, QUIRE_E_ARG, [](GivenPlan &p) { p.slopes[1] = kNan; }},
    {"slopes that were not requested", put_nothing, QUIRE_E_ARG,
     [](GivenPlan &p) { p.desc.alibi_slopes = p.slopes.data(); }},
    {"no rope", make_rope, QUIRE_E_ARG, [](GivenPlan &p) { p.desc.rope = nullptr; }},
    {"a rope that was not requested", put_nothing, QUIRE_E_ARG,
     [](GivenPlan &p) { p.desc.rope = &p.rope; }},
    {"a short rope", make_rope, QUIRE_E_STRUCT, [](GivenPlan &p) { p.rope.struct_size = 4; }},
    {"no frequencies", make_rope, QUIRE_E_ARG, [](GivenPlan &p) { p.rope.frequencies = nullptr; }},
    {"a NaN frequency", make_rope, QUIRE_E_ARG, [](GivenPlan &p) { p.frequencies[3] = kNan; }},
    {"a magnitude of 0", make_rope, QUIRE_E_ARG, [](GivenPlan &p) { p.rope.magnitude = 0.0f; }},
};

// A call with one option and correct arguments, for a test to corrupt.
struct GivenCall {
    GivenCall(Rig &rig, SpoilShape put) : plan_of(rig, put), memory(rig, 1 << 20), rig_(rig) {
        const Shape &shape = plan_of.desc.shape;
        pool = make_pool(shape, Layout::head_major, 1, 2, 0);
        pool.address = memory.address();
        uint64_t at = memory.address() + (1 << 19);
        auto next = [&at] { return at += 1 << 15; };
        int64_t kv_stride = int64_t{shape.kv_heads} * shape.k_head_dim;
        int64_t q_stride = int64_t{shape.q_heads} * shape.k_head_dim;
        args.struct_size = sizeof args;
        args.pool = &pool;
        args.q = next();
        args.out = next();
        args.block_table = next();
        args.lengths = next();
        args.cu_q = next();
        args.q_token_stride = args.out_token_stride = q_stride;
        args.block_table_stride = args.row_count = args.query_tokens = 1;
        if ((shape.flags & QUIRE_ATTENTION_SINK_LOGITS) != 0) args.sinks = next();
        if ((shape.flags & QUIRE_ATTENTION_MASK) != 0) {
            args.mask = next();
            args.mask_rows = next();
            args.mask_first = next();
            args.positions = next();
        }
        write.struct_size = sizeof write;
        write.token_count = 1;
        write.dtype = QUIRE_DTYPE_F32;
        write.pool = &pool;
        write.k = next();
        write.v = next();
        write.slots = next();
        write.k_token_stride = write.v_token_stride = kv_stride;
        Error error;
        must(api().plan_create(rig.device(), &plan_of.desc, &plan, &error), error);
        write.plan = plan;
        write.positions = next();
        write.q = args.q;
        write.q_token_stride = q_stride;
    }
    GivenCall(const GivenCall &) = delete;
    GivenCall &operator=(const GivenCall &) = delete;
    ~GivenCall() { api().plan_destroy(plan); }

    quire_status attend(Error *error) { return api().attention(rig_.queue(), plan, &args, error); }
    quire_status run_write(Error *error) { return api().kv_write(rig_.queue(), &write, error); }

    GivenPlan plan_of;
    Memory memory;
    quire_be_pool pool{};
    quire_be_attention args{};
    quire_be_kv_write write{};
    quire_be_plan *plan = nullptr;

 private:
    Rig &rig_;
};

struct SpoiltCall {
    const char *what;
    SpoilShape put;
    void (*spoil)(GivenCall &call);
};

void put_sinks(Shape &s) { s.flags = QUIRE_ATTENTION_SINK_LOGITS; }
void put_mask(Shape &s) { s.flags = QUIRE_ATTENTION_MASK; }

const SpoiltCall kSpoiltCalls[] = {
    {"no sinks", put_sinks, [](GivenCall &c) { c.args.sinks = 0; }},
    {"sinks between elements", put_sinks, [](GivenCall &c) { c.args.sinks += 2; }},
    {"sinks that were not requested", put_nothing, [](GivenCall &c) { c.args.sinks = c.args.q; }},
    {"a mask that was not requested", put_nothing, [](GivenCall &c) { c.args.mask = c.args.q; }},
    {"no mask rows", put_mask, [](GivenCall &c) { c.args.mask_rows = 0; }},
    {"no first keys", put_mask, [](GivenCall &c) { c.args.mask_first = 0; }},
    {"no positions", put_mask, [](GivenCall &c) { c.args.positions = 0; }},
    {"a mask between elements", put_mask, [](GivenCall &c) { c.args.mask += 1; }},
    {"shared prefixes between elements", put_nothing,
     [](GivenCall &c) { c.args.shared_prefix = c.args.q + 2; }},
    {"a pool of another kind", put_nothing,
     [](GivenCall &c) { c.pool.group_kind = QUIRE_GROUP_WINDOW; }},
};

const SpoiltCall kSpoiltWrites[] = {
    {"no positions", make_rope, [](GivenCall &c) { c.write.positions = 0; }},
    {"positions between elements", make_rope, [](GivenCall &c) { c.write.positions += 2; }},
    {"q between elements", make_rope, [](GivenCall &c) { c.write.q += 1; }},
    {"q stride", make_rope, [](GivenCall &c) { c.write.q_token_stride -= 1; }},
    {"a pool of other heads", make_rope, [](GivenCall &c) { c.pool.kv_heads = 1; }},
    {"a pool of another kind", make_rope,
     [](GivenCall &c) { c.pool.group_kind = QUIRE_GROUP_WINDOW; }},
};

// Latent pools whose V is not where it must be.
const SpoiltCall kSpoiltLatents[] = {
    {"V after K", make_latent, [](GivenCall &c) { c.pool.v_offset = 16; }},
    {"V's own stride", make_latent, [](GivenCall &c) { c.pool.v_token_stride /= 2; }},
    {"V larger than K", make_latent, [](GivenCall &c) { c.pool.v_head_dim += 8; }},
};

bool is_offered_with(Rig &rig, SpoilShape put) {
    Shape shape = plain_shape(rig);
    put(shape);
    return is_offered(rig, shape);
}

}  // namespace

TEST_F(OptionRefusalTest, what_is_not_defined_has_no_kernel_and_the_plan_says_the_same) {
    Rig rig;
    for (const Undefined &one : kUndefined) {
        SCOPED_TRACE(one.what);
        GivenPlan given(rig, one.spoil);
        Answer answer = ask(rig, given.desc.shape);
        EXPECT_EQ(answer.support, uint32_t{QUIRE_BE_NO});
        quire_be_plan *plan = nullptr;
        Error error;
        expect_refused(api().plan_create(rig.device(), &given.desc, &plan, &error), error,
                       QUIRE_E_UNSUPPORTED);
        EXPECT_EQ(plan, nullptr);
        EXPECT_EQ(answer.reason, error.message);
    }
}

TEST_F(OptionRefusalTest, option_of_a_plan_is_given_when_asked_for_and_only_then) {
    Rig rig;
    for (const SpoiltPlan &one : kSpoiltPlans) {
        if (!is_offered_with(rig, one.put)) continue;
        SCOPED_TRACE(one.what);
        GivenPlan given(rig, one.put);
        one.spoil(given);
        quire_be_plan *plan = nullptr;
        Error error;
        expect_refused(api().plan_create(rig.device(), &given.desc, &plan, &error), error,
                       one.expected);
        EXPECT_EQ(plan, nullptr);
    }
}

TEST_F(OptionRefusalTest, array_of_a_call_is_given_when_planned_for_and_only_then) {
    Rig rig;
    for (const SpoiltCall &one : kSpoiltCalls) {
        if (!is_offered_with(rig, one.put)) continue;
        SCOPED_TRACE(one.what);
        GivenCall call(rig, one.put);
        one.spoil(call);
        Error error;
        expect_refused(call.attend(&error), error, QUIRE_E_ARG);
    }
}

TEST_F(OptionRefusalTest, rope_needs_positions_and_a_pool_like_its_plan) {
    Rig rig;
    if (!is_offered_with(rig, make_rope)) GTEST_SKIP() << "no rope is offered";
    for (const SpoiltCall &one : kSpoiltWrites) {
        SCOPED_TRACE(one.what);
        GivenCall call(rig, one.put);
        one.spoil(call);
        Error error;
        expect_refused(call.run_write(&error), error, QUIRE_E_ARG);
    }
    GivenCall call(rig, make_rope);
    Error error;
    EXPECT_EQ(call.run_write(&error), QUIRE_OK) << error.message;
    rig.sync();
    Rig other;
    GivenCall elsewhere(other, make_rope);
    call.write.plan = elsewhere.plan;
    expect_refused(call.run_write(&error), error, QUIRE_E_ARG);
    expect_refused(api().attention(rig.queue(), elsewhere.plan, &call.args, &error), error,
                   QUIRE_E_ARG);
}

TEST_F(OptionRefusalTest, latent_pool_whose_v_is_not_its_k_is_refused) {
    Rig rig;
    if (!is_offered_with(rig, make_latent)) GTEST_SKIP() << "no latent group is offered";
    for (const SpoiltCall &one : kSpoiltLatents) {
        SCOPED_TRACE(one.what);
        GivenCall call(rig, one.put);
        one.spoil(call);
        Error error;
        expect_refused(call.attend(&error), error, QUIRE_E_ARG);
        call.write.plan = nullptr;
        Error another;
        expect_refused(call.run_write(&another), another, QUIRE_E_ARG);
    }
}

}  // namespace quire::conformance
