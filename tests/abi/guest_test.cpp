// SPDX-License-Identifier: Apache-2.0
//
// The library as a guest: on a thread with little stack, loaded twice, and in processes that fork
// while other threads are inside.

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "library_copy.hpp"
#include "objects.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

constexpr size_t kStackBytes = 64 << 10;  // the smallest stack that Go and Java give a thread

// A complete life: everything created, launched, and destroyed. Returns empty, or what went wrong.
std::string work(const quire_api *api) {
    if (api == nullptr) return "not loaded";
    Objects w(*api);
    auto host = described<quire_instance_desc>();
    if (w.make(host)) w.launch();
    w.destroy();
    return w.problem();
}

// A stack of our own, painted to show how much of it was used.
class SmallStack {
 public:
    SmallStack() : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
        base_ =
            static_cast<unsigned char *>(mmap(nullptr, kStackBytes + page_, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(base_, page_, PROT_NONE);
        std::memset(base_ + page_, 0xC5, kStackBytes);
    }
    ~SmallStack() { munmap(base_, kStackBytes + page_); }
    SmallStack(const SmallStack &) = delete;
    SmallStack &operator=(const SmallStack &) = delete;

    bool run(void *(*body)(void *), void *argument) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_t thread;
        bool started = pthread_attr_setstack(&attributes, base_ + page_, kStackBytes) == 0 &&
                       pthread_create(&thread, &attributes, body, argument) == 0;
        if (started) pthread_join(thread, nullptr);
        pthread_attr_destroy(&attributes);
        return started;
    }
    size_t used() const {
        size_t untouched = 0;
        while (untouched < kStackBytes && base_[page_ + untouched] == 0xC5) ++untouched;
        return kStackBytes - untouched;
    }

 private:
    size_t page_;
    unsigned char *base_;
};

struct Visit {
    const char *path;
    std::string problem;
};

void *load_and_work(void *argument) {
    auto *visit = static_cast<Visit *>(argument);
    void *handle = nullptr;
    visit->problem = work(functions_of(visit->path, &handle));
    return nullptr;
}

TEST(SmallStack, of_64_kib_is_enough_to_load_and_work) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer's frames are several times larger";
#endif
    LibraryCopy copy;  // no other test has loaded it
    Visit visit{copy.path(), ""};
    SmallStack stack;
    ASSERT_TRUE(stack.run(load_and_work, &visit));
    EXPECT_EQ(visit.problem, "");
    RecordProperty("stack_bytes", static_cast<int>(stack.used()));
    EXPECT_LT(stack.used(), kStackBytes) << "nothing of it was left";
}

// The paint works: a frame of a known size is seen.
TEST(SmallStack, a_frame_that_is_large_shows) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer keeps frames elsewhere";
#endif
    SmallStack stack;
    ASSERT_TRUE(stack.run(
        [](void *) -> void * {
            volatile char frame[40 << 10];
            frame[0] = 1;
            frame[sizeof frame - 1] = 1;
            return nullptr;
        },
        nullptr));
    EXPECT_GT(stack.used(), size_t{40} << 10);
}

TEST(Twice, the_same_file_is_the_same_library) {
    void *first = nullptr, *second = nullptr;
    const quire_api *api = functions_of(library_path().c_str(), &first);
    EXPECT_EQ(functions_of(library_path().c_str(), &second), api);
    EXPECT_EQ(first, second);
    EXPECT_EQ(work(api), "");
    dlclose(second);
    EXPECT_EQ(work(api), "") << "the first handle still holds it";
}

TEST(Twice, a_second_file_is_a_library_of_its_own_beside_the_first) {
    LibraryCopy copy;
    void *handles[2] = {};
    const quire_api *one = functions_of(library_path().c_str(), &handles[0]);
    const quire_api *two = functions_of(copy.path(), &handles[1]);
    ASSERT_NE(two, nullptr);
    EXPECT_NE(one, two);
    auto host = described<quire_instance_desc>();
    Objects a(*one), b(*two);
    EXPECT_TRUE(a.make(host)) << a.problem();
    EXPECT_TRUE(b.make(host)) << b.problem();
    a.launch();
    b.launch();
    auto info = described<quire_seq_info>();
    EXPECT_EQ(two->seq_get_info(b.cache, b.seq, &info, nullptr), QUIRE_OK);
    EXPECT_EQ(two->seq_get_info(b.cache, a.seq, &info, nullptr), QUIRE_E_STALE);
    a.destroy();
    b.launch();
    b.destroy();
    EXPECT_STREQ(a.problem(), "");
    EXPECT_STREQ(b.problem(), "");
}

