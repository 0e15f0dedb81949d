// SPDX-License-Identifier: Apache-2.0
//
// Far places: byte offsets past 4 GiB, and block ids that use all 31 bits: what a 32-bit product
// anywhere would get wrong.
//
// The memory is allocated and hardly touched; if it cannot be had, the test skips.

#include <numeric>

#include "attention_case.hpp"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class FarTest : public SubjectTest {
 protected:
    FarTest() : SubjectTest(Needs::attention) {}
};

namespace {

struct Far {
    quire_be_attention_query shape;
    quire_be_pool pool;
    std::vector<int32_t> blocks;  // of the one row
    uint32_t query_tokens = 1;    // its last ones
};

Far make_far(const quire_be_attention_query &shape, uint32_t block_count, int64_t block_stride,
             std::vector<int32_t> blocks) {
    quire_be_pool pool = make_pool(shape, Layout::head_major, 1, block_count, 0);
    pool.block_stride = block_stride;
    pool.size_bytes = static_cast<uint64_t>(block_stride) * block_count;
    return {shape, pool, std::move(blocks), 1};
}

template <typename T>
uint64_t upload(Rig &rig, const Memory &scratch, uint64_t *used, const std::vector<T> &values) {
    uint64_t at = scratch.address() + *used;
    rig.write(at, values.data(), values.size() * sizeof(T));
    *used += (values.size() * sizeof(T) + 63) / 64 * 64;
    return at;
}

// Checks the pool directly: a mistake that write and attention share would not show in the result.
// Codes are checked only through the result.
void expect_at_their_places(Rig &rig, const Far &far, uint64_t pool_address,
                            const std::vector<float> &values) {
    const quire_be_pool &pool = far.pool;
    if (pool.k_scale_kind != QUIRE_SCALE_NONE) return;
    for (size_t t = 0; t < far.blocks.size() * pool.block_tokens; ++t) {
        uint64_t at = pool_address +
                      static_cast<uint64_t>(far.blocks[t / pool.block_tokens]) *
                          static_cast<uint64_t>(pool.block_stride) +
                      t % pool.block_tokens * static_cast<uint64_t>(pool.k_token_stride);
        double expected =
            decode(encode(values[t * pool.kv_heads * pool.k_head_dim], pool.k_dtype), pool.k_dtype);
        EXPECT_EQ(load(rig.read(at, size_of(pool.k_dtype)).data(), pool.k_dtype), expected) << t;
    }
}

// Writes a row's tokens through kv_write and attends with its last ones; returns out.
std::vector<unsigned char> write_and_attend(Rig &rig, const Far &far, uint64_t pool_address) {
    const quire_be_attention_query &shape = far.shape;
    auto length = static_cast<uint32_t>(far.blocks.size()) * shape.block_tokens;
    quire_be_pool pool = far.pool;
    pool.address = pool_address;
    std::vector<float> values(uint64_t{length} * shape.kv_heads * shape.k_head_dim);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(chance(i, 77));
    std::vector<int64_t> slots(length);
    for (uint32_t t = 0; t < length; ++t) {
        slots[t] = int64_t{far.blocks[t / shape.block_tokens]} * shape.block_tokens +
                   t % shape.block_tokens;
    }
    Memory scratch(rig, 1 << 20);
    uint64_t used = 0;
    quire_be_kv_write write{};
    write.struct_size = sizeof write;
    write.token_count = length;
    write.dtype = QUIRE_DTYPE_F32;
    write.pool = &pool;
    write.k = write.v = upload(rig, scratch, &used, values);
    write.slots = upload(rig, scratch, &used, slots);
    write.k_token_stride = write.v_token_stride = int64_t{shape.kv_heads} * shape.k_head_dim;
    Error error;
    must(api().kv_write(rig.queue(), &write, &error), error);

    expect_at_their_places(rig, far, pool_address, values);

    quire_be_plan_desc desc{};
    desc.struct_size = sizeof desc;
    desc.shape = shape;
    desc.max_rows = 1;
    desc.max_query_tokens = far.query_tokens;
    desc.max_blocks_per_row = static_cast<uint32_t>(far.blocks.size());
    quire_be_plan *plan = nullptr;
    must(api().plan_create(rig.device(), &desc, &plan, &error), error);
    uint64_t q_width = uint64_t{shape.q_heads} * shape.k_head_dim;
    std::vector<unsigned char> q(far.query_tokens * q_width * size_of(shape.q_dtype));
    for (size_t i = 0; i < q.size() / size_of(shape.q_dtype); ++i) {
        store(chance(i, 78), shape.q_dtype, &q[i * size_of(shape.q_dtype)]);
    }
    Guarded out(rig, q.size());
    quire_be_attention args{};
    args.struct_size = sizeof args;
    args.pool = &pool;
    args.q = upload(rig, scratch, &used, q);
    args.out = out.address();
    args.block_table = upload(rig, scratch, &used, far.blocks);
    args.lengths = upload(rig, scratch, &used, std::vector<uint32_t>{length});
    args.cu_q = upload(rig, scratch, &used, std::vector<uint32_t>{0, far.query_tokens});
    args.q_token_stride = args.out_token_stride = static_cast<int64_t>(q_width);
    args.block_table_stride = static_cast<uint32_t>(far.blocks.size());
    args.row_count = 1;
    args.query_tokens = far.query_tokens;
    args.max_length = length;
    must(api().attention(rig.queue(), plan, &args, &error), error);
    rig.sync();
    api().plan_destroy(plan);
    return out.read();
}

void expect_like_near(const Far &far) {
    Rig rig;
    Error error;
    Answer answer = ask(rig, far.shape);
    if (answer.support == QUIRE_BE_NO) GTEST_SKIP() << answer.reason;
    uint64_t size_bytes = far.pool.size_bytes;
    uint64_t address = 0;
    void *host = nullptr;
    if (api().mem_alloc(rig.device(), size_bytes, QUIRE_BE_MEMORY_DEVICE, &address, &host,
                        &error) != QUIRE_OK) {
        GTEST_SKIP() << size_bytes << " bytes cannot be allocated here: " << error.message;
    }
    std::vector<unsigned char> result = write_and_attend(rig, far, address);
    api().mem_free(rig.device(), address, size_bytes, QUIRE_BE_MEMORY_DEVICE);

    Far near = far;
    near.pool =
        make_pool(far.shape, Layout::head_major, 1, static_cast<uint32_t>(far.blocks.size()), 0);
    std::iota(near.blocks.begin(), near.blocks.end(), 0);
    Memory memory(rig, near.pool.size_bytes);
    EXPECT_TRUE(write_and_attend(rig, near, memory.address()) == result);
}

}  // namespace

