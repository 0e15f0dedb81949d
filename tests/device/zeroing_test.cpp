// SPDX-License-Identifier: Apache-2.0
//
// A block that another namespace wrote reads as zeros everywhere, in the pool itself, once the step
// that hands it over is committed and before any write of that step.

#include <algorithm>
#include <cstring>

#include "cpu_cache.hpp"

namespace quire::test {

namespace {

constexpr unsigned char kWritten = 0xEE;

struct Pool : testing::Test {
    explicit Pool(uint32_t flags = 0) : cpu({.blocks = 5, .flags = flags}) {}

    CpuCache cpu;  // of five blocks, including the null block
    quire_queue *queue = nullptr;
    quire_namespace other = 0;
    quire_pool_info pool = described<quire_pool_info>();

    void SetUp() override {
        cpu.must(cpu.api.queue_create(cpu.device, nullptr, &queue, &cpu.error));
        auto desc = described<quire_namespace_desc>();
        cpu.must(cpu.api.namespace_create(cpu.cache, &desc, &other, &cpu.error));
        cpu.must(cpu.api.cache_get_pool(cpu.cache, 0, 0, &pool, &cpu.error));
    }
    void TearDown() override {
        // Beginning a step notices which steps are done, and these release the queue.
        quire_step step = begin_without_items();
        cpu.must(cpu.api.step_abort(cpu.cache, step, &cpu.error));
        cpu.must(cpu.api.queue_destroy(queue, &cpu.error));
    }

    quire_seq sequence(quire_namespace ns) {
        auto desc = described<quire_seq_desc>();
        desc.ns = ns;
        quire_seq seq = 0;
        cpu.must(cpu.api.seq_create(cpu.cache, &desc, &seq, &cpu.error));
        return seq;
    }
    void end(quire_seq seq) { cpu.must(cpu.api.seq_end(cpu.cache, seq, 0, &cpu.error)); }

    quire_step begin_without_items() {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue;
        desc.queue_count = 1;
        quire_step step = 0;
        cpu.must(cpu.api.step_begin(cpu.cache, &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step,
                                    &cpu.error));
        return step;
    }
    quire_step commit(quire_seq seq, uint32_t token_count) {
        quire_step_result result{};
        quire_step step = cpu.begin(queue, seq, std::vector<uint32_t>(token_count, 3), &result);
        EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
        cpu.must(cpu.api.step_commit(cpu.cache, step, nullptr, &cpu.error));
        cpu.must(cpu.api.queue_sync(queue, &cpu.error));
        return step;
    }
    void finish(quire_step step, uint32_t outcome = QUIRE_STEP_OK) {
        cpu.must(cpu.api.step_finish(cpu.cache, step, nullptr, outcome, &cpu.error));
        cpu.must(cpu.api.queue_sync(queue, &cpu.error));
    }

    unsigned char *bytes_of(int32_t block) const {
        return reinterpret_cast<unsigned char *>(pool.address) + block * pool.block_stride;
    }
    std::vector<int32_t> table(quire_seq seq) {
        std::vector<int32_t> ids(8);
        uint32_t count = 0;
        cpu.must(cpu.api.step_blocks(cpu.cache, 0, seq, 0, 0, ids.data(), 8, &count, &cpu.error));
        ids.resize(count);
        return ids;
    }
    void write(quire_seq seq) {
        for (int32_t block : table(seq)) std::memset(bytes_of(block), kWritten, stride());
    }
    // Bytes of the sequence's blocks that hold `byte`.
    size_t count(quire_seq seq, unsigned char byte) {
        size_t found = 0;
        for (int32_t block : table(seq)) {
            found +=
                static_cast<size_t>(std::count(bytes_of(block), bytes_of(block) + stride(), byte));
        }
        return found;
    }
    size_t stride() const { return static_cast<size_t>(pool.block_stride); }

    // Moves the cache to another device, whose pool has as many blocks.
    void migrate() {
        quire_device *target = nullptr;
        auto device = described<quire_device_desc>();
        device.backend = "cpu";
        cpu.must(cpu.api.device_open(cpu.instance, &device, &target, &cpu.error));
        auto shard = described<quire_shard_desc>();
        shard.device = target;
        auto desc = described<quire_migrate_desc>();
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        auto info = described<quire_migrate_info>();
        cpu.must(cpu.api.cache_migrate(cpu.cache, &desc, &info, &cpu.error));
        cpu.must(cpu.api.queue_destroy(queue, &cpu.error));
        cpu.must(cpu.api.device_close(cpu.device, &cpu.error));
        cpu.device = target;
        cpu.must(cpu.api.queue_create(cpu.device, nullptr, &queue, &cpu.error));
        cpu.must(cpu.api.cache_get_pool(cpu.cache, 0, 0, &pool, &cpu.error));
    }

