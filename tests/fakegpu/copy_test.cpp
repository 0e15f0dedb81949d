// SPDX-License-Identifier: Apache-2.0
//
// Copies on the emulated drivers: by the kernel below the border and by the driver from the border
// on, in one call if the driver has one.

#include <numeric>

#include "engine_rig.hpp"
#include "plugin_copy.hpp"

namespace quire::gpu_tests {

namespace {

constexpr uint64_t kBorder = 64 << 10;
constexpr uint64_t kSize = 4 << 20;
constexpr const char *kVariable = "QUIRE_GPU_DMA_BYTES";

// Three host and two device memories, and copies from each to the next.
class Memories {
 public:
    explicit Memories(Rig &rig) : rig_(rig) {
        for (uint32_t kind : {QUIRE_BE_MEMORY_HOST, QUIRE_BE_MEMORY_DEVICE, QUIRE_BE_MEMORY_DEVICE,
                              QUIRE_BE_MEMORY_HOST, QUIRE_BE_MEMORY_HOST}) {
            Made made{kind, 0, nullptr};
            EXPECT_EQ(
                rig.api.mem_alloc(rig.device, kSize, kind, &made.address, &made.host, &rig.error),
                QUIRE_OK)
                << rig.error.message;
            made_.push_back(made);
        }
        for (uint64_t i = 0; i < kSize; ++i) {
            bytes(0)[i] = static_cast<unsigned char>(i * 7 + i / 251);
        }
    }
    ~Memories() {
        for (const Made &made : made_) {
            rig_.api.mem_free(rig_.device, made.address, kSize, made.kind);
        }
    }
    Memories(const Memories &) = delete;
    Memories &operator=(const Memories &) = delete;

    // Host to device, device to device, device to host and host to host: one call each.
    quire_status pass(quire_be_queue *queue, const std::vector<uint64_t> &sizes) {
        constexpr uint32_t kWays[] = {QUIRE_BE_COPY_H2D, QUIRE_BE_COPY_D2D, QUIRE_BE_COPY_D2H,
                                      QUIRE_BE_COPY_H2H};
        for (size_t i = 0; i < std::size(kWays); ++i) {
            std::vector<quire_be_copy> copies = between(i, kWays[i], sizes);
            quire_status status = rig_.api.copy(queue, copies.data(),
                                                static_cast<uint32_t>(copies.size()), &rig_.error);
            std::fill(copies.begin(), copies.end(), quire_be_copy{});
            if (status != QUIRE_OK) return status;
        }
        return QUIRE_OK;
    }
    void await(quire_be_queue *queue) {
        ASSERT_EQ(rig_.api.fence_signal(queue, rig_.fence, ++rig_.value, &rig_.error), QUIRE_OK)
            << rig_.error.message;
        ASSERT_EQ(rig_.sync(), QUIRE_OK) << rig_.error.message;
    }
    // Checks that both written host memories hold the copied bytes, and nothing else.
    void expect(const std::vector<uint64_t> &sizes) {
        std::vector<unsigned char> wanted(kSize);
        for (const quire_be_copy &copy : between(0, QUIRE_BE_COPY_H2D, sizes)) {
            uint64_t at = copy.src - made_[0].address;
            std::copy_n(bytes(0) + at, copy.size_bytes, wanted.begin() + static_cast<int64_t>(at));
        }
        for (size_t i : {3, 4}) {
            EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), bytes(i))) << "memory " << i;
        }
    }

 private:
    struct Made {
        uint32_t kind;
        uint64_t address;
        void *host;
    };
    unsigned char *bytes(size_t i) { return static_cast<unsigned char *>(made_[i].host); }
    // Copies with gaps between them that are not copied.
    std::vector<quire_be_copy> between(size_t i, uint32_t way, const std::vector<uint64_t> &sizes) {
        std::vector<quire_be_copy> copies;
        uint64_t at = 3;
        for (uint64_t size : sizes) {
            copies.push_back({made_[i + 1].address + at, made_[i].address + at, size, way, 0});
            at += size + 13;
        }
        EXPECT_LE(at, kSize);
        return copies;
    }

    Rig &rig_;
    std::vector<Made> made_;
};

const std::vector<uint64_t> kMixed = {1,           kBorder - 1, kBorder, 0,       16 << 10,
                                      kBorder + 1, 300'001,     100,     kBorder, (1 << 20) + 5};

}  // namespace

// Opens devices with a border that the test sets.
class Copying : public Engine {
 protected:
    void SetUp() override {
        setenv(kVariable, std::to_string(kBorder).c_str(), 1);
        Engine::SetUp();
    }
    void TearDown() override {
        Engine::TearDown();
        unsetenv(kVariable);
    }

