// SPDX-License-Identifier: Apache-2.0
//
// Which shapes the kernels of decode.cu serve, and that an environment variable turns them off.

#include "driver_rig.hpp"
#include "quire/attention.h"
#include "quire/cache.h"

namespace quire::gpu_tests {

namespace {

constexpr const char *kVariable = "QUIRE_GPU_ATTENTION";
constexpr uint64_t kQueries = Rig::kGiven;
constexpr uint64_t kOut = kQueries + 8192;
constexpr uint64_t kNumbers = kOut + 8192;  // the table, the length, cu_q

struct Shape {
    uint32_t dim = 64;
    uint32_t dtype = QUIRE_DTYPE_BF16;  // of K and V, and of q unless they are codes
    uint32_t block_tokens = 16;
    uint32_t q_heads = 4;
    uint32_t flags = 0;
    uint32_t group_kind = QUIRE_GROUP_FULL;
    uint32_t q_dtype = 0;  // 0: that of K and V

    bool has_codes() const { return q_dtype != 0; }
};

}  // namespace

class Decode : public Driver {
 protected:
    void TearDown() override {
        unsetenv(kVariable);
        Driver::TearDown();
    }

    uint64_t launches(const std::string &kernel) const {
        return symbol<uint64_t (*)(const char *)>("fakegpu_launches")(kernel.c_str());
    }
    // Attends one token of a row of one; returns how often the kernel of this name ran.
    uint64_t runs_of(const std::string &kernel, const Shape &shape) {
        Rig rig(api());
        EXPECT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
        Paged paged = {rig.address,
                       Rig::kGiven,
                       1,
                       shape.block_tokens,
                       shape.dim,
                       shape.dtype,
                       shape.has_codes() ? 1u : 2u};
        quire_be_plan_desc desc = paged.plan(shape.q_heads, 1, 1, 1);
        desc.shape.flags = shape.flags;
        if (shape.has_codes()) {
            desc.shape.q_dtype = shape.q_dtype;
            desc.shape.k_scale_kind = desc.shape.v_scale_kind = QUIRE_SCALE_HEAD;
        }
        desc.shape.group_kind = shape.group_kind;
        desc.shape.window = shape.group_kind == QUIRE_GROUP_FULL ? 0 : 8;
        quire_be_plan *plan = nullptr;
        EXPECT_EQ(api().plan_create(rig.device, &desc, &plan, &rig.error), QUIRE_OK)
            << rig.error.message;
        const int32_t numbers[] = {0, 1, 0, 1};
        std::memcpy(rig.host, numbers, sizeof numbers);
        quire_be_copy copy = {rig.address + kNumbers, rig.host_address, sizeof numbers,
                              QUIRE_BE_COPY_H2D, 0};
        EXPECT_EQ(api().copy(rig.queue, &copy, 1, &rig.error), QUIRE_OK);
        quire_be_pool pool = paged.pool();
        pool.group_kind = shape.group_kind;
        if (shape.has_codes()) {
            pool.k_scale_kind = pool.v_scale_kind = QUIRE_SCALE_HEAD;
            pool.scales = rig.address + kNumbers + 256;
        }
        quire_be_attention args{};
        args.struct_size = sizeof args;
        args.pool = &pool;
        args.q = rig.address + kQueries;
        args.out = rig.address + kOut;
        args.block_table = rig.address + kNumbers;
        args.lengths = args.block_table + 4;
        args.cu_q = args.block_table + 8;
        args.q_token_stride = args.out_token_stride = int64_t{shape.q_heads} * shape.dim;
        args.block_table_stride = args.row_count = args.query_tokens = args.max_length = 1;
        uint64_t before = launches(kernel);
        EXPECT_EQ(api().attention(rig.queue, plan, &args, &rig.error), QUIRE_OK)
            << rig.error.message;
        EXPECT_EQ(api().fence_signal(rig.queue, rig.fence, ++rig.value, &rig.error), QUIRE_OK);
        EXPECT_EQ(rig.sync(), QUIRE_OK) << rig.error.message << last_fault();
        api().plan_destroy(plan);
        return launches(kernel) - before;
    }
    // How many launches the kernels of decode.cu are to have on this vendor's GPUs.
    uint64_t one() const { return vendor().name == std::string("cuda") ? 1 : 0; }
};

TEST_P(Decode, kernels_serve_sixteen_bits_at_three_head_dims) {
    for (uint32_t dim : {64u, 96u, 128u}) {
        for (uint32_t dtype : {QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
            std::string name = dtype == QUIRE_DTYPE_F16 ? "f16_" : "bf16_";
            Shape shape;
            shape.dim = dim;
            shape.dtype = dtype;
            EXPECT_EQ(runs_of("quire_decode_" + name + std::to_string(dim), shape), one());
            EXPECT_EQ(runs_of("quire_reduce", shape), 1 - one());
        }
    }
}

TEST_P(Decode, kernels_serve_codes_beside_both_types) {
    const std::pair<uint32_t, const char *> kCodes[] = {
        {QUIRE_DTYPE_I8, "i8_"}, {QUIRE_DTYPE_F8_E4M3FN, "e4m3_"}, {QUIRE_DTYPE_F8_E5M2, "e5m2_"}};
    for (const auto &[dtype, name] : kCodes) {
        for (uint32_t dim : {64u, 96u, 128u}) {
            for (uint32_t q_dtype : {QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
                Shape shape;
                shape.dim = dim;
                shape.dtype = dtype;
                shape.q_dtype = q_dtype;
                std::string kernel = std::string("quire_decode_") + name + std::to_string(dim);
                EXPECT_EQ(runs_of(kernel, shape), one()) << kernel;
            }
        }
    }
}

TEST_P(Decode, kernels_leave_what_is_rare_to_others) {
    const std::string kernel = "quire_decode_bf16_64";
    Shape common;
    EXPECT_EQ(runs_of(kernel, common), one());
    common.group_kind = QUIRE_GROUP_WINDOW;
    EXPECT_EQ(runs_of(kernel, common), one());
    common.block_tokens = 8;  // which may not change a bit
    EXPECT_EQ(runs_of(kernel, common), one());
    common.q_heads = 16;
    EXPECT_EQ(runs_of("quire_decode_wide_bf16_64", common), one());
    Shape rare[6];
    rare[0].dim = 80;
    rare[1].q_heads = 17;
    rare[2].flags = QUIRE_ATTENTION_MASK;
    rare[3].flags = QUIRE_ATTENTION_NOT_CAUSAL;
    rare[4].group_kind = QUIRE_GROUP_CHUNKED;
    rare[5].dtype = QUIRE_DTYPE_F8_E4M3FN;
    rare[5].q_dtype = QUIRE_DTYPE_F32;
    for (const Shape &shape : rare) {
        EXPECT_EQ(runs_of(kernel, shape), 0u);
        EXPECT_EQ(runs_of("quire_reduce", shape), 1u);
    }
}

TEST_P(Decode, kernels_are_turned_off_by_a_variable) {
    setenv(kVariable, "plain", 1);
    EXPECT_EQ(runs_of("quire_decode_bf16_64", Shape{}), 0u);
    EXPECT_EQ(runs_of("quire_attend_fragments", Shape{}), 1u);
    setenv(kVariable, "fast", 1);
    Rig rig(api());
    EXPECT_EQ(rig.open(), QUIRE_E_ARG);
    EXPECT_TRUE(has(rig.error, "QUIRE_GPU_ATTENTION is \"fast\"")) << rig.error.message;
}

INSTANTIATE_TEST_SUITE_P(Vendors, Decode, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
