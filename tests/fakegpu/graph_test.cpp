// SPDX-License-Identifier: Apache-2.0
//
// Calls that an engine captures into its own graph, on the emulator: they run at each launch, with
// the tables and lengths of that moment.

#include <cmath>

#include "engine_rig.hpp"

namespace quire::gpu_tests {

namespace {

constexpr uint32_t kDim = 16;
constexpr uint32_t kHeads = 2;  // of queries; one of keys
constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kTableBlocks = 80;  // 1,280 places: three chunks
constexpr uint32_t kRows = 2;

// Device memory of a decode step of two rows, f32; the host's mirror has the same offsets.
constexpr uint64_t kHalfBytes = uint64_t{kBlockTokens} * kDim * 4;
constexpr uint64_t kBlockBytes = 2 * kHalfBytes;
constexpr uint64_t kPoolBytes = (kRows * kTableBlocks + 1) * kBlockBytes;
constexpr uint64_t kK = kPoolBytes;  // of the new tokens; V follows
constexpr uint64_t kV = kK + kRows * kDim * 4;
constexpr uint64_t kQ = kV + kRows * kDim * 4;
constexpr uint64_t kSlots = kQ + kRows * kHeads * kDim * 4;
constexpr uint64_t kTable = kSlots + kRows * 8;
constexpr uint64_t kLengths = kTable + kRows * kTableBlocks * 4;
constexpr uint64_t kCuQ = kLengths + kRows * 4;
constexpr uint64_t kInputEnd = kCuQ + (kRows + 1) * 4;
constexpr uint64_t kOut = (kInputEnd + 63) / 64 * 64;
constexpr uint64_t kOutBytes = kRows * kHeads * kDim * 4;
constexpr uint64_t kAllBytes = kOut + kOutBytes;

}  // namespace

class Graph : public Engine {
 protected:
    void SetUp() override {
        Engine::SetUp();
        void *pointer = nullptr;
        ASSERT_EQ(api().mem_alloc(rig_->device, kAllBytes, QUIRE_BE_MEMORY_DEVICE, &memory_,
                                  &pointer, &rig_->error),
                  QUIRE_OK);
        ASSERT_EQ(api().mem_alloc(rig_->device, kAllBytes, QUIRE_BE_MEMORY_HOST, &mirror_, &pointer,
                                  &rig_->error),
                  QUIRE_OK);
        host_ = static_cast<unsigned char *>(pointer);
        make_plan();
        ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK) << rig_->error.message;
        for (uint64_t i = 0; i < kSlots / 4; ++i) put_float(i * 4, std::sin(static_cast<float>(i)));
        for (uint32_t row = 0; row < kRows; ++row) {
            for (uint32_t i = 0; i < kTableBlocks; ++i) {
                put_int(kTable + (row * kTableBlocks + i) * 4, 1 + row + kRows * i);
            }
        }
        copy(mirror_, memory_, kAllBytes, QUIRE_BE_COPY_H2D);
    }
    void TearDown() override {
        api().plan_destroy(plan_);
        api().mem_free(rig_->device, memory_, kAllBytes, QUIRE_BE_MEMORY_DEVICE);
        api().mem_free(rig_->device, mirror_, kAllBytes, QUIRE_BE_MEMORY_HOST);
        Engine::TearDown();
    }

    void put_float(uint64_t at, float value) { std::memcpy(host_ + at, &value, 4); }
    void put_int(uint64_t at, uint32_t value) { std::memcpy(host_ + at, &value, 4); }

