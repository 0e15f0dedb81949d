// SPDX-License-Identifier: Apache-2.0
//
// Which kernel computes attention of f16: what a device needs for the one with cooperative
// matrices, and that the chosen kernel is the one that runs. lavapipe has no such matrices, so the
// test makes up devices that do.

#include "fragments.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/spirv.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "quire/plugin/backend.h"
#include "shared/kernel_enums.hpp"
#include "tests/device/plugin_table.hpp"
#include "tests/place.hpp"

namespace quire::vulkan {
namespace {

using quire::test::Error;
using quire::test::plugin_table;
using quire::tests::place;

constexpr uint32_t kFloat16 = 0, kFloat32 = 1, kSubgroup = 3;

MatrixOffer whole_offer() {
    MatrixOffer offer;
    offer.extension = MatrixExtension::nv;
    offer.has_features = offer.has_subgroups = offer.has_stage = true;
    offer.subgroup_lanes = offer.least_lanes = offer.most_lanes = 32;
    offer.shared_bytes = 32 << 10;
    offer.products = {{8, 8, 16, kFloat16, kFloat16, kFloat16, kFloat16, kSubgroup},
                      {16, 16, 16, kFloat16, kFloat16, kFloat32, kFloat32, kSubgroup}};
    return offer;
}

FragmentKind kind_of(const MatrixOffer &offer, const char *asked = nullptr) {
    return choose_fragments(offer, MatrixExtension::nv, asked).kind;
}

TEST(Fragments, device_with_all_of_it_multiplies_matrices) {
    FragmentChoice choice = choose_fragments(whole_offer(), MatrixExtension::nv, nullptr);
    EXPECT_EQ(choice.kind, FragmentKind::cooperative);
    EXPECT_EQ(choice.subgroup_lanes, 32u);
    MatrixOffer wide = whole_offer();
    wide.least_lanes = 32;
    wide.most_lanes = wide.subgroup_lanes = 64;
    EXPECT_EQ(choose_fragments(wide, MatrixExtension::nv, nullptr).subgroup_lanes, 64u);
}

TEST(Fragments, whatever_a_device_lacks_leaves_the_plain_kernel) {
    using Change = void (*)(MatrixOffer &);
    const Change changes[] = {
        [](MatrixOffer &of) { of.extension = MatrixExtension::none; },
        [](MatrixOffer &of) { of.extension = MatrixExtension::khr; },
        [](MatrixOffer &of) { of.has_features = false; },
        [](MatrixOffer &of) { of.has_subgroups = false; },
        [](MatrixOffer &of) { of.has_stage = false; },
        [](MatrixOffer &of) { of.subgroup_lanes = of.most_lanes = 128; },
        [](MatrixOffer &of) { of.subgroup_lanes = 0; },
        [](MatrixOffer &of) { of.least_lanes = 64; },
        [](MatrixOffer &of) { of.most_lanes = 16; },
        [](MatrixOffer &of) { of.shared_bytes = 16 << 10; },
        [](MatrixOffer &of) { of.products.pop_back(); },
        [](MatrixOffer &of) { of.products[1].k = 8; },
        [](MatrixOffer &of) { of.products[1].m = 8; },
        [](MatrixOffer &of) { of.products[1].n = 8; },
        [](MatrixOffer &of) { of.products[1].a = kFloat32; },
        [](MatrixOffer &of) { of.products[1].b = kFloat32; },
        [](MatrixOffer &of) { of.products[1].c = kFloat16; },
        [](MatrixOffer &of) { of.products[1].result = kFloat16; },
        [](MatrixOffer &of) { of.products[1].scope = 2; },
    };
    for (size_t i = 0; i < std::size(changes); ++i) {
        MatrixOffer offer = whole_offer();
        changes[i](offer);
        EXPECT_EQ(kind_of(offer), FragmentKind::none) << "change " << i;
    }
    FragmentChoice unbuilt = choose_fragments(whole_offer(), MatrixExtension::none, nullptr);
    EXPECT_EQ(unbuilt.kind, FragmentKind::none);
}

TEST(Fragments, variable_leaves_them_or_asks_for_the_spelling_that_runs_anywhere) {
    EXPECT_EQ(kind_of(whole_offer(), "0"), FragmentKind::none);
    EXPECT_EQ(kind_of(whole_offer(), "1"), FragmentKind::cooperative);
    EXPECT_EQ(kind_of(whole_offer(), "emulate"), FragmentKind::plain);
    MatrixOffer none;
    none.shared_bytes = 32 << 10;
    EXPECT_EQ(kind_of(none, "emulate"), FragmentKind::plain);
    EXPECT_EQ(kind_of(none, "1"), FragmentKind::none);
    none.shared_bytes = 16 << 10;
    EXPECT_EQ(kind_of(none, "emulate"), FragmentKind::none);
}

TEST(Fragments, fit_what_is_all_f16_of_dims_by_sixteens) {
    EXPECT_TRUE(fits_fragments({kF16, kF16, kF16, 128, 128}));
    EXPECT_TRUE(fits_fragments({kF16, kF16, kF16, 16, 256}));
    EXPECT_FALSE(fits_fragments({kF16, kF16, kF16, 120, 128}));
    EXPECT_FALSE(fits_fragments({kF16, kF16, kF16, 128, 8}));
    EXPECT_FALSE(fits_fragments({kF16, kF16, kF16, 272, 128}));
    EXPECT_FALSE(fits_fragments({kF16, kF16, kF16, 128, 272}));
    EXPECT_FALSE(fits_fragments({kF32, kF16, kF16, 128, 128}));
    EXPECT_FALSE(fits_fragments({kF16, kBf16, kF16, 128, 128}));
    EXPECT_FALSE(fits_fragments({kF16, kF16, kI8, 128, 128}));
}

template <typename Function>
Function symbol_of(const char *library, const char *name) {
    return reinterpret_cast<Function>(dlsym(dlopen(library, RTLD_NOW | RTLD_LOCAL), name));
}

const quire_backend_api &api() {
    static const quire_backend_api *table = plugin_table(place(QUIRE_VULKAN_BACKEND));
    return *table;
}

// An attention call over a row without keys, in a few bytes of zeros.
class FragmentCall : public testing::Test {
 protected:
    void SetUp() override {
        setenv("QUIRE_VULKAN_LIBRARY", place(QUIRE_FAULTY_VULKAN).c_str(), 1);
        symbol_of<void (*)(const char *, int)>(place(QUIRE_FAULTY_VULKAN).c_str(), "faulty_set")("",
                                                                                                 0);
        uint32_t count = 0;
        Error error;
        ASSERT_EQ(api().probe(&count, &error), QUIRE_OK) << error.message;
        if (count == 0) GTEST_SKIP() << "no Vulkan device here: mesa-vulkan-drivers";
    }
    void TearDown() override { unsetenv("QUIRE_VULKAN_MATRIX"); }