namespace {

void expect_far_blocks_serve(const quire_be_attention_query &shape, uint32_t query_tokens) {
    constexpr int64_t kStride = int64_t{768} << 20;
    Far far = make_far(shape, 9, kStride, {8, 1, 6, 3, 7, 5});
    far.query_tokens = query_tokens;
    expect_like_near(far);
}

quire_be_attention_query shape_with(uint32_t q_dtype, uint32_t kv_dtype, uint32_t scale_kind) {
    quire_be_attention_query shape = common_shapes().front();
    shape.q_dtype = q_dtype;
    shape.k_dtype = shape.v_dtype = kv_dtype;
    shape.k_scale_kind = shape.v_scale_kind = scale_kind;
    return shape;
}

}  // namespace

TEST_F(FarTest, offsets_past_4_gib_are_reached) {
    Rig rig;
    expect_far_blocks_serve(plain_shape(rig), 1);
}

// By matrix kernels, where a backend has some: decode and prompts.
TEST_F(FarTest, offsets_past_4_gib_are_reached_by_16_bits) {
    expect_far_blocks_serve(shape_with(QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, QUIRE_SCALE_NONE), 1);
}
TEST_F(FarTest, offsets_past_4_gib_are_reached_by_prompts) {
    expect_far_blocks_serve(shape_with(QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, QUIRE_SCALE_NONE), 64);
}
TEST_F(FarTest, offsets_past_4_gib_are_reached_by_codes_and_their_scales) {
    expect_far_blocks_serve(shape_with(QUIRE_DTYPE_F16, QUIRE_DTYPE_I8, QUIRE_SCALE_TOKEN_HEAD), 1);
}

TEST_F(FarTest, block_ids_use_all_31_bits) {
    // 2^31 blocks of one token with one head of one f16 each for K and V: 8 GiB.
    quire_be_attention_query shape{};
    shape.struct_size = sizeof shape;
    shape.q_heads = shape.kv_heads = 1;
    shape.k_head_dim = shape.v_head_dim = 1;
    shape.q_dtype = QUIRE_DTYPE_F32;
    shape.k_dtype = shape.v_dtype = QUIRE_DTYPE_F16;
    shape.block_tokens = 1;
    Far far = make_far(shape, 1u << 31, 4, {INT32_MAX, 1, INT32_MAX - 1, 1 << 30});
    far.pool.v_offset = 2;
    expect_like_near(far);
}

}  // namespace quire::conformance
