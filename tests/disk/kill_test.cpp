// SPDX-License-Identifier: Apache-2.0
//
// Processes that are killed while they put and remove. The system keeps what they wrote, so all
// that was answered DONE before is there after the reopen.
//
// The child tells of each change in memory that it shares with the test: before it submits one, and
// after it was answered.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <random>

#include "effort.hpp"
#include "scene.hpp"

namespace quire::disk::tests {

namespace {

constexpr uint64_t kKeys = 24;

uint64_t size_of(uint64_t key, uint64_t version) { return 1 + (key * 977 + version * 31) % 15'000; }

// The newest change of a key. Version 0: it is not there.
struct Told {
    std::atomic<uint64_t> tried{0};
    std::atomic<uint64_t> done{0};
};

struct Shared {
    std::atomic<uint64_t> changes{0};
    std::atomic<bool> is_open{false};
    Told told[kKeys];
};

[[noreturn]] void put_and_remove(const Options &options, Shared *shared, uint64_t seed) {
    std::mt19937_64 random(seed);
    Session session(options);
    shared->is_open = true;
    for (;;) {
        uint64_t key = random() % kKeys;
        Told &told = shared->told[key];
        bool removes = session.has(label_of(key));
        uint64_t version = removes ? 0 : ++shared->changes;
        told.tried = version;
        quire_store_answer answer =
            removes ? session.ask(QUIRE_STORE_REMOVE, label_of(key))
                    : session.put(label_of(key), value_of(key, version, size_of(key, version)));
        if (answer.outcome != QUIRE_STORE_DONE) _exit(3);
        told.done = version;
        if (random() % 64 == 0) session.ask(QUIRE_STORE_COMPACT);
    }
}

// Checks the store after a kill, and takes over what it holds.
void verify(const Options &options, Shared *shared) {
    Session session(options);
    for (uint64_t key = 0; key < kKeys; ++key) {
        Told &told = shared->told[key];
        std::optional<Bytes> value = session.get(label_of(key));
        bool is_right = false;
        for (uint64_t version : {told.tried.load(), told.done.load()}) {
            bool is_it = version == 0 ? !value.has_value()
                                      : value == value_of(key, version, size_of(key, version));
            if (!is_it) continue;
            is_right = true;
            told.tried = told.done = version;
            break;
        }
        EXPECT_TRUE(is_right) << "key " << key << ", tried " << told.tried << ", done " << told.done
                              << ", is there: " << value.has_value();
    }
    EXPECT_EQ(session.stats().evicted, 0u);
}

TEST(DiskKill, what_was_answered_is_there_after_each_kill) {
    // On a disk most time goes by in syncs.
    Folder folders[2] = {Folder(true), Folder(false)};
    void *memory = mmap(nullptr, 2 * sizeof(Shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto *shared = static_cast<Shared *>(memory);
    uint64_t kills = 0;
    for (uint64_t seed : quire::tests::seeds(1, {2000, 200, 20})) {
        std::mt19937_64 random(seed);
        bool on_disk = seed % 8 == 1;
        Options options = small_options(folders[on_disk].path());
        options.capacity_bytes = 8 * 1024 * kKiB;
        options.io = seed % 2 == 0 ? IoChoice::automatic : IoChoice::threads;
        options.durability = static_cast<Durability>(seed % 3);
        shared[on_disk].is_open = false;
        pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) put_and_remove(options, &shared[on_disk], seed);
        // Some while it opens, most among its changes.
        if (seed % 8 != 0) {
            while (!shared[on_disk].is_open) usleep(100);
        }
        usleep(static_cast<useconds_t>(random() % 15'000));
        kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
        verify(options, &shared[on_disk]);
        ++kills;
        if (HasFailure()) break;
    }
    std::printf("%llu kills, %llu puts\n", static_cast<unsigned long long>(kills),
                static_cast<unsigned long long>(shared[0].changes + shared[1].changes));
    munmap(memory, 2 * sizeof(Shared));
}

}  // namespace

}  // namespace quire::disk::tests
