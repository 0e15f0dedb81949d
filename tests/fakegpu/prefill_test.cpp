// SPDX-License-Identifier: Apache-2.0
//
// Which kernel computes attention of a prompt, and what drivers require of a kernel whose blocks
// share more memory than code may declare.

#include "driver_rig.hpp"

namespace quire::gpu_tests {

class Prefill : public Driver {
 protected:
    void SetUp() override {
        Driver::SetUp();
        rig_.emplace(api());
        ASSERT_EQ(rig_->open(), QUIRE_OK) << rig_->error.message;
        quire_be_plan_desc desc = paged().plan(kHeads, 2, kBlockTokens, 1);
        ASSERT_EQ(api().plan_create(rig_->device, &desc, &plan_, &rig_->error), QUIRE_OK)
            << rig_->error.message;
    }
    void TearDown() override {
        api().plan_destroy(plan_);
        rig_.reset();
        Driver::TearDown();
    }

    // Attends rows of these numbers of tokens, which are all that the rows have.
    void attend(std::vector<int32_t> row_tokens) {
        auto rows = static_cast<uint32_t>(row_tokens.size());
        std::vector<int32_t> numbers(rows);  // the tables: block 0
        numbers.insert(numbers.end(), row_tokens.begin(), row_tokens.end());
        numbers.push_back(0);
        for (int32_t count : row_tokens) numbers.push_back(numbers.back() + count);
        size_t size_bytes = numbers.size() * sizeof(int32_t);
        std::memcpy(rig_->host, numbers.data(), size_bytes);
        quire_be_copy copy = {rig_->address + Rig::kNumbers, rig_->host_address, size_bytes,
                              QUIRE_BE_COPY_H2D, 0};
        ASSERT_EQ(api().copy(rig_->queue, &copy, 1, &rig_->error), QUIRE_OK);
        quire_be_pool pool = paged().pool();
        quire_be_attention args{};
        args.struct_size = sizeof args;
        args.pool = &pool;
        args.q = rig_->address + kQueries;
        args.out = rig_->address + kOut;
        args.block_table = rig_->address + Rig::kNumbers;
        args.lengths = args.block_table + rows * sizeof(int32_t);
        args.cu_q = args.lengths + rows * sizeof(int32_t);
        args.q_token_stride = args.out_token_stride = kHeads * kDim;
        args.block_table_stride = 1;
        args.row_count = rows;
        args.query_tokens = static_cast<uint32_t>(numbers.back());
        args.max_length = kBlockTokens;
        ASSERT_EQ(api().attention(rig_->queue, plan_, &args, &rig_->error), QUIRE_OK)
            << rig_->error.message;
        ASSERT_EQ(api().fence_signal(rig_->queue, rig_->fence, ++rig_->value, &rig_->error),
                  QUIRE_OK);
        ASSERT_EQ(rig_->sync(), QUIRE_OK) << rig_->error.message << last_fault();
    }
    uint64_t launches(const char *kernel) const {
        return symbol<uint64_t (*)(const char *)>("fakegpu_launches")(kernel);
    }
    bool goes_by_prefill(std::vector<int32_t> row_tokens) {
        uint64_t prefill = launches("quire_attend_prefill");
        uint64_t all = prefill + launches("quire_attend_fragments");
        attend(std::move(row_tokens));
        EXPECT_EQ(launches("quire_attend_prefill") + launches("quire_attend_fragments"), all + 1);
        return launches("quire_attend_prefill") > prefill;
    }
    // The queries of a block: four units of sixteen on NVIDIA's GPUs, two on AMD's.
    static int32_t tokens_of_block() { return (GetParam() == 0 ? 64 : 32) / kHeads; }

    static constexpr int32_t kHeads = 8;
    static constexpr uint32_t kDim = 16;
    static constexpr uint32_t kBlockTokens = 16;
    static constexpr uint64_t kQueries = Rig::kGiven;
    static constexpr uint64_t kOut = kQueries + 16384;

    std::optional<Rig> rig_;

 private:
    Paged paged() const {
        return {rig_->address, Rig::kGiven, 1, kBlockTokens, kDim, QUIRE_DTYPE_F16, 2};
    }

