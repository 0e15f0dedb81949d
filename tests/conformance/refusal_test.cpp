// SPDX-License-Identifier: Apache-2.0
//
// Refusals of kv_write, plans and attention: each names the mistake, and nothing ran.

#include <functional>
#include <limits>

#include "attention_case.hpp"
#include "shapes.hpp"

namespace quire::conformance {

namespace {

constexpr uint32_t kUnknownType = (6 << 16) | (8 << 8) | 1;

// A small call with correct arguments, for tests to corrupt one at a time.
class GoodCall {
 public:
    explicit GoodCall(Rig &rig)
        : rig_(rig),
          memory_(rig, 4 << 20),
          shape(plain_shape(rig)),
          pool(make_pool(shape, Layout::head_major, 3, 8, 0)) {
        uint64_t pool_address = memory_.address();  // at most 786,432 bytes
        uint64_t place = pool_address + (1 << 20);
        auto next = [&place] { return place += 1 << 18; };
        pool.address = pool_address;
        int64_t kv_stride = int64_t{shape.kv_heads} * shape.k_head_dim;
        write = {sizeof write, 1,         2,         QUIRE_DTYPE_F32, &pool, next(), next(),
                 next(),       kv_stride, kv_stride, nullptr,         0,     0,      0};
        desc = {sizeof desc, 0, shape, 0.0f, 4, 4, 4, 0.0f, 0, nullptr, nullptr};
        int64_t q_stride = int64_t{shape.q_heads} * shape.k_head_dim;
        args = {sizeof args, 1,        &pool,    write.k, next(), next(), write.slots, next(),
                next(),      q_stride, q_stride, 4,       1,      1,      16,          0,
                0,           0,        0,        0,       0,      0};
        int32_t cu_q[] = {0, 1};
        rig.write(args.cu_q, cu_q, sizeof cu_q);
        int32_t length = 16;
        rig.write(args.lengths, &length, sizeof length);
        Error error;
        must(api().plan_create(rig.device(), &desc, &plan, &error), error);
    }
    GoodCall(const GoodCall &) = delete;
    GoodCall &operator=(const GoodCall &) = delete;
    ~GoodCall() { api().plan_destroy(plan); }

    quire_status run_write(Error *error) { return api().kv_write(rig_.queue(), &write, error); }
    quire_status run_attention(Error *error) {
        return api().attention(rig_.queue(), plan, &args, error);
    }

 private:
    Rig &rig_;
    Memory memory_;