    struct Count {
        uint64_t batches, copies, launches;
        bool operator==(const Count &) const = default;
    };
    Count count() const {
        return {calls(vendor().copy_many), calls(vendor().copy), calls(vendor().launch)};
    }
    Count since(const Count &before) const {
        Count now = count();
        return {now.batches - before.batches, now.copies - before.copies,
                now.launches - before.launches};
    }
    // The driver calls and launches of Memories::pass(), which makes four calls.
    Count pass(Rig &rig, quire_be_queue *queue, const std::vector<uint64_t> &sizes) {
        Memories memories(rig);
        Count before = count();
        EXPECT_EQ(memories.pass(queue, sizes), QUIRE_OK) << rig.error.message;
        Count counted = since(before);
        memories.await(queue);
        memories.expect(sizes);
        return counted;
    }
};

TEST_P(Copying, lands_byte_for_byte_on_both_sides_of_the_border) {
    // The driver makes 5 copies of kMixed, except between host memories; the
    // rest fit in one launch.
    EXPECT_EQ(pass(*rig_, rig_->queue, kMixed), (Count{3, 0, 4}));
    for (const char *border : {"0", "18446744073709551615"}) {
        setenv(kVariable, border, 1);
        Rig rig(api());
        ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
        bool is_drivers = *border == '0';
        EXPECT_EQ(pass(rig, rig.queue, kMixed), (is_drivers ? Count{3, 0, 1} : Count{0, 0, 4}));
    }
}

TEST_P(Copying, border_that_is_not_a_number_opens_no_device) {
    for (const char *wrong : {"256k", "-1", "18446744073709551616", " 1"}) {
        setenv(kVariable, wrong, 1);
        Rig rig(api());
        EXPECT_EQ(rig.open(), QUIRE_E_ARG) << wrong;
        EXPECT_TRUE(has(rig.error, "QUIRE_GPU_DMA_BYTES is \"")) << rig.error.message;
    }
}

TEST_P(Copying, of_256_kib_is_the_drivers_by_default) {
    constexpr uint64_t kDefault = 256 << 10;
    unsetenv(kVariable);
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    EXPECT_EQ(pass(rig, rig.queue, {kDefault - 1}), (Count{0, 0, 4}));
    EXPECT_EQ(pass(rig, rig.queue, {kDefault}), (Count{0, 3, 1}));
}

TEST_P(Copying, of_many_takes_few_calls_and_of_one_no_batch) {
    setenv(kVariable, "0", 1);
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    // 512 per batch.
    EXPECT_EQ(pass(rig, rig.queue, std::vector<uint64_t>(1030, 33)), (Count{9, 0, 1}));
    EXPECT_EQ(pass(rig, rig.queue, {77}), (Count{0, 3, 1}));
    EXPECT_EQ(pass(rig, rig.queue, std::vector<uint64_t>(513, 33)), (Count{3, 3, 1}));
}

// First a quarter of the queue's room in each of four calls; then more than its room, 160 copies
// per launch as arguments; then again, because finished work has freed its room.
TEST_P(Copying, of_many_blocks_takes_one_launch) {
    setenv(kVariable, "18446744073709551615", 1);
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    const std::vector<uint64_t> quarter(8'000, 20), most(20'000, 20), odd(7'001, 20);
    EXPECT_EQ(pass(rig, rig.queue, quarter), (Count{0, 0, 4}));
    EXPECT_EQ(pass(rig, rig.queue, most), (Count{0, 0, 1 + 3 * 125}));
    // Many calls without a fence between them take only the room of their pieces.
    {
        Memories memories(rig);
        const std::vector<uint64_t> few(161, 20);
        Count before = count();
        for (int i = 0; i < 20; ++i) ASSERT_EQ(memories.pass(rig.queue, few), QUIRE_OK);
        EXPECT_EQ(since(before), (Count{0, 0, 80}));
        memories.await(rig.queue);
        memories.expect(few);
    }
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(pass(rig, rig.queue, quarter), (Count{0, 0, 4})) << i;
        EXPECT_EQ(pass(rig, rig.queue, odd), (Count{0, 0, 4})) << i;
    }
}