    // A sequence of the default namespace writes every block and ends.
    void fill_by_a_tenant() {
        quire_seq seq = sequence(0);
        quire_step step = commit(seq, 64);
        write(seq);
        finish(step);
        EXPECT_EQ(count(seq, kWritten), 4 * stride());
        end(seq);
    }
};

using Zeroing = Pool;

struct ZeroOnFree : Pool {
    ZeroOnFree() : Pool(QUIRE_CACHE_ZERO_ON_FREE | QUIRE_CACHE_NO_PREFIX) {}

    size_t written_bytes() const {
        return static_cast<size_t>(std::count(bytes_of(1), bytes_of(5), kWritten));
    }
    void pass_a_step() {
        quire_step step = begin_without_items();
        cpu.must(cpu.api.step_commit(cpu.cache, step, nullptr, &cpu.error));
        finish(step);
    }
};

}  // namespace

TEST_F(Zeroing, second_tenants_blocks_are_zeros_before_it_writes) {
    fill_by_a_tenant();
    quire_seq seq = sequence(other);
    quire_step step = commit(seq, 50);
    EXPECT_EQ(count(seq, 0), 4 * stride());
    finish(step);
    end(seq);
}

// The second tenant's blocks were zeroed just before the cache moved. That counts for no one who
// gets them afterwards.
TEST_F(Zeroing, blocks_are_zeroed_for_the_next_tenant_after_a_migration_too) {
    fill_by_a_tenant();
    quire_seq seq = sequence(other);
    quire_step step = commit(seq, 64);
    write(seq);
    finish(step);
    end(seq);
    migrate();
    seq = sequence(0);
    step = commit(seq, 64);
    EXPECT_EQ(count(seq, 0), 4 * stride());
    finish(step);
    end(seq);
}

TEST_F(Zeroing, first_tenants_own_blocks_are_left_as_they_are) {
    fill_by_a_tenant();
    quire_seq seq = sequence(0);
    quire_step step = commit(seq, 50);
    EXPECT_EQ(count(seq, kWritten), 4 * stride());
    finish(step);
    end(seq);
}

TEST_F(Zeroing, copied_tail_of_a_fork_shows_nobody_elses) {
    fill_by_a_tenant();
    quire_seq seq = sequence(other);
    finish(commit(seq, 20));
    quire_seq fork = 0;
    cpu.must(cpu.api.seq_fork(cpu.cache, seq, 20, &fork, &cpu.error));
    quire_step step = commit(fork, 1);
    EXPECT_NE(table(fork)[1], table(seq)[1]);
    EXPECT_EQ(count(fork, 0), 2 * stride());
    finish(step);
    end(fork);
    end(seq);
}

TEST_F(Zeroing, step_that_failed_is_zeroed_again) {
    fill_by_a_tenant();
    quire_seq seq = sequence(other);
    quire_step failed = commit(seq, 50);
    // As if the fill had not run.
    write(seq);
    finish(failed, QUIRE_STEP_FAILED);
    quire_step_result result{};
    quire_step step = cpu.begin(queue, seq, {}, &result);
    EXPECT_EQ(result.compute_count, 50u);
    cpu.must(cpu.api.step_commit(cpu.cache, step, nullptr, &cpu.error));
    cpu.must(cpu.api.queue_sync(queue, &cpu.error));
    EXPECT_EQ(count(seq, 0), 4 * stride());
    finish(step);
    end(seq);
}

// Two adjacent blocks and one apart from them: two ranges of one call.
TEST_F(ZeroOnFree, blocks_that_are_no_neighbours_are_zeroed_and_the_one_between_is_kept) {
    quire_seq seqs[4] = {};
    for (quire_seq &seq : seqs) {
        seq = sequence(0);
        quire_step step = commit(seq, 16);
        write(seq);
        finish(step);
    }
    auto is_third = [&](quire_seq seq) { return table(seq)[0] == 3; };
    quire_seq kept = *std::find_if(std::begin(seqs), std::end(seqs), is_third);
    for (quire_seq seq : seqs) {
        if (seq != kept) end(seq);
    }
    pass_a_step();
    EXPECT_EQ(written_bytes(), stride());
    EXPECT_EQ(count(kept, kWritten), stride());
    end(kept);
}

TEST_F(ZeroOnFree, pool_holds_nothing_of_a_sequence_that_ended_and_a_step_that_followed) {
    fill_by_a_tenant();
    EXPECT_EQ(written_bytes(), 4 * stride());
    pass_a_step();
    EXPECT_EQ(written_bytes(), 0u);
}

}  // namespace quire::test