    static bool has_loaded(KernelName name) {
        auto has =
            symbol_of<int (*)(size_t)>(place(QUIRE_FAULTY_VULKAN).c_str(), "faulty_has_module");
        return has(spirv_of(name).size_bytes) != 0;
    }

    static void attend(uint32_t k_dtype) {
        constexpr uint64_t kBytes = 1 << 16;
        quire_be_device_desc desc{};
        desc.struct_size = sizeof desc;
        quire_be_device *device = nullptr;
        quire_be_queue *queue = nullptr;
        quire_be_plan *plan = nullptr;
        uint64_t address = 0;
        void *host = nullptr;
        Error error;
        ASSERT_EQ(api().device_open(&desc, &device, &error), QUIRE_OK) << error.message;
        ASSERT_EQ(api().queue_bind(device, nullptr, &queue, &error), QUIRE_OK) << error.message;
        ASSERT_EQ(api().mem_alloc(device, kBytes, QUIRE_BE_MEMORY_DEVICE, &address, &host, &error),
                  QUIRE_OK)
            << error.message;
        quire_be_pool pool{};
        pool.struct_size = sizeof pool;
        pool.block_count = pool.block_tokens = pool.layer_count = pool.kv_heads = 1;
        pool.address = address;
        pool.size_bytes = 256;
        pool.block_stride = pool.layer_stride = 256;
        pool.v_offset = 128;
        pool.k_head_stride = pool.k_token_stride = pool.v_head_stride = pool.v_token_stride = 64;
        pool.k_head_dim = pool.v_head_dim = 16;
        pool.k_dtype = k_dtype;
        pool.v_dtype = QUIRE_DTYPE_F16;
        quire_be_plan_desc wanted{};
        wanted.struct_size = sizeof wanted;
        wanted.shape.struct_size = sizeof wanted.shape;
        wanted.shape.q_heads = wanted.shape.kv_heads = wanted.shape.block_tokens = 1;
        wanted.shape.k_head_dim = wanted.shape.v_head_dim = 16;
        wanted.shape.q_dtype = wanted.shape.v_dtype = QUIRE_DTYPE_F16;
        wanted.shape.k_dtype = k_dtype;
        wanted.max_rows = wanted.max_query_tokens = wanted.max_blocks_per_row = 1;
        ASSERT_EQ(api().plan_create(device, &wanted, &plan, &error), QUIRE_OK) << error.message;
        quire_be_attention call{};
        call.struct_size = sizeof call;
        call.pool = &pool;
        call.q = call.out = address + 1024;
        call.block_table = call.lengths = call.cu_q = address + 4096;
        call.q_token_stride = call.out_token_stride = 16;
        call.block_table_stride = call.row_count = call.query_tokens = call.max_length = 1;
        EXPECT_EQ(api().attention(queue, plan, &call, &error), QUIRE_OK) << error.message;
        EXPECT_EQ(api().quiesce(device, UINT64_MAX, &error), QUIRE_OK) << error.message;
        api().plan_destroy(plan);
        api().mem_free(device, address, kBytes, QUIRE_BE_MEMORY_DEVICE);
        api().queue_release(queue);
        api().device_close(device);
    }
};

TEST_F(FragmentCall, of_f16_runs_on_them_where_they_are_emulated) {
    setenv("QUIRE_VULKAN_MATRIX", "emulate", 1);
    attend(QUIRE_DTYPE_F16);
    EXPECT_TRUE(has_loaded(KernelName::attend_fragments_plain));
    EXPECT_FALSE(has_loaded(KernelName::attend));
}

TEST_F(FragmentCall, of_other_types_does_not) {
    setenv("QUIRE_VULKAN_MATRIX", "emulate", 1);
    attend(QUIRE_DTYPE_BF16);
    EXPECT_TRUE(has_loaded(KernelName::attend));
    EXPECT_FALSE(has_loaded(KernelName::attend_fragments_plain));
}

TEST_F(FragmentCall, on_a_device_without_matrices_does_not) {
    attend(QUIRE_DTYPE_F16);
    EXPECT_TRUE(has_loaded(KernelName::attend));
    EXPECT_FALSE(has_loaded(KernelName::attend_fragments_plain));
}

}  // namespace
}  // namespace quire::vulkan