 public:
    quire_be_attention_query shape;
    quire_be_pool pool;
    quire_be_kv_write write;
    quire_be_plan_desc desc;
    quire_be_attention args;
    quire_be_plan *plan = nullptr;
};

using Spoil = std::function<void(GoodCall &)>;

struct Spoilt {
    quire_status expected;
    const char *what;
    Spoil spoil;
};

// Mistakes in a pool are mistakes for both calls.
const Spoilt kSpoiltPools[] = {
    {QUIRE_E_STRUCT, "short pool", [](auto &c) { c.pool.struct_size = 8; }},
    {QUIRE_E_ARG, "no address", [](auto &c) { c.pool.address = 0; }},
    {QUIRE_E_ARG, "no blocks", [](auto &c) { c.pool.block_count = 0; }},
    {QUIRE_E_ARG, "no tokens in a block", [](auto &c) { c.pool.block_tokens = 0; }},
    {QUIRE_E_ARG, "no heads", [](auto &c) { c.pool.kv_heads = 0; }},
    {QUIRE_E_ARG, "no K dim", [](auto &c) { c.pool.k_head_dim = 0; }},
    {QUIRE_E_ARG, "no V dim", [](auto &c) { c.pool.v_head_dim = 0; }},
    {QUIRE_E_ARG, "negative stride", [](auto &c) { c.pool.block_stride = -64; }},
    {QUIRE_E_ARG, "past the end", [](auto &c) { c.pool.size_bytes -= 1; }},
    {QUIRE_E_ARG, "one block too many", [](auto &c) { c.pool.block_count += 1; }},
    {QUIRE_E_ARG, "overflowing stride",
     [](auto &c) { c.pool.block_stride = std::numeric_limits<int64_t>::max() - 15; }},
    {QUIRE_E_UNSUPPORTED, "K type", [](auto &c) { c.pool.k_dtype = kUnknownType; }},
    {QUIRE_E_UNSUPPORTED, "V type", [](auto &c) { c.pool.v_dtype = 0; }},
};

const Spoilt kSpoiltWrites[] = {
    {QUIRE_E_STRUCT, "short args", [](auto &c) { c.write.struct_size -= 1; }},
    {QUIRE_E_ARG, "no pool", [](auto &c) { c.write.pool = nullptr; }},
    {QUIRE_E_ARG, "layer", [](auto &c) { c.write.layer = 3; }},
    {QUIRE_E_UNSUPPORTED, "given type", [](auto &c) { c.write.dtype = kUnknownType; }},
    {QUIRE_E_ARG, "no k", [](auto &c) { c.write.k = 0; }},
    {QUIRE_E_ARG, "no v", [](auto &c) { c.write.v = 0; }},
    {QUIRE_E_ARG, "no slots", [](auto &c) { c.write.slots = 0; }},
    {QUIRE_E_ARG, "k between elements", [](auto &c) { c.write.k += 2; }},
    {QUIRE_E_ARG, "k stride", [](auto &c) { c.write.k_token_stride -= 1; }},
    {QUIRE_E_ARG, "v stride", [](auto &c) { c.write.v_token_stride *= -1; }},
};

const Spoilt kSpoiltAttentions[] = {
    {QUIRE_E_STRUCT, "short args", [](auto &c) { c.args.struct_size -= 1; }},
    {QUIRE_E_ARG, "no pool", [](auto &c) { c.args.pool = nullptr; }},
    {QUIRE_E_ARG, "layer", [](auto &c) { c.args.layer = 7; }},
    {QUIRE_E_ARG, "no q", [](auto &c) { c.args.q = 0; }},
    {QUIRE_E_ARG, "no out", [](auto &c) { c.args.out = 0; }},
    {QUIRE_E_ARG, "no table", [](auto &c) { c.args.block_table = 0; }},
    {QUIRE_E_ARG, "no lengths", [](auto &c) { c.args.lengths = 0; }},
    {QUIRE_E_ARG, "no cu_q", [](auto &c) { c.args.cu_q = 0; }},
    {QUIRE_E_ARG, "out between elements", [](auto &c) { c.args.out += 1; }},
    {QUIRE_E_ARG, "lse between elements", [](auto &c) { c.args.lse += 2; }},
    {QUIRE_E_ARG, "q stride", [](auto &c) { c.args.q_token_stride -= 1; }},
    {QUIRE_E_ARG, "out stride", [](auto &c) { c.args.out_token_stride *= -1; }},
    {QUIRE_E_ARG, "more rows than planned", [](auto &c) { c.args.row_count = 5; }},
    {QUIRE_E_ARG, "more tokens than planned", [](auto &c) { c.args.query_tokens = 5; }},
    {QUIRE_E_ARG, "pool of other heads", [](auto &c) { c.pool.kv_heads = 1; }},
    {QUIRE_E_ARG, "pool of another type",
     [](auto &c) {
         // A type of the same size or smaller, so that only the plan can detect it.
         bool is_bf16 = c.pool.k_dtype == QUIRE_DTYPE_BF16;
         c.pool.k_dtype = is_bf16 ? QUIRE_DTYPE_F16 : QUIRE_DTYPE_BF16;
     }},
};

const Spoilt kSpoiltPlans[] = {
    {QUIRE_E_STRUCT, "short desc", [](auto &c) { c.desc.struct_size -= 4; }},
    {QUIRE_E_STRUCT, "short shape", [](auto &c) { c.desc.shape.struct_size = 0; }},
    {QUIRE_E_UNSUPPORTED, "q type", [](auto &c) { c.desc.shape.q_dtype = kUnknownType; }},
    {QUIRE_E_UNSUPPORTED, "K type", [](auto &c) { c.desc.shape.k_dtype = kUnknownType; }},
    {QUIRE_E_UNSUPPORTED, "V type", [](auto &c) { c.desc.shape.v_dtype = kUnknownType; }},
    {QUIRE_E_UNSUPPORTED, "K dim", [](auto &c) { c.desc.shape.k_head_dim = 100'000; }},
    {QUIRE_E_UNSUPPORTED, "V dim", [](auto &c) { c.desc.shape.v_head_dim = 0; }},
    {QUIRE_E_UNSUPPORTED, "no KV heads", [](auto &c) { c.desc.shape.kv_heads = 0; }},
    {QUIRE_E_UNSUPPORTED, "uneven heads", [](auto &c) { c.desc.shape.q_heads = 5; }},
    {QUIRE_E_UNSUPPORTED, "no block", [](auto &c) { c.desc.shape.block_tokens = 0; }},
    {QUIRE_E_UNSUPPORTED, "flag", [](auto &c) { c.desc.shape.flags = 1u << 30; }},
    {QUIRE_E_ARG, "no q heads", [](auto &c) { c.desc.shape.q_heads = 0; }},
    {QUIRE_E_ARG, "scale", [](auto &c) { c.desc.scale = std::numeric_limits<float>::infinity(); }},
};

}  // namespace

class RefusalTest : public SubjectTest {
 protected:
    RefusalTest() : SubjectTest(Needs::attention) {}
};

TEST_F(RefusalTest, good_call_is_not_refused) {
    Rig rig;
    GoodCall call(rig);
    Error error;
    EXPECT_EQ(call.run_write(&error), QUIRE_OK) << error.message;
    EXPECT_EQ(call.run_attention(&error), QUIRE_OK) << error.message;
    rig.sync();
}

TEST_F(RefusalTest, pool_that_cannot_be_walked) {
    Rig rig;
    for (const Spoilt &one : kSpoiltPools) {
        SCOPED_TRACE(one.what);
        GoodCall call(rig);
        one.spoil(call);
        Error error;
        expect_refused(call.run_write(&error), error, one.expected);
        Error another;
        expect_refused(call.run_attention(&another), another, one.expected);
    }
}

TEST_F(RefusalTest, bad_kv_write) {
    Rig rig;
    for (const Spoilt &one : kSpoiltWrites) {
        SCOPED_TRACE(one.what);
        GoodCall call(rig);
        one.spoil(call);
        Error error;
        expect_refused(call.run_write(&error), error, one.expected);
    }
    GoodCall call(rig);
    Error error;
    expect_refused(api().kv_write(nullptr, &call.write, &error), error, QUIRE_E_ARG);
    expect_refused(api().kv_write(rig.queue(), nullptr, &error), error, QUIRE_E_ARG);
}

TEST_F(RefusalTest, bad_attention) {
    Rig rig;
    for (const Spoilt &one : kSpoiltAttentions) {
        SCOPED_TRACE(one.what);
        GoodCall call(rig);
        one.spoil(call);
        Error error;
        expect_refused(call.run_attention(&error), error, one.expected);
    }
    GoodCall call(rig);
    Error error;
    expect_refused(api().attention(nullptr, call.plan, &call.args, &error), error, QUIRE_E_ARG);
    expect_refused(api().attention(rig.queue(), nullptr, &call.args, &error), error, QUIRE_E_ARG);
    expect_refused(api().attention(rig.queue(), call.plan, nullptr, &error), error, QUIRE_E_ARG);
}

TEST_F(RefusalTest, plan_that_has_no_kernel) {
    Rig rig;
    for (const Spoilt &one : kSpoiltPlans) {
        SCOPED_TRACE(one.what);
        GoodCall call(rig);
        one.spoil(call);
        Error error;
        quire_be_plan *plan = nullptr;
        expect_refused(api().plan_create(rig.device(), &call.desc, &plan, &error), error,
                       one.expected);
        EXPECT_EQ(plan, nullptr);
    }
}

TEST_F(RefusalTest, field_of_a_later_version_is_refused_only_when_used) {
    Rig rig;
    GoodCall call(rig);
    struct {
        quire_be_kv_write known;
        uint64_t later;
    } args = {call.write, 0};
    args.known.struct_size = sizeof args;
    Error error;
    EXPECT_EQ(api().kv_write(rig.queue(), &args.known, &error), QUIRE_OK) << error.message;
    args.later = 1;
    expect_refused(api().kv_write(rig.queue(), &args.known, &error), error, QUIRE_E_STRUCT);
    rig.sync();
}

TEST_F(RefusalTest, query_answers_no_in_words_and_plan_says_the_same) {
    Rig rig;
    for (const Spoilt &one : kSpoiltPlans) {
        if (one.expected != QUIRE_E_UNSUPPORTED) continue;
        SCOPED_TRACE(one.what);
        GoodCall call(rig);
        one.spoil(call);
        quire_be_answer answer{};
        answer.struct_size = sizeof answer;
        Error error;
        ASSERT_EQ(api().query_attention(rig.device(), &call.desc.shape, &answer, &error), QUIRE_OK);
        EXPECT_EQ(answer.support, uint32_t{QUIRE_BE_NO});
        quire_be_plan *plan = nullptr;
        api().plan_create(rig.device(), &call.desc, &plan, &error);
        EXPECT_STREQ(answer.reason, error.message);
    }
}

TEST_F(RefusalTest, query_without_q_heads_asks_about_kv_write_only) {
    Rig rig;
    GoodCall call(rig);
    call.shape.q_heads = 0;
    call.shape.q_dtype = 0;
    call.shape.k_dtype = call.pool.k_dtype;
    call.shape.v_dtype = call.pool.v_dtype;
    quire_be_answer answer{};
    Error error;
    auto ask = [&] { return api().query_attention(rig.device(), &call.shape, &answer, &error); };
    expect_refused(ask(), error, QUIRE_E_STRUCT);
    answer.struct_size = sizeof answer;
    ASSERT_EQ(ask(), QUIRE_OK) << error.message;
    EXPECT_NE(answer.support, uint32_t{QUIRE_BE_NO}) << answer.reason;
    call.shape.v_dtype = kUnknownType;
    ASSERT_EQ(ask(), QUIRE_OK) << error.message;
    EXPECT_EQ(answer.support, uint32_t{QUIRE_BE_NO});
}

}  // namespace quire::conformance