    // Rows of these lengths, with K, V and q of the new tokens made from
    // `seed`; length 0 is padding.
    void set_step(uint32_t first_length, uint32_t second_length, float seed) {
        for (uint64_t at = kK; at < kSlots; at += 4) {
            put_float(at, std::cos(seed + static_cast<float>(at)));
        }
        uint32_t cu_q = 0;
        const uint32_t lengths[kRows] = {first_length, second_length};
        for (uint32_t row = 0; row < kRows; ++row) {
            int64_t slot = -1;
            if (lengths[row] != 0) {
                uint32_t last = lengths[row] - 1;
                uint32_t block = 1 + row + kRows * (last / kBlockTokens);
                slot = int64_t{block} * kBlockTokens + last % kBlockTokens;
            }
            std::memcpy(host_ + kSlots + row * 8, &slot, 8);
            put_int(kLengths + row * 4, lengths[row]);
            put_int(kCuQ + row * 4, cu_q);
            if (lengths[row] != 0) ++cu_q;
        }
        put_int(kCuQ + kRows * 4, cu_q);
        copy(mirror_ + kK, memory_ + kK, kInputEnd - kK, QUIRE_BE_COPY_H2D);
        ASSERT_EQ(
            test::fill_range(api(), rig_->queue, memory_ + kOut, kOutBytes, 0xEE, &rig_->error),
            QUIRE_OK);
        ASSERT_EQ(sync(rig_->queue), QUIRE_OK) << rig_->error.message;
    }

    quire_status run(quire_be_queue *queue, uint32_t max_length) {
        if (quire_status status = write(queue)) return status;
        return attend(queue, max_length);
    }
    quire_status write(quire_be_queue *queue) {
        quire_be_pool pool = paged().pool();
        quire_be_kv_write args{};
        args.struct_size = sizeof args;
        args.token_count = kRows;
        args.dtype = QUIRE_DTYPE_F32;
        args.pool = &pool;
        args.k = memory_ + kK;
        args.v = memory_ + kV;
        args.slots = memory_ + kSlots;
        args.k_token_stride = args.v_token_stride = kDim;
        return api().kv_write(queue, &args, &rig_->error);
    }
    quire_status attend(quire_be_queue *queue, uint32_t max_length) {
        quire_be_pool pool = paged().pool();
        quire_be_attention args{};
        args.struct_size = sizeof args;
        args.pool = &pool;
        args.q = memory_ + kQ;
        args.out = memory_ + kOut;
        args.block_table = memory_ + kTable;
        args.lengths = memory_ + kLengths;
        args.cu_q = memory_ + kCuQ;
        args.q_token_stride = args.out_token_stride = int64_t{kHeads} * kDim;
        args.block_table_stride = kTableBlocks;
        args.row_count = args.query_tokens = kRows;
        args.max_length = max_length;
        return api().attention(queue, plan_, &args, &rig_->error);
    }

    void copy(uint64_t src, uint64_t dst, uint64_t size_bytes, uint32_t kind) {
        quire_be_copy one = {dst, src, size_bytes, kind, 0};
        ASSERT_EQ(api().copy(rig_->queue, &one, 1, &rig_->error), QUIRE_OK) << rig_->error.message;
        ASSERT_EQ(sync(rig_->queue), QUIRE_OK) << rig_->error.message;
    }
    quire_status sync(quire_be_queue *queue) {
        if (quire_status status =
                api().fence_signal(queue, rig_->fence, ++rig_->value, &rig_->error)) {
            return status;
        }
        return rig_->sync();
    }
    std::vector<unsigned char> result() {
        copy(memory_ + kOut, mirror_ + kOut, kOutBytes, QUIRE_BE_COPY_D2H);
        return {host_ + kOut, host_ + kOut + kOutBytes};
    }

 private:
    Paged paged() const {
        return {memory_,         kPoolBytes, kRows * kTableBlocks + 1, kBlockTokens, kDim,
                QUIRE_DTYPE_F32, 4};
    }
    void make_plan() {
        quire_be_plan_desc desc = paged().plan(kHeads, kRows, kRows, kTableBlocks);
        ASSERT_EQ(api().plan_create(rig_->device, &desc, &plan_, &rig_->error), QUIRE_OK)
            << rig_->error.message;
    }

    quire_be_plan *plan_ = nullptr;
    uint64_t memory_ = 0;
    uint64_t mirror_ = 0;
    unsigned char *host_ = nullptr;
};

