// SPDX-License-Identifier: Apache-2.0
//
// Sessions that take time or room: a last step that has not run yet, blocks larger than a piece,
// and files that the system does not write or read.

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "session_rig.hpp"

namespace {

using namespace quire::test;

// A sequence on a device whose queue waits for a gate.
class SessionWait : public testing::Test {
 protected:
    SessionWait() : cache(CacheShape{.blocks = 9, .block_tokens = 4, .head_dim = 8}) {
        cache.must(api().queue_create(cache.device, nullptr, &queue, &cache.error));
        cache.must(api().fence_create(cache.device, 0, &gate, &cache.error));
        seq = cache.create();
        cache.must(api().queue_after(queue, gate, 1, &cache.error));
        run(seq);
    }
    ~SessionWait() override {
        open_gate();
        cache.must(api().queue_sync(queue, &cache.error));
        quire_step_result result{};
        cache.must(api().step_abort(cache.cache, cache.begin(queue, seq, {9}, &result),
                                    &cache.error));  // which notices that all has run
        cache.must(api().fence_destroy(gate, &cache.error));
        cache.must(api().queue_destroy(queue, &cache.error));
    }

    const quire_api &api() { return cache.api; }
    void run(quire_seq which) {
        quire_step_result result{};
        const quire_step step = cache.begin(queue, which, tokens_from(1, 9), &result);
        cache.must(api().step_commit(cache.cache, step, nullptr, &cache.error));
        cache.must(api().step_finish(cache.cache, step, nullptr, QUIRE_STEP_OK, &cache.error));
    }
    void open_gate() { api().fence_signal(gate, 1, nullptr); }
    quire_status try_export(quire_seq which, uint64_t timeout_ns, SessionStream *stream) {
        const auto desc = export_desc(stream);
        return api().seq_export_wait(cache.cache, which, &desc, nullptr, timeout_ns, &cache.error);
    }

    CpuCache cache;
    quire_queue *queue = nullptr;
    quire_fence *gate = nullptr;
    quire_seq seq = 0;
};

TEST_F(SessionWait, for_the_last_step_ends_in_time_or_with_nothing_written) {
    for (uint64_t timeout_ns : {uint64_t{0}, uint64_t{2'000'000}}) {
        SessionStream stream;
        EXPECT_EQ(try_export(seq, timeout_ns, &stream), QUIRE_S_TIMEOUT);
        EXPECT_EQ(stream.calls, 0u);
    }
    const std::string folder = std::filesystem::temp_directory_path() / "quire-session-wait";
    std::filesystem::create_directory(folder);
    const auto desc = export_desc(nullptr);
    EXPECT_EQ(api().seq_save_wait(cache.cache, seq, &desc, (folder + "/a").c_str(), nullptr, 0,
                                  &cache.error),
              QUIRE_S_TIMEOUT);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    std::filesystem::remove_all(folder);
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        open_gate();
    });
    SessionStream stream;
    EXPECT_EQ(try_export(seq, UINT64_MAX, &stream), QUIRE_OK) << cache.error.message;
    later.join();
    EXPECT_EQ(stream.calls, 2u) << "the head and the blocks";
}

TEST_F(SessionWait, is_only_for_steps_up_to_the_last_of_the_sequence) {
    SessionStream stream;
    const quire_seq idle = cache.create();  // it has run in no step
    EXPECT_EQ(try_export(idle, 0, &stream), QUIRE_OK) << cache.error.message;
}

