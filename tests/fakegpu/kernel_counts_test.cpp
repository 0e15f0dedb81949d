// SPDX-License-Identifier: Apache-2.0
//
// What the backends' kernels ask of memory, against limits for each: they are what was measured, so
// a kernel can only become better. A new kernel adds a row.

#include "count_limits.hpp"
#include "driver_rig.hpp"
#include "quire/cache.h"

namespace quire::gpu_tests {

namespace {

// One sequence of `length` keys in consecutive blocks, its last `tokens` tokens computed.
struct Shape {
    const char *name;
    uint32_t dtype;  // of K and V
    uint32_t q_dtype;
    uint32_t dim;
    uint32_t q_heads;  // that share the one KV head
    uint32_t tokens;
    uint32_t length;

    uint32_t bytes_of(uint32_t elements) const { return elements * (dtype >> 8 & 0xFF) / 8; }
    bool has_codes() const { return (dtype >> 8 & 0xFF) == 8; }
};

constexpr Shape kDecode = {"decode", QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, 128, 4, 1, 1024};
constexpr Shape kDecodeF16 = {"decode of f16", QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, 64, 8, 1, 1024};
constexpr Shape kDecodeF8 = {
    "decode of fp8", QUIRE_DTYPE_F8_E4M3FN, QUIRE_DTYPE_BF16, 128, 4, 1, 1024};
constexpr Shape kDecodeI8 = {"decode of int8", QUIRE_DTYPE_I8, QUIRE_DTYPE_BF16, 128, 4, 1, 1024};
constexpr Shape kDecodeWide = {
    "decode of heads of 256", QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, 256, 4, 1, 1024};
constexpr Shape kDecodeMiddle = {
    "decode of heads of 96", QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, 96, 4, 1, 1024};
constexpr Shape kDecodeF8Middle = {
    "decode of fp8 of heads of 96", QUIRE_DTYPE_F8_E4M3FN, QUIRE_DTYPE_BF16, 96, 4, 1, 1024};
constexpr Shape kDecodeF8Small = {
    "decode of fp8 of heads of 64", QUIRE_DTYPE_F8_E4M3FN, QUIRE_DTYPE_F16, 64, 8, 1, 1024};
constexpr Shape kOdd = {"odd rows", QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, 100, 4, 1, 64};
constexpr Shape kPrompt = {"prompt", QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, 128, 4, 64, 64};

constexpr const char *kVariable = "QUIRE_GPU_ATTENTION";

struct Row {
    const char *kernel;
    const Shape &shape;
    // On 32 lanes, as NVIDIA's GPUs have, and on 64 (count_limits.hpp): sectors and wavefronts of
    // the worst site, by the least; instructions, wavefronts and barriers per KiB of K and V.
    fakegpu::Limits of_vendor[2];
};

const Row kRows[] = {
    {"quire_attend_fragments", kDecode, {{2, 8, 76.1, 211, 1.15}, {2, 16, 39.1, 353, 0.571}}},
    {"quire_attend_fragments", kDecodeF16, {{2, 8, 92.2, 239, 2.29}, {2, 16, 51, 376, 1.15}}},
    {"quire_attend_fragments", kDecodeF8, {{4, 8, 155, 421, 2.29}, {1, 16, 83.3, 705, 1.15}}},
    {"quire_attend_fragments", kDecodeI8, {{4, 8, 155, 421, 2.29}, {1, 16, 83.3, 705, 1.15}}},
    {"quire_decode_bf16_128", kDecode, {{1, 1, 12.1, 17, 0.11}, {}}},
    {"quire_decode_f16_64", kDecodeF16, {{2, 1, 14.1, 17.5, 0.219}, {}}},
    {"quire_decode_bf16_96", kDecodeMiddle, {{1, 1, 12.7, 17.1, 0.146}, {}}},
    {"quire_decode_e4m3_128", kDecodeF8, {{2, 1, 20.4, 17.9, 0.219}, {}}},
    {"quire_decode_i8_128", kDecodeI8, {{2, 1, 20.4, 17.9, 0.219}, {}}},
    {"quire_decode_e4m3_96", kDecodeF8Middle, {{2, 1, 21.6, 18.1, 0.292}, {}}},
    {"quire_decode_e4m3_64", kDecodeF8Small, {{2, 1, 24.4, 19, 0.438}, {}}},
    {"quire_attend", kDecodeWide, {{4, 1, 82.6, 75.4, 0.227}, {4, 1, 41.6, 75.4, 0.114}}},
    {"quire_attend_prefill", kPrompt, {{2, 8, 3630, 10900, 20}, {2, 16, 1860, 19400, 10}}},
    {"quire_reduce", kDecode, {{1.2, 1, 0.266, 0.0235, 0.0157}, {1.12, 1, 0.141, 0.0235, 0.00782}}},
    {"quire_kv_write", kPrompt, {{1, 0, 40, 0, 0}, {1, 0, 28, 0, 0}}},
    {"quire_kv_write_any", kOdd, {{1.33, 0, 71.7, 0, 0}, {1.33, 0, 56.4, 0, 0}}},
};

class KernelCounts : public Driver {
 protected:
    void SetUp() override { Driver::SetUp(); }
    void TearDown() override {
        unsetenv(kVariable);
        Driver::TearDown();
    }
    void open() {
        rig_.emplace(api());
        ASSERT_EQ(rig_->open(), QUIRE_OK) << rig_->error.message;
        void *pointer = nullptr;
        ASSERT_EQ(api().mem_alloc(rig_->device, kBytes, QUIRE_BE_MEMORY_DEVICE, &address_, &pointer,
                                  &rig_->error),
                  QUIRE_OK);
    }
    void close() {
        api().mem_free(rig_->device, address_, kBytes, QUIRE_BE_MEMORY_DEVICE);
        rig_.reset();
    }

