// SPDX-License-Identifier: Apache-2.0
//
// The library has an unwinder of its own. Exceptions that it throws internally, that a callback
// throws, and that the surrounding program throws or ends threads with, work as before.

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "counting_host.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

// Runs in a child, so that a lowered limit stays there; returns the child's exit status.
template <typename Body>
int in_child(Body &&body) {
    pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Unwind, memory_that_runs_out_within_the_library_becomes_a_status) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer's allocator ends the process when memory runs out";
#endif
    const quire_api &api = library();
    auto desc = described<quire_instance_desc>();
    desc.plugin_path = "/nowhere";
    EXPECT_EQ(in_child([&] {
                  rlimit limit{};
                  getrlimit(RLIMIT_AS, &limit);
                  limit.rlim_cur = 1 << 20;  // less than is mapped now, so mmap fails
                  setrlimit(RLIMIT_AS, &limit);
                  unsetenv("QUIRE_PLUGIN_PATH");
                  constexpr int most = 10'000'000;
                  for (int i = 0; i < most; ++i) {
                      quire_instance *instance = nullptr;
                      quire_status status = api.instance_create(&desc, &instance, nullptr);
                      if (status == QUIRE_E_HOST_MEMORY) return 42;
                      if (status != QUIRE_OK) return -status;
                  }
                  return 1;
              }),
              42);
}

TEST(Unwind, what_a_callback_throws_is_stopped_at_the_boundary) {
    CountingHost host;
    const quire_api &api = library();
    auto desc = host.description();
    desc.plugin_path = "/nowhere";
    quire_instance *instance = nullptr;
    ASSERT_EQ(api.instance_create(&desc, &instance, nullptr), QUIRE_OK);
    host.on_allocate = [] { throw std::runtime_error("a callback must not"); };
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    auto cache_desc = described<quire_cache_desc>();
    cache_desc.groups = &group;
    cache_desc.group_count = 1;
    cache_desc.group_stride = sizeof group;
    cache_desc.blocks = 8;
    quire_cache *cache = nullptr;
    EXPECT_EQ(api.cache_create(instance, &cache_desc, &cache, nullptr), QUIRE_E_INTERNAL);
    host.on_allocate = [] {
        try {
            throw std::runtime_error("caught where it was thrown");
        } catch (const std::runtime_error &) {
            return;
        }
    };
    EXPECT_EQ(api.cache_create(instance, &cache_desc, &cache, nullptr), QUIRE_OK);
    EXPECT_EQ(api.cache_destroy(cache, nullptr), QUIRE_OK);
    EXPECT_EQ(api.instance_destroy(instance, nullptr), QUIRE_OK);
    EXPECT_EQ(host.live_bytes, 0);
}

TEST(Unwind, the_programs_own_exceptions_find_their_handlers) {
    Manager m;
    m.compute(m.sequence(), tokens_from(1, 5));
    for (int i = 0; i < 100; ++i) {
        try {
            throw i;
        } catch (int caught) {
            EXPECT_EQ(caught, i);
        }
    }
}

struct Mark {
    bool *left;
    ~Mark() { *left = true; }
};

TEST(Unwind, threads_that_used_the_library_are_ended_through_their_destructors) {
    Manager m;
    quire_seq seq = m.sequence();
    struct Shared {
        Manager *m;
        quire_seq seq;
        bool left;
    };
    auto use = [](Shared *shared) {
        auto info = described<quire_seq_info>();
        shared->m->api().seq_get_info(shared->m->cache(), shared->seq, &info, nullptr);
    };
    static auto shared_use = use;
    Shared exits{&m, seq, false}, cancelled{&m, seq, false};
    pthread_t thread;
    auto leave = [](void *argument) -> void * {
        auto *shared = static_cast<Shared *>(argument);
        Mark mark{&shared->left};
        shared_use(shared);
        pthread_exit(nullptr);
    };
    ASSERT_EQ(pthread_create(&thread, nullptr, leave, &exits), 0);
    pthread_join(thread, nullptr);
    EXPECT_TRUE(exits.left);
    auto wait = [](void *argument) -> void * {
        auto *shared = static_cast<Shared *>(argument);
        Mark mark{&shared->left};
        shared_use(shared);
        for (;;) pause();
    };
    ASSERT_EQ(pthread_create(&thread, nullptr, wait, &cancelled), 0);
    pthread_cancel(thread);
    pthread_join(thread, nullptr);
    EXPECT_TRUE(cancelled.left);
    m.check();
}

}  // namespace