// Runs in a child, which hangs for at most this long; returns the child's result.
constexpr unsigned kChildSeconds = 20;
template <typename Body>
int in_child(Body &&body) {
    pid_t child = fork();
    if (child == 0) {
        alarm(kChildSeconds);
        _exit(body());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// A process that opens a device only in a child of it; run in a child itself, because other tests
// of this process have opened devices.
TEST(Fork, before_a_device_is_opened_leaves_the_child_free_to_open_one) {
    LibraryCopy copies[2];
    EXPECT_EQ(in_child([&] {
                  void *handle = nullptr;
                  const quire_api *api = functions_of(copies[0].path(), &handle);
                  if (api == nullptr) return 1;
                  int own = in_child([&] { return work(api).empty() ? 0 : 1; });
                  int fresh = in_child([&] {
                      return work(functions_of(copies[1].path(), &handle)).empty() ? 0 : 1;
                  });
                  return own * 2 + fresh * 4;
              }),
              0);
}

TEST(Fork, while_threads_are_inside_leaves_the_child_able_to_keep_books) {
    Manager shared;
    quire_seq seq = shared.sequence();
    std::atomic<bool> stop{false};
    auto call = [&] {
        auto info = described<quire_seq_info>();
        auto desc = described<quire_seq_desc>();
        quire_seq made = 0;
        while (!stop) {
            shared.api().seq_get_info(shared.cache(), seq, &info, nullptr);
            if (shared.api().seq_create(shared.cache(), &desc, &made, nullptr) == QUIRE_OK) {
                shared.api().seq_end(shared.cache(), made, 0, nullptr);
            }
        }
    };
    std::thread one(call), two(call);
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(in_child([] {
                      Manager m;
                      m.compute(m.sequence(), tokens_from(1, 9));
                      return testing::Test::HasFailure() ? 1 : 0;
                  }),
                  0);
    }
    stop = true;
    one.join();
    two.join();
    shared.check();
}

TEST(Fork, while_threads_are_inside_a_device_is_refused_and_nothing_hangs) {
    Objects w(library());
    auto host = described<quire_instance_desc>();
    ASSERT_TRUE(w.make(host)) << w.problem();
    std::atomic<bool> stop{false};
    std::thread waits([&] { w.api.fence_wait(w.fence, 1, UINT64_MAX, nullptr); });
    std::thread calls([&] {
        auto stats = described<quire_cache_stats>();
        while (!stop) w.api.cache_get_stats(w.cache, &stats, nullptr);
    });
    auto refused = [&] {
        auto stats = described<quire_cache_stats>();
        uint64_t value = 0;
        const quire_status answers[] = {
            w.api.cache_get_stats(w.cache, &stats, nullptr),
            w.api.seq_end(w.cache, w.seq, 0, nullptr),
            w.api.step_finish(w.cache, w.step, nullptr, QUIRE_STEP_OK, nullptr),
            w.api.fence_wait(w.fence, 1, UINT64_MAX, nullptr),
            w.api.fence_signal(w.fence, 1, nullptr),
            w.api.fence_read(w.fence, &value, nullptr),
            w.api.queue_sync(w.queue, nullptr),
            w.api.queue_signal(w.queue, w.fence, 1, nullptr),
        };
        for (quire_status answer : answers) {
            if (answer != QUIRE_E_FORKED) return 1;
        }
        return 0;
    };
    for (int i = 0; i < 20; ++i) EXPECT_EQ(in_child(refused), 0);
    stop = true;
    EXPECT_EQ(w.api.fence_signal(w.fence, 1, nullptr), QUIRE_OK);
    waits.join();
    calls.join();
    w.launch();
    w.destroy();
    EXPECT_STREQ(w.problem(), "");
}

}  // namespace