    // Writes the shape's K and V and attends, counting.
    std::vector<fakegpu::SiteCount> run(const Shape &shape) {
        open();
        symbol<void (*)(int)>("fakegpu_count")(1);
        fill(kOfScales, 4096, 0x3F);
        fill(kOfGiven, kBytes - kOfGiven, 0x3C);  // about 0.01 in bf16, 1.06 in f16
        put_numbers(shape);
        write(shape);
        attend(shape);
        EXPECT_EQ(api().fence_signal(rig_->queue, rig_->fence, ++rig_->value, &rig_->error),
                  QUIRE_OK);
        EXPECT_EQ(rig_->sync(), QUIRE_OK) << rig_->error.message << last_fault();
        auto counted = symbol<uint64_t (*)(fakegpu::SiteCount *, uint64_t)>("fakegpu_counted");
        std::vector<fakegpu::SiteCount> counts(counted(nullptr, 0));
        counted(counts.data(), counts.size());
        symbol<void (*)(int)>("fakegpu_count")(0);
        close();
        return counts;
    }
    // The bytes of K and V that a kernel serves.
    static uint64_t kv_bytes(const Shape &shape) {
        return uint64_t{2} * shape.length * shape.bytes_of(shape.dim);
    }

 private:
    static constexpr uint64_t kBytes = 8 << 20;
    static constexpr uint64_t kOfNumbers = 2 << 20, kOfScales = 3 << 20, kOfGiven = 4 << 20,
                              kOfQueries = 6 << 20, kOfOut = 7 << 20;
    static constexpr uint32_t kBlockTokens = 16;