    quire_be_plan *plan_ = nullptr;
};

TEST_P(Prefill, kernel_is_for_rows_that_fill_its_blocks_in_the_mean) {
    int32_t tokens = tokens_of_block();
    EXPECT_TRUE(goes_by_prefill({tokens}));
    EXPECT_TRUE(goes_by_prefill({tokens + 3}));
    EXPECT_FALSE(goes_by_prefill({tokens - 1}));
    EXPECT_FALSE(goes_by_prefill({1}));
    EXPECT_TRUE(goes_by_prefill({1, 2 * tokens - 1}));
    EXPECT_FALSE(goes_by_prefill({1, 2 * tokens - 2}));
}

class Grid : public Driver {};

TEST_P(Grid, has_an_end_that_is_told_in_words) {
    constexpr uint64_t kMostRows = uint64_t{65535} * 65535;
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    quire_be_merge args{};
    args.struct_size = sizeof args;
    args.parts = args.lses = args.out = rig.address;
    args.token_count = 1u << 31;
    args.heads = 4;
    args.head_dim = args.part_count = 1;
    args.dtype = QUIRE_DTYPE_F32;
    ASSERT_GT(uint64_t{args.token_count} * args.heads, kMostRows);
    EXPECT_EQ(api().merge(rig.queue, &args, &rig.error), QUIRE_E_UNSUPPORTED);
    EXPECT_TRUE(has(rig.error, "thread blocks")) << rig.error.message;
    EXPECT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
    EXPECT_EQ(rig.sync(), QUIRE_OK) << rig.error.message;
}

INSTANTIATE_TEST_SUITE_P(Vendors, Grid, testing::Values(0, 1), name_of);

INSTANTIATE_TEST_SUITE_P(Vendors, Prefill, testing::Values(0, 1), name_of);

class CudaShared : public Driver {};

// The emulator's driver refuses what the real one does.
TEST_P(CudaShared, memory_is_asked_for_only_where_it_was_allowed) {
    constexpr unsigned kDeclared = 48 << 10, kMost = 99 << 10;
    constexpr int kMaxDynamicShared = 8, kInvalidValue = 1;
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    void *context = nullptr, *module = nullptr, *function = nullptr;
    int device = 0;
    ASSERT_EQ(of_engine<int (*)(int *, int)>("cuDeviceGet")(&device, 0), 0);
    ASSERT_EQ(of_engine<int (*)(void **, int)>("cuDevicePrimaryCtxRetain")(&context, device), 0);
    of_engine<int (*)(void *)>("cuCtxSetCurrent")(context);
    ASSERT_EQ(of_engine<int (*)(void **, const void *)>("cuModuleLoadData")(&module, "any"), 0);
    ASSERT_EQ(of_engine<int (*)(void **, void *, const char *)>("cuModuleGetFunction")(
                  &function, module, "quire_reduce"),
              0);
    auto launch = [&](unsigned shared_bytes) {
        unsigned char nothing[4096] = {};  // no groups: the kernel does nothing
        void *list[] = {nothing};
        return of_engine<int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, void *, void **, void **)>("cuLaunchKernel")(
            function, 1, 1, 1, 64, 1, 1, shared_bytes, nullptr, list, nullptr);
    };
    auto allow = [&](unsigned shared_bytes) {
        return of_engine<int (*)(void *, int, int)>("cuFuncSetAttribute")(
            function, kMaxDynamicShared, static_cast<int>(shared_bytes));
    };
    EXPECT_EQ(launch(kDeclared), 0);
    EXPECT_EQ(launch(kDeclared + 1), kInvalidValue);
    EXPECT_EQ(allow(kMost + 1), kInvalidValue);
    EXPECT_EQ(launch(kDeclared + 1), kInvalidValue);
    EXPECT_EQ(allow(kMost), 0);
    EXPECT_EQ(launch(kMost), 0);
    EXPECT_EQ(launch(kMost + 1), kInvalidValue);
    EXPECT_EQ(of_engine<int (*)(void *)>("cuStreamSynchronize")(nullptr), 0) << last_fault();
    EXPECT_EQ(allow(kDeclared), 0);
    of_engine<int (*)(void *)>("cuModuleUnload")(module);
    of_engine<int (*)(void *)>("cuCtxSetCurrent")(nullptr);
    of_engine<int (*)(int)>("cuDevicePrimaryCtxRelease")(device);
}

INSTANTIATE_TEST_SUITE_P(Vendors, CudaShared, testing::Values(0), name_of);

}  // namespace quire::gpu_tests
