// SPDX-License-Identifier: Apache-2.0
//
// Indices in device memory that lie outside the pool. The contract allows a device any
// behaviour for them. backends/cpu promises to stop the queue and to report why. So do
// backends/cuda, hip and vulkan, except that they still write the call's other tokens and may
// still run later fills and copies.

#include <cstring>

#include "attention_case.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "tests/device/fill_range.hpp"

namespace quire::conformance {

class FaultTest : public SubjectTest {
 protected:
    FaultTest() : SubjectTest(Needs::attention) {}
    void SetUp() override {
        for (const char *name : {"cpu", "cuda", "hip", "vulkan"}) {
            if (std::strcmp(api().name, name) == 0) return SubjectTest::SetUp();
        }
        GTEST_SKIP() << "a promise of the cpu, cuda, hip and vulkan backends";
    }
};

namespace {

AttentionSpec plain_spec() {
    AttentionSpec spec;
    spec.shape.struct_size = sizeof spec.shape;
    spec.shape.q_heads = 4;
    spec.shape.kv_heads = 2;
    spec.shape.k_head_dim = spec.shape.v_head_dim = 64;
    spec.shape.q_dtype = spec.shape.k_dtype = spec.shape.v_dtype = QUIRE_DTYPE_F32;
    spec.shape.block_tokens = 16;
    spec.rows = {{0, 60, 1}};
    return spec;
}

// The case's run ends in a failed fence; afterwards the queue reports why.
void expect_stopped(const AttentionCase &attention, const char *word) {
    Rig rig;
    EXPECT_THROW(attention.run(rig), std::runtime_error);
    Memory memory(rig, 1);
    Error error;
    expect_refused(test::fill_range(api(), rig.queue(), memory.address(), 1, 0, &error), error,
                   QUIRE_E_DEVICE_LOST);
    EXPECT_NE(std::strstr(error.message, word), nullptr) << error.message;
    // Other queues of the device keep running.
    quire_be_queue *other = rig.new_queue();
    rig.sync(other);
}

}  // namespace

TEST_F(FaultTest, length_whose_last_chunk_has_no_end_stops_the_queue) {
    if (std::strcmp(api().name, "cuda") != 0 && std::strcmp(api().name, "hip") != 0) {
        GTEST_SKIP() << "a promise of the cuda and hip backends";
    }
    for (int32_t length : {INT32_MAX - 511, INT32_MAX}) {
        AttentionCase attention(plain_spec());
        attention.lengths()[0] = length;
        expect_stopped(attention, "length 2147483");
    }
}

TEST_F(FaultTest, block_outside_the_pool_stops_the_queue) {
    for (int32_t block : {-1, 1'000'000, INT32_MAX}) {
        AttentionCase attention(plain_spec());
        attention.block_table()[1] = block;
        expect_stopped(attention, "block");
    }
}

TEST_F(FaultTest, length_beyond_the_table_stops_the_queue) {
    AttentionCase attention(plain_spec());
    attention.lengths()[0] = 10'000;
    expect_stopped(attention, "tokens");
    attention.lengths()[0] = -1;
    expect_stopped(attention, "length");
}

TEST_F(FaultTest, mask_that_leads_outside_the_row_stops_the_queue) {
    AttentionSpec spec = plain_spec();
    spec.shape.flags = QUIRE_ATTENTION_MASK;
    spec.rows = {{0, 60, 5}, {1, 20, 3}};
    spec.rows[1].masked_tokens = 2;
    spec.rows[1].mask_first = 4;
    struct {
        const char *word;
        void (*plant)(OracleInput &input);
    } const bad[] = {
        {"the invalid mask word index -2", [](auto &in) { in.mask_rows[6] = -2; }},
        {"begins at key 21, outside its 20 keys", [](auto &in) { in.mask_first[1] = 21; }},
        {"begins at key -1, outside its 20 keys", [](auto &in) { in.mask_first[1] = -1; }},
        {"the invalid position -1", [](auto &in) { in.positions[7] = -1; }},
    };
    for (const auto &one : bad) {
        AttentionCase attention(spec);
        one.plant(attention.planted());
        expect_stopped(attention, one.word);
    }
    // Entries of tokens without a mask are not read.
    AttentionCase attention(spec);
    attention.planted().mask_first[0] = -9;
    attention.planted().positions[0] = -9;
    Rig rig;
    EXPECT_LE(AttentionCase(spec).compare(attention.run(rig)), 1.0);
}

TEST_F(FaultTest, shared_prefix_that_is_none_stops_the_queue) {
    AttentionSpec spec = plain_spec();
    spec.tells_shared = true;
    spec.rows = {{0, 60, 1}, {1, 60, 1, 32}};
    for (auto [row, count] : {std::pair{1, 3}, {1, -1}, {1, 1'000'000}, {0, 1}}) {
        AttentionCase attention(spec);
        attention.shared_prefix()[static_cast<size_t>(row)] = count;
        expect_stopped(attention, "share");
    }
}

TEST_F(FaultTest, sink_block_outside_the_pool_stops_the_queue_and_a_dropped_one_does_not) {
    AttentionSpec spec = plain_spec();
    spec.shape.group_kind = QUIRE_GROUP_WINDOW;
    spec.shape.window = 16;
    spec.shape.sink_tokens = 4;
    spec.rows = {{0, 100, 1}};
    AttentionCase attention(spec);
    attention.block_table()[0] = 1'000'000;
    expect_stopped(attention, "block");
    AttentionCase dropped(spec);
    dropped.block_table()[1] = 1'000'000;
    Rig rig;
    EXPECT_LE(dropped.compare(dropped.run(rig)), 1.0);
}

TEST_F(FaultTest, slot_outside_the_pool_writes_nothing_and_stops_the_queue) {
    bool is_alone = std::strcmp(api().name, "cpu") == 0;
    Rig rig;
    AttentionSpec spec = plain_spec();
    quire_be_pool pool = make_pool(spec.shape, Layout::head_major, 1, 4, 0);
    Guarded memory(rig, pool.size_bytes);
    std::vector<unsigned char> before = memory.read();
    pool.address = memory.address();
    Memory given(rig, 4096);
    Memory slots(rig, 64);
    int64_t values[] = {is_alone ? 3 : -1, 64};  // of 64 slots
    rig.write(slots.address(), values, sizeof values);
    quire_be_kv_write args = {sizeof args,
                              0,
                              2,
                              QUIRE_DTYPE_F32,
                              &pool,
                              given.address(),
                              given.address(),
                              slots.address(),
                              128,
                              128,
                              nullptr,
                              0,
                              0,
                              0};
    Error error;
    must(api().kv_write(rig.queue(), &args, &error), error);
    EXPECT_EQ(api().quiesce(rig.device(), patience_ns(), &error), QUIRE_OK);
    expect_refused(api().kv_write(rig.queue(), &args, &error), error, QUIRE_E_DEVICE_LOST);
    EXPECT_NE(std::strstr(error.message, "slot 64"), nullptr) << error.message;
    quire_be_queue *other = rig.new_queue();
    EXPECT_TRUE(rig.read_through(other, memory.address(), pool.size_bytes) == before);
}

TEST_F(FaultTest, work_behind_a_fault_does_not_run) {
    if (std::strcmp(api().name, "cpu") != 0) GTEST_SKIP() << "a promise of the cpu backend";
    Rig rig;
    quire_be_queue *other = rig.new_queue();
    AttentionSpec spec = plain_spec();
    quire_be_pool pool = make_pool(spec.shape, Layout::head_major, 1, 4, 0);
    Memory memory(rig, pool.size_bytes);
    pool.address = memory.address();
    Memory slots(rig, 64);
    int64_t slot = INT64_MAX;
    rig.write(slots.address(), &slot, sizeof slot);
    Fence go(rig);
    Fence done(rig);
    rig.wait(rig.queue(), go, 1);
    quire_be_kv_write args = {sizeof args,
                              0,
                              1,
                              QUIRE_DTYPE_F32,
                              &pool,
                              memory.address(),
                              memory.address(),
                              slots.address(),
                              128,
                              128,
                              nullptr,
                              0,
                              0,
                              0};
    Error error;
    must(api().kv_write(rig.queue(), &args, &error), error);
    rig.fill(rig.queue(), memory.address(), 64, 0xEE);
    rig.signal(rig.queue(), done, 1);
    go.signal_host(1);
    EXPECT_EQ(done.wait_host(1), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(done.read(), kFenceFailed);
    EXPECT_EQ(rig.read_through(other, memory.address(), 64), std::vector<unsigned char>(64, 0));
}

}  // namespace quire::conformance
