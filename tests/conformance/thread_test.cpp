// SPDX-License-Identifier: Apache-2.0
//
// The threads of backends/cpu: named, and deaf to signals, so that a process's handlers run on the
// process's own threads.

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "subject.hpp"

namespace quire::conformance {

class ThreadTest : public SubjectTest {
 protected:
    void SetUp() override {
        if (std::strcmp(api().name, "cpu") != 0) GTEST_SKIP() << "a promise of the cpu backend";
        SubjectTest::SetUp();
    }
};

namespace {

struct Thread {
    std::string name;
    uint64_t blocked_signals;
};

std::vector<Thread> threads_named(const std::string &beginning) {
    std::vector<Thread> threads;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream status(task.path() / "status");
        Thread thread{};
        for (std::string word; status >> word;) {
            if (word == "Name:") status >> thread.name;
            if (word == "SigBlk:") status >> std::hex >> thread.blocked_signals;
        }
        if (thread.name.starts_with(beginning)) threads.push_back(thread);
    }
    return threads;
}

}  // namespace

TEST_F(ThreadTest, all_are_named_and_block_signals) {
    Rig rig(3);
    rig.new_queue();
    std::vector<Thread> threads = threads_named("quire-cpu");
    EXPECT_EQ(threads.size(), 4u) << "two helpers and two queues";
    for (const Thread &thread : threads) {
        for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD, SIGPIPE}) {
            EXPECT_NE(thread.blocked_signals >> (signal - 1) & 1, 0u) << thread.name << signal;
        }
    }
}

TEST_F(ThreadTest, none_is_left_behind_a_closed_device) {
    for (int i = 0; i < 20; ++i) {
        Rig rig(2);
        rig.new_queue();
    }
    // A detached worker is off the device's hands a moment before it is gone.
    for (int i = 0; i < 1000 && !threads_named("quire-cpu").empty(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(threads_named("quire-cpu").empty());
}

}  // namespace quire::conformance