TEST_F(SessionWait, has_no_room_where_there_is_no_host_tier) {
    open_gate();
    SessionStream stream;
    ASSERT_EQ(try_export(seq, UINT64_MAX, &stream), QUIRE_OK) << cache.error.message;
    const auto desc = import_desc(&stream);
    quire_seq out = 99;
    EXPECT_EQ(api().seq_import(cache.cache, &desc, &out, nullptr, &cache.error), QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(out, 99u);
}

// A cache with large blocks: 1 layer, 32 heads of 128 elements, f32.
struct Large {
    explicit Large(uint32_t block_tokens, uint32_t max_tokens = 0) : own(CacheShape{.blocks = 2}) {
        auto group = described<quire_group_desc>();
        group.layer_count = 1;
        group.kv_heads = 32;
        group.k_head_dim = group.v_head_dim = 128;
        group.k_dtype = QUIRE_DTYPE_F32;
        auto shard = described<quire_shard_desc>();
        shard.device = own.device;
        auto desc = described<quire_cache_desc>();
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.block_tokens = block_tokens;
        desc.max_sequence_tokens = max_tokens;
        desc.blocks = 512 / block_tokens + 1;
        desc.host_blocks = 512 / block_tokens;
        std::swap(own.cache, small);
        own.must(own.api.cache_create(own.instance, &desc, &own.cache, &own.error));
        own.must(own.api.queue_create(own.device, nullptr, &queue, &own.error));
    }
    ~Large() {
        own.must(own.api.cache_destroy(own.cache, &own.error));
        std::swap(own.cache, small);
        own.must(own.api.queue_destroy(queue, &own.error));
    }

    CpuCache own;
    quire_cache *small = nullptr;
    quire_queue *queue = nullptr;
};

TEST(SessionPieces, are_blocks_of_up_to_4_mib_together_and_at_least_one) {
    // Blocks of 8 MiB go one by one; of those of 512 KiB, 7 fit with their headers.
    for (auto [block_tokens, calls] : {std::pair{256u, 3u}, std::pair{16u, 4u}}) {
        Large large(block_tokens);
        auto &c = large.own;
        const quire_seq seq = c.create();
        quire_step_result result{};
        const quire_step step = c.begin(large.queue, seq, tokens_from(1, 300), &result);
        c.must(c.api.step_commit(c.cache, step, nullptr, &c.error));
        c.must(c.api.step_finish(c.cache, step, nullptr, QUIRE_STEP_OK, &c.error));
        SessionStream out;
        const auto desc = export_desc(&out);
        ASSERT_EQ(c.api.seq_export_wait(c.cache, seq, &desc, nullptr, UINT64_MAX, &c.error),
                  QUIRE_OK)
            << c.error.message;
        EXPECT_EQ(out.calls, calls) << block_tokens;
        SessionStream in, again;
        in.bytes = out.bytes;
        const auto restore = import_desc(&in);
        quire_seq back = 0;
        ASSERT_EQ(c.api.seq_import(c.cache, &restore, &back, nullptr, &c.error), QUIRE_OK)
            << c.error.message;
        const auto save = export_desc(&again);
        ASSERT_EQ(c.api.seq_export_wait(c.cache, back, &save, nullptr, UINT64_MAX, &c.error),
                  QUIRE_OK);
        EXPECT_TRUE(again.bytes == out.bytes);
    }
}

TEST(SessionPieces, of_more_tokens_than_the_cache_takes_are_refused_at_once) {
    Large large(256), shorter(256, 256);
    auto &c = large.own;
    const quire_seq seq = c.create();
    quire_step_result result{};
    const quire_step step = c.begin(large.queue, seq, tokens_from(1, 300), &result);
    c.must(c.api.step_commit(c.cache, step, nullptr, &c.error));
    c.must(c.api.step_finish(c.cache, step, nullptr, QUIRE_STEP_OK, &c.error));
    SessionStream stream;
    const auto desc = export_desc(&stream);
    c.must(c.api.seq_export_wait(c.cache, seq, &desc, nullptr, UINT64_MAX, &c.error));
    stream.calls = 0;
    const auto restore = import_desc(&stream);
    quire_seq out = 0;
    auto &to = shorter.own;
    EXPECT_EQ(to.api.seq_import(to.cache, &restore, &out, nullptr, &to.error), QUIRE_E_LIMIT);
    EXPECT_NE(std::string(to.error.message).find("has 300 tokens, and max_sequence_tokens is 256"),
              std::string::npos)
        << to.error.message;
    EXPECT_EQ(stream.calls, 1u) << "only the header was read";
}

// Files are at most so large while it lives, as on a full disk.
struct FullDisk {
    explicit FullDisk(rlim_t bytes) {
        getrlimit(RLIMIT_FSIZE, &before);
        old_handler = std::signal(SIGXFSZ, SIG_IGN);
        rlimit limit = before;
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FullDisk() {
        setrlimit(RLIMIT_FSIZE, &before);
        std::signal(SIGXFSZ, old_handler);
    }
    rlimit before{};
    void (*old_handler)(int) = nullptr;
};

TEST(SessionDisk, that_is_full_is_said_so_and_keeps_the_old_file) {
    ShardedCache c(std::vector<Range>(1));
    Tokens known;
    const quire_seq seq = created(&c);
    advance(&c, seq, &known, tokens_from(1, 20));
    const std::string folder = std::filesystem::temp_directory_path() / "quire-session-disk";
    std::filesystem::create_directory(folder);
    const std::string path = folder + "/a";
    std::ofstream(path) << "old";
    const auto desc = export_desc(nullptr);
    for (rlim_t room : {rlim_t{1}, rlim_t{1000}, rlim_t{5000}}) {
        FullDisk disk(room);
        EXPECT_EQ(
            c.api.seq_save_wait(c.cache, seq, &desc, path.c_str(), nullptr, UINT64_MAX, &c.error),
            QUIRE_E_OS);
        EXPECT_EQ(c.error.native_code, EFBIG);
        EXPECT_NE(std::string(c.error.message).find("the session cannot be written"),
                  std::string::npos)
            << c.error.message;
        EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
        EXPECT_EQ(std::filesystem::file_size(path), 3u);
    }
    // A name without a folder is in the current one.
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder);
    EXPECT_EQ(c.api.seq_save_wait(c.cache, seq, &desc, "a", nullptr, UINT64_MAX, &c.error),
              QUIRE_OK)
        << c.error.message;
    std::filesystem::current_path(before);
    EXPECT_EQ(std::filesystem::file_size(path), exported(&c, seq).size());
    std::filesystem::remove_all(folder);
}

TEST(SessionDisk, that_cannot_be_read_is_said_so) {
    ShardedCache c(std::vector<Range>(1));
    const auto desc = import_desc(nullptr);
    quire_seq seq = 0;
    // A regular file whose first byte cannot be read: no memory lies at address 0.
    EXPECT_EQ(c.api.seq_restore(c.cache, &desc, "/proc/self/mem", &seq, nullptr, &c.error),
              QUIRE_E_OS);
    EXPECT_EQ(c.error.native_code, EIO);
    EXPECT_NE(std::string(c.error.message).find("cannot be read"), std::string::npos);
}

// Each thread exports and imports a sequence of its own, while another one runs steps.
TEST(SessionThreads, export_and_import_at_once_while_steps_go_on) {
    ShardedCache c(std::vector<Range>{{0, 0, 0, 2}, {0, 0, 2, 2}}, 40);
    constexpr uint32_t kThreads = 3;
    std::vector<quire_seq> sequences;
    std::vector<Bytes> bytes;
    for (uint32_t i = 0; i < kThreads; ++i) {
        Tokens known;
        sequences.push_back(created(&c));
        advance(&c, sequences[i], &known, tokens_from(100 * i, 9));
        bytes.push_back(exported(&c, sequences[i]));
    }
    std::atomic<uint32_t> running{kThreads}, imports{0};
    const auto work = [&](uint32_t i) {
        quire_error error{};
        error.struct_size = sizeof error;
        for (uint32_t round = 0; round < 30; ++round) {
            SessionStream out;
            const auto save = export_desc(&out);
            EXPECT_EQ(
                c.api.seq_export_wait(c.cache, sequences[i], &save, nullptr, UINT64_MAX, &error),
                QUIRE_OK)
                << error.message;
            EXPECT_EQ(out.bytes, bytes[i]);
            const auto restore = import_desc(&out);
            quire_seq back = 0;
            const quire_status status = c.api.seq_import(c.cache, &restore, &back, nullptr, &error);
            EXPECT_GE(status, 0) << error.message;
            if (status != QUIRE_OK) continue;  // the others took the room
            EXPECT_EQ(c.api.seq_end(c.cache, back, 0, &error), QUIRE_OK) << error.message;
            ++imports;
        }
        --running;
    };
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
    Tokens known;
    quire_seq seq = created(&c);
    while (running != 0) {
        advance(&c, seq, &known, tokens_from(static_cast<uint32_t>(known.size()), 3));
        if (known.size() < 30) continue;
        ended(&c, seq);
        known.clear();
        seq = created(&c);
    }
    for (std::thread &thread : threads) thread.join();
    EXPECT_GT(imports, 0u);
    c.must(c.api.cache_check(c.cache, &c.error));
    EXPECT_EQ(stats_of(&c).host_blocks_used, 0u);
}

}  // namespace