    Paged paged(const Shape &shape) const {
        Paged paged{address_,         kOfNumbers, shape.length / kBlockTokens + 1,
                    kBlockTokens,     shape.dim,  shape.dtype,
                    shape.bytes_of(1)};
        return paged;
    }
    quire_be_pool pool(const Shape &shape) const {
        quire_be_pool pool = paged(shape).pool();
        if (shape.has_codes()) {
            pool.k_scale_kind = pool.v_scale_kind = QUIRE_SCALE_HEAD;
            pool.scales = address_ + kOfScales;
        }
        return pool;
    }
    void fill(uint64_t offset, uint64_t size_bytes, uint32_t byte) {
        EXPECT_EQ(
            test::fill_range(api(), rig_->queue, address_ + offset, size_bytes, byte, &rig_->error),
            QUIRE_OK);
    }
    // Slots; then the table, the length and cu_q. Block 0 is the null block.
    void put_numbers(const Shape &shape) {
        auto *slots = reinterpret_cast<int64_t *>(rig_->host);
        for (uint32_t i = 0; i < shape.length; ++i) slots[i] = kBlockTokens + i;
        auto *numbers = reinterpret_cast<int32_t *>(slots + shape.length);
        for (uint32_t i = 0; i < shape.length / kBlockTokens; ++i) {
            *numbers++ = static_cast<int32_t>(i + 1);
        }
        for (uint32_t number : {shape.length, 0u, shape.tokens}) {
            *numbers++ = static_cast<int32_t>(number);
        }
        auto size_bytes =
            static_cast<uint64_t>(reinterpret_cast<unsigned char *>(numbers) - rig_->host);
        quire_be_copy copy = {address_ + kOfNumbers, rig_->host_address, size_bytes,
                              QUIRE_BE_COPY_H2D, 0};
        EXPECT_EQ(api().copy(rig_->queue, &copy, 1, &rig_->error), QUIRE_OK);
    }
    void write(const Shape &shape) {
        quire_be_pool described = pool(shape);
        quire_be_kv_write args{};
        args.struct_size = sizeof args;
        args.token_count = shape.length;
        args.dtype = shape.q_dtype;
        args.pool = &described;
        args.k = args.v = address_ + kOfGiven;
        args.slots = address_ + kOfNumbers;
        args.k_token_stride = args.v_token_stride = shape.dim;
        EXPECT_EQ(api().kv_write(rig_->queue, &args, &rig_->error), QUIRE_OK)
            << rig_->error.message;
    }
    void attend(const Shape &shape) {
        quire_be_plan_desc desc =
            paged(shape).plan(shape.q_heads, 1, shape.tokens, shape.length / kBlockTokens);
        desc.shape.q_dtype = shape.q_dtype;
        if (shape.has_codes()) desc.shape.k_scale_kind = desc.shape.v_scale_kind = QUIRE_SCALE_HEAD;
        quire_be_plan *plan = nullptr;
        ASSERT_EQ(api().plan_create(rig_->device, &desc, &plan, &rig_->error), QUIRE_OK)
            << rig_->error.message;
        quire_be_pool described = pool(shape);
        quire_be_attention args{};
        args.struct_size = sizeof args;
        args.pool = &described;
        args.q = address_ + kOfQueries;
        args.out = address_ + kOfOut;
        args.block_table = address_ + kOfNumbers + shape.length * 8;
        args.lengths = args.block_table + shape.length / kBlockTokens * 4;
        args.cu_q = args.lengths + 4;
        args.q_token_stride = args.out_token_stride = shape.q_heads * shape.dim;
        args.block_table_stride = shape.length / kBlockTokens;
        args.row_count = 1;
        args.query_tokens = shape.tokens;
        args.max_length = shape.length;
        EXPECT_EQ(api().attention(rig_->queue, plan, &args, &rig_->error), QUIRE_OK)
            << rig_->error.message;
        api().plan_destroy(plan);
    }

    std::optional<Rig> rig_;
    uint64_t address_ = 0;
};

std::string text_of(const fakegpu::Measured &is) {
    std::ostringstream text;
    text.precision(4);
    text << '{' << is.sectors << ", " << is.wavefronts << ", " << is.instructions << ", "
         << is.passes << ", " << is.barriers << "}, sectors at " << is.worst_sectors
         << ", wavefronts at " << is.worst_wavefronts;
    return text.str();
}

TEST_P(KernelCounts, are_within_the_limits_of_their_rows) {
    for (const Row &row : kRows) {
        // Rows of the decode kernels, which AMD's GPUs lack, and of those that serve without them.
        bool has_join = std::string(row.kernel).find("quire_decode_") == 0;
        if (has_join && row.of_vendor[GetParam()].instructions == 0) continue;
        has_join ? unsetenv(kVariable) : setenv(kVariable, "plain", 1);
        std::vector<fakegpu::SiteCount> counts = run(row.shape);
        fakegpu::Measured is = measure(counts, row.kernel, kv_bytes(row.shape));
        EXPECT_GT(is.instructions, 0) << row.kernel << " did not run";
        std::cout << row.kernel << ", " << row.shape.name << ": " << text_of(is) << '\n';
        for (const std::string &problem : judge(row.of_vendor[GetParam()], is)) {
            ADD_FAILURE() << row.kernel << ", " << row.shape.name << ": " << problem;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Vendors, KernelCounts, testing::Values(0, 1), name_of);

}  // namespace

}  // namespace quire::gpu_tests
