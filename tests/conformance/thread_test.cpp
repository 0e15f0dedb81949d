// SPDX-License-Identifier: Apache-2.0
//
// The threads of backends/cpu are named, and block signals, so that a process's handlers run on the
// process's own threads.

#include <sched.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "subject.hpp"

namespace quire::conformance {

namespace {

struct Thread {
    std::string name;
    uint64_t blocked_signals;
    std::string cores;  // in the kernel's list format: 0-3,7
};

std::vector<Thread> threads_named(const std::string &beginning) {
    std::vector<Thread> threads;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream status(task.path() / "status");
        Thread thread{};
        for (std::string word; status >> word;) {
            if (word == "Name:") status >> thread.name;
            if (word == "SigBlk:") status >> std::hex >> thread.blocked_signals;
            if (word == "Cpus_allowed_list:") status >> thread.cores;
        }
        if (thread.name.starts_with(beginning)) threads.push_back(thread);
    }
    return threads;
}

// Closing a device does not wait for the kernel to take its threads off the list: a queue's thread
// is detached, and has left the device a moment before it ends.
bool all_have_ended() {
    for (int i = 0; i < 1000 && !threads_named("quire-cpu").empty(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return threads_named("quire-cpu").empty();
}

}  // namespace

class ThreadTest : public SubjectTest {
 protected:
    void SetUp() override {
        if (std::strcmp(api().name, "cpu") != 0) GTEST_SKIP() << "a promise of the cpu backend";
        SubjectTest::SetUp();
        ASSERT_TRUE(all_have_ended()) << "threads of an earlier test's devices are left";
    }
};

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

TEST_F(ThreadTest, each_stays_on_its_core_where_that_is_asked_for) {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    std::vector<std::string> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &allowed)) cores.push_back(std::to_string(core));
    }
    quire_be_device_desc desc = device_desc(0, static_cast<uint32_t>(cores.size()) + 2);
    desc.flags = QUIRE_BE_DEVICE_PIN_THREADS;
    Rig rig(desc);
    std::vector<Thread> pinned = threads_named("quire-cpu-");
    EXPECT_EQ(pinned.size(), desc.threads);
    for (const Thread &thread : pinned) {
        std::string number = thread.name.substr(std::strlen("quire-cpu-"));
        size_t place = number == "queue" ? 0 : std::stoul(number);
        EXPECT_EQ(thread.cores, cores[place % cores.size()]) << thread.name;
    }
}

TEST_F(ThreadTest, none_is_left_behind_a_closed_device) {
    for (int i = 0; i < 20; ++i) {
        Rig rig(2);
        rig.new_queue();
    }
    EXPECT_TRUE(all_have_ended());
}

}  // namespace quire::conformance