TEST_P(Graph, replays_with_new_lengths_tables_and_tokens) {
    set_step(3, 5, 0.5f);
    std::vector<unsigned char> untouched = result();
    begin_capture();
    ASSERT_EQ(run(bound_, 5), QUIRE_OK) << rig_->error.message;
    ASSERT_EQ(end_capture(), 0);
    EXPECT_EQ(result(), untouched) << "a captured call ran";
    const uint32_t lengths[][kRows] = {{3, 5}, {4, 6}, {600, 17}, {16, 1280}, {9, 0}, {0, 700}};
    float seed = 1.0f;
    for (auto [first, second] : lengths) {
        set_step(first, second, seed += 1.0f);
        launch();
        ASSERT_EQ(sync(bound_), QUIRE_OK) << rig_->error.message;
        std::vector<unsigned char> replayed = result();
        set_step(first, second, seed);
        ASSERT_EQ(run(rig_->queue, std::max(first, second)), QUIRE_OK) << rig_->error.message;
        EXPECT_EQ(replayed, result()) << first << " and " << second;
        EXPECT_NE(replayed, untouched);
    }
}

TEST_P(Graph, calls_between_launches_do_not_disturb_it) {
    set_step(3, 5, 0.5f);
    begin_capture();
    ASSERT_EQ(run(bound_, 5), QUIRE_OK);
    ASSERT_EQ(end_capture(), 0);
    launch();
    ASSERT_EQ(sync(bound_), QUIRE_OK);
    std::vector<unsigned char> first = result();
    set_step(1000, 900, 0.5f);
    ASSERT_EQ(run(bound_, 1000), QUIRE_OK);
    ASSERT_EQ(sync(bound_), QUIRE_OK);
    set_step(3, 5, 0.5f);
    launch();
    ASSERT_EQ(sync(bound_), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(result(), first);
}

TEST_P(Graph, what_cannot_run_again_is_refused_and_breaks_nothing) {
    set_step(3, 5, 0.5f);
    quire_be_copy piece = {rig_->address, rig_->host_address, 16, QUIRE_BE_COPY_H2D, 0};
    quire_be_copy large = {rig_->address, rig_->address + Rig::kBytes / 2, Rig::kBytes / 2,
                           QUIRE_BE_COPY_D2D, 0};
    quire_be_move move = {0, 1};
    quire_be_pool pool = rig_->pool();
    quire_native event = as_event(event_);
    uint64_t value = rig_->value;
    begin_capture();
    auto expect_busy = [&](quire_status status, const char *what) {
        EXPECT_EQ(status, QUIRE_E_BUSY) << what;
        EXPECT_TRUE(has(rig_->error, "capture")) << what << ": " << rig_->error.message;
    };
    quire_error *error = &rig_->error;
    expect_busy(api().copy(bound_, &piece, 1, error), "copy");
    expect_busy(api().copy(bound_, &large, 1, error), "large copy");
    expect_busy(test::fill_range(api(), bound_, rig_->address, 16, 1, error), "fill");
    expect_busy(api().move_tokens(bound_, &pool, &move, 1, error), "move");
    expect_busy(api().fence_signal(bound_, rig_->fence, value + 1, error), "signal");
    expect_busy(api().fence_wait(bound_, rig_->fence, value, error), "wait");
    expect_busy(api().native_signal(bound_, &event, error), "event");
    expect_busy(api().native_wait(bound_, &event, error), "wait for an event");
    ASSERT_EQ(run(bound_, 5), QUIRE_OK) << rig_->error.message;
    uint64_t seen = 0;
    EXPECT_EQ(api().fence_read(rig_->fence, &seen, error), QUIRE_OK);
    EXPECT_EQ(seen, value) << "a fence that was refused failed";
    ASSERT_EQ(end_capture(), 0) << "a refused call broke the capture";
    launch();
    EXPECT_EQ(sync(bound_), QUIRE_OK) << rig_->error.message;
}

// The engine queries its stream, which breaks the capture.
TEST_P(Graph, capture_that_broke_leaves_the_queue_serving) {
    set_step(3, 5, 0.5f);
    begin_capture();
    ASSERT_EQ(write(bound_), QUIRE_OK);
    of_engine<int (*)(void *)>(call_of("cuStreamQuery", "hipStreamQuery"))(stream_);
    uint64_t launches = calls(vendor().launch);
    EXPECT_EQ(attend(bound_, 5), QUIRE_E_BUSY);
    EXPECT_TRUE(has(rig_->error, "end the capture")) << rig_->error.message;
    EXPECT_EQ(calls(vendor().launch), launches) << "some drivers run it at once";
    uint64_t value = rig_->value;
    EXPECT_EQ(api().fence_signal(bound_, rig_->fence, value + 1, &rig_->error), QUIRE_E_BUSY);
    EXPECT_NE(end_capture(), 0);
    ASSERT_EQ(run(bound_, 5), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(sync(bound_), QUIRE_OK) << rig_->error.message;
}

TEST_P(Graph, fault_of_a_replay_is_told_by_later_calls) {
    set_step(3, 5, 0.5f);
    begin_capture();
    ASSERT_EQ(run(bound_, 5), QUIRE_OK);
    ASSERT_EQ(end_capture(), 0);
    set_step(1281, 5, 0.5f);
    launch();
    EXPECT_EQ(api().fence_signal(bound_, rig_->fence, ++rig_->value, &rig_->error), QUIRE_OK);
    EXPECT_NE(rig_->sync(), QUIRE_OK);
    EXPECT_EQ(run(bound_, 5), QUIRE_E_DEVICE_LOST);
    EXPECT_TRUE(has(rig_->error, "slot 2576")) << rig_->error.message;
    api().fence_destroy(rig_->fence);
    ASSERT_EQ(api().fence_create(rig_->device, 0, &rig_->fence, &rig_->error), QUIRE_OK);
    rig_->value = 0;
}

// While capturing, a call makes the same driver calls as one that runs, plus
// the query for a capture.
TEST_P(Graph, capture_neither_waits_nor_allocates) {
    set_step(3, 5, 0.5f);
    ASSERT_EQ(run(bound_, 5), QUIRE_OK);
    ASSERT_EQ(sync(bound_), QUIRE_OK);
    begin_capture();
    std::vector<const char *> known = vendor().of_a_step;
    known.push_back(call_of("cuStreamIsCapturing", "hipStreamIsCapturing"));
    uint64_t before = calls(nullptr), of_a_step = 0;
    for (const char *name : known) of_a_step -= calls(name);
    ASSERT_EQ(run(bound_, 5), QUIRE_OK);
    for (const char *name : known) of_a_step += calls(name);
    EXPECT_GT(of_a_step, 5u);
    EXPECT_EQ(calls(nullptr) - before, of_a_step) << "something else was called";
    ASSERT_EQ(end_capture(), 0);
}

// The emulator's driver refuses misuse that a real one does not check.
TEST_P(Graph, is_not_what_is_launched_of_it) {
    constexpr int kInvalidValue = 1;
    auto of = [&](const char *of_cuda, const char *of_hip) {
        return of_engine<int (*)(void *)>(call_of(of_cuda, of_hip));
    };
    auto launch = of_engine<int (*)(void *, void *)>(call_of("cuGraphLaunch", "hipGraphLaunch"));
    void *captured = nullptr;
    begin_capture();
    auto end =
        of_engine<int (*)(void *, void **)>(call_of("cuStreamEndCapture", "hipStreamEndCapture"));
    ASSERT_EQ(end(stream_, &captured), 0);
    EXPECT_EQ(launch(captured, stream_), kInvalidValue);
    EXPECT_EQ(of("cuGraphExecDestroy", "hipGraphExecDestroy")(captured), kInvalidValue);
    EXPECT_EQ(of("cuGraphDestroy", "hipGraphDestroy")(captured), 0);
    begin_capture();
    ASSERT_EQ(end_capture(), 0);
    EXPECT_EQ(of("cuGraphDestroy", "hipGraphDestroy")(graph_), kInvalidValue);
    ASSERT_EQ(launch(graph_, stream_), 0);
}

INSTANTIATE_TEST_SUITE_P(Vendors, Graph, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