TEST_P(Copying, of_many_blocks_needs_no_room) {
    setenv(kVariable, "18446744073709551615", 1);
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    const std::vector<uint64_t> quarter(8'000, 100);
    {
        Memories memories(rig);
        fail(vendor().host_alloc, 1, kOutOfMemory);
        Count before = count();
        EXPECT_EQ(memories.pass(rig.queue, quarter), QUIRE_OK) << rig.error.message;
        EXPECT_EQ(since(before), (Count{0, 0, 50 + 3}));
        memories.await(rig.queue);
        memories.expect(quarter);
    }
    // Held commands store their own pieces.
    Memories memories(rig);
    quire_be_fence *go = nullptr;
    ASSERT_EQ(api().fence_create(rig.device, 0, &go, &rig.error), QUIRE_OK);
    ASSERT_EQ(api().fence_wait(rig.queue, go, 1, &rig.error), QUIRE_OK);
    Count before = count();
    ASSERT_EQ(memories.pass(rig.queue, quarter), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(api().fence_signal_host(go, 1, &rig.error), QUIRE_OK);
    EXPECT_EQ(since(before), (Count{0, 0, 4 * 50}));
    memories.await(rig.queue);
    memories.expect(quarter);
    api().fence_destroy(go);
}

// A driver may refuse a call that it has, for example on a machine that passes its GPU through.
TEST_P(Copying, goes_one_by_one_where_the_driver_takes_no_batch) {
    constexpr int kNotSupported = 801;
    Memories memories(*rig_);
    Count before = count();
    fail(vendor().copy_many, 1, kNotSupported);
    ASSERT_EQ(memories.pass(rig_->queue, kMixed), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(since(before), (Count{1, 15, 4})) << "the batch call is not tried again";
    memories.await(rig_->queue);
    memories.expect(kMixed);
}

TEST_P(Copying, that_is_refused_in_part_fails_the_queue_alone) {
    void *legacy = nullptr;
    ASSERT_EQ(bind(as_stream(legacy)), QUIRE_OK) << rig_->error.message;
    Memories memories(*rig_);
    fail(vendor().copy, 1, kOutOfMemory);
    EXPECT_LT(memories.pass(bound_, {kBorder, kBorder, kBorder}), 0);
    EXPECT_EQ(memories.pass(bound_, {kBorder}), QUIRE_OK) << "nothing of the call was made";
    fail(vendor().copy, 2, kOutOfMemory);
    EXPECT_EQ(memories.pass(bound_, {kBorder, kBorder, kBorder}), QUIRE_E_DEVICE_LOST);
    EXPECT_TRUE(has(rig_->error, "part of a call")) << rig_->error.message;
    EXPECT_EQ(memories.pass(bound_, {kBorder}), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(pass(*rig_, rig_->queue, kMixed), (Count{3, 0, 4})) << "another queue";
}

TEST_P(Copying, that_loses_the_device_is_not_tried_again) {
    Memories memories(*rig_);
    Count before = count();
    fail(vendor().copy_many, 1, kIllegalAddress);
    EXPECT_EQ(memories.pass(rig_->queue, kMixed), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(since(before), (Count{1, 0, 0}));
    EXPECT_EQ(memories.pass(rig_->queue, kMixed), QUIRE_E_DEVICE_LOST);
}

// Neither vendor takes batches on the legacy stream; each thread's own stream is like any other.
TEST_P(Copying, on_the_legacy_stream_takes_no_batch) {
    for (uintptr_t handle : {uintptr_t{0}, uintptr_t{1}, uintptr_t{2}}) {
        ASSERT_EQ(bind(as_stream(reinterpret_cast<void *>(handle))), QUIRE_OK);
        EXPECT_EQ(pass(*rig_, bound_, kMixed), (handle < 2 ? Count{0, 15, 4} : Count{3, 0, 4}))
            << "stream " << handle;
        api().queue_release(bound_);
        bound_ = nullptr;
    }
    ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK);
    EXPECT_EQ(pass(*rig_, bound_, kMixed), (Count{3, 0, 4}));
}

TEST_P(Copying, that_is_held_keeps_its_lists) {
    Memories memories(*rig_);
    quire_be_fence *go = nullptr;
    ASSERT_EQ(api().fence_create(rig_->device, 0, &go, &rig_->error), QUIRE_OK);
    ASSERT_EQ(api().fence_wait(rig_->queue, go, 1, &rig_->error), QUIRE_OK);
    Count before = count();
    ASSERT_EQ(memories.pass(rig_->queue, kMixed), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(since(before), (Count{0, 0, 0})) << "the queue is held";
    ASSERT_EQ(api().fence_signal_host(go, 1, &rig_->error), QUIRE_OK);
    EXPECT_EQ(since(before), (Count{3, 0, 4}));
    memories.await(rig_->queue);
    memories.expect(kMixed);
    api().fence_destroy(go);
}

TEST_P(Copying, only_enqueues_and_allocates_nothing) {
    Memories memories(*rig_);
    uint64_t before = calls(nullptr), of_a_step = 0;
    for (const char *name : vendor().of_a_step) of_a_step -= calls(name);
    ASSERT_EQ(memories.pass(rig_->queue, kMixed), QUIRE_OK) << rig_->error.message;
    for (const char *name : vendor().of_a_step) of_a_step += calls(name);
    EXPECT_GE(of_a_step, 7u);
    EXPECT_EQ(calls(nullptr) - before, of_a_step) << "something else was called";
    memories.await(rig_->queue);
}

TEST_P(Copying, by_a_driver_without_batches_takes_a_call_each) {
    LibraryCopy driver(vendor().driver, vendor().copy_many);
    setenv(vendor().variable, driver.path(), 1);
    LibraryCopy plugin(plugin_of(vendor()));
    {
        Rig rig(*plugin.api());
        ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
        Memories memories(rig);
        auto calls_of = driver.symbol<uint64_t (*)(const char *)>("fakegpu_calls");
        ASSERT_EQ(memories.pass(rig.queue, kMixed), QUIRE_OK) << rig.error.message;
        EXPECT_EQ(calls_of(vendor().copy_many), 0u);
        EXPECT_EQ(calls_of(vendor().copy), 15u);
        memories.await(rig.queue);
        memories.expect(kMixed);
    }
    setenv(vendor().variable, vendor().driver.c_str(), 1);
}

INSTANTIATE_TEST_SUITE_P(Vendors, Copying, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
