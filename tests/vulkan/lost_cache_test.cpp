// SPDX-License-Identifier: Apache-2.0
//
// A cache whose Vulkan device is lost: the step fails, the cache stays
// consistent and can be closed.

#include <dlfcn.h>

#include "tests/device/cpu_cache.hpp"
#include "tests/place.hpp"

namespace {

using quire::tests::place;

using namespace quire::test;

void set_fault(const char *fault) {
    using Set = void (*)(const char *, int);
    static auto set = reinterpret_cast<Set>(
        dlsym(dlopen(place(QUIRE_FAULTY_VULKAN).c_str(), RTLD_NOW | RTLD_LOCAL), "faulty_set"));
    set(fault, 0);
}

bool has_device() {
    const quire_api &api = library();
    auto error = described<quire_error>();
    auto desc = described<quire_instance_desc>();
    quire_instance *instance = nullptr;
    uint32_t count = 0;
    bool found = false;
    EXPECT_EQ(api.instance_create(&desc, &instance, &error), QUIRE_OK) << error.message;
    EXPECT_EQ(api.backend_count(instance, &count, &error), QUIRE_OK);
    for (uint32_t i = 0; i < count; ++i) {
        auto info = described<quire_backend_info>();
        EXPECT_EQ(api.backend_get_info(instance, i, &info, &error), QUIRE_OK);
        found = found || (std::string(info.name) == "vulkan" && info.device_count != 0);
    }
    EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK);
    return found;
}

class LostCache : public testing::Test {
 protected:
    void SetUp() override {
        setenv("QUIRE_VULKAN_LIBRARY", place(QUIRE_FAULTY_VULKAN).c_str(), 1);
        set_fault("");
        if (!has_device()) GTEST_SKIP() << "no Vulkan device here: mesa-vulkan-drivers";
    }
    void TearDown() override { set_fault(""); }
};

struct Scene {
    Scene() : c({.blocks = 24, .backend = "vulkan"}) {
        c.must(c.api.queue_create(c.device, nullptr, &queue, &c.error));
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 2;
        desc.max_blocks_per_row = 8;
        desc.max_query_tokens = 16;
        desc.views = QUIRE_VIEW_SLOTS | QUIRE_VIEW_BLOCK_TABLE;  // which a commit uploads
        c.must(c.api.batch_create(c.cache, &desc, &batch, &c.error));
        seq = c.create();
    }
    ~Scene() {
        EXPECT_EQ(c.api.batch_destroy(batch, &c.error), QUIRE_OK) << c.error.message;
        EXPECT_EQ(c.api.queue_destroy(queue, &c.error), QUIRE_OK) << c.error.message;
    }
    // The status of commit or, if that succeeded, of finish.
    quire_status run(const std::vector<uint32_t> &tokens) {
        quire_step_result result{};
        quire_step step = c.begin(queue, seq, tokens, &result);
        EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
        quire_status status = c.api.step_commit(c.cache, step, batch, &c.error);
        if (status != QUIRE_OK) return status;
        return c.api.step_finish(c.cache, step, nullptr, QUIRE_STEP_OK, &c.error);
    }
    quire_seq_info info() {
        auto filled = described<quire_seq_info>();
        c.must(c.api.seq_get_info(c.cache, seq, &filled, &c.error));
        return filled;
    }

    CpuCache c;
    quire_queue *queue = nullptr;
    quire_batch *batch = nullptr;
    quire_seq seq = 0;
};

TEST_F(LostCache, step_fails_and_the_books_stay_right) {
    Scene scene;
    ASSERT_EQ(scene.run({1, 2, 3, 4, 5}), QUIRE_OK) << scene.c.error.message;
    scene.c.must(scene.c.api.queue_sync(scene.queue, &scene.c.error));
    set_fault("lost");
    // The device is lost during the commit's upload, and the fence at the step's end reports it.
    EXPECT_EQ(scene.run({6, 7}), QUIRE_OK) << scene.c.error.message;
    EXPECT_EQ(scene.c.api.queue_sync(scene.queue, &scene.c.error), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(scene.run({8}), QUIRE_E_DEVICE_LOST) << "nothing can be uploaded any more";
    EXPECT_EQ(scene.info().known_tokens, 8u) << "known tokens stay known";
    EXPECT_EQ(scene.info().computed_tokens, 5u);
    EXPECT_EQ(scene.c.api.cache_check(scene.c.cache, &scene.c.error), QUIRE_OK);
    EXPECT_EQ(scene.c.api.seq_end(scene.c.cache, scene.seq, 0, &scene.c.error), QUIRE_OK)
        << scene.c.error.message;
    EXPECT_EQ(scene.c.api.cache_check(scene.c.cache, &scene.c.error), QUIRE_OK);
}

}  // namespace
