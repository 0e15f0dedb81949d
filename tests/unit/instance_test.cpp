// SPDX-License-Identifier: Apache-2.0
//
// An instance's promises apart from its caches: a forked child is refused objects that its parent
// made, and a cache whose invariant breaks stops without affecting others.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "core/blocks/block_pool.hpp"
#include "manager.hpp"

namespace {

using namespace quire::test;

// The child reports its result and then kills itself: the parent's threads do not exist in it, and
// a leak checker at process exit would report what they held. An alarm ends a child that hangs.
template <typename Body>
bool holds_in_child(Body body) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        char answer = body() ? 'y' : 'n';
        if (write(ends[1], &answer, 1) != 1) _exit(1);
        kill(getpid(), SIGKILL);
    }
    close(ends[1]);
    char answer = 'n';
    bool has_said = read(ends[0], &answer, 1) == 1;
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return has_said && answer == 'y';
}

TEST(Instance, a_forked_child_is_refused_its_parents_objects_while_threads_are_inside) {
    Manager m;
    std::atomic<bool> stop{false};
    std::thread calls([&] {
        auto stats = described<quire_cache_stats>();
        while (!stop) m.api().cache_get_stats(m.cache(), &stats, nullptr);
    });
    quire_seq seq = m.sequence();
    for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(holds_in_child([&] {
            auto stats = described<quire_cache_stats>();
            auto desc = described<quire_seq_desc>();
            quire_seq out = 0;
            const quire_status answers[] = {
                m.api().cache_get_stats(m.cache(), &stats, nullptr),
                m.api().seq_create(m.cache(), &desc, &out, nullptr),
                m.api().seq_end(m.cache(), seq, 0, nullptr),
                m.api().cache_check(m.cache(), nullptr),
                m.api().cache_destroy(m.cache(), nullptr),
            };
            for (quire_status answer : answers) {
                if (answer != QUIRE_E_FORKED) return false;
            }
            return true;
        }));
    }
    stop = true;
    calls.join();
    m.check();
}

TEST(Instance, a_forked_child_and_its_child_make_instances_of_their_own) {
    Manager parents;
    EXPECT_TRUE(holds_in_child([&] {
        Manager m;
        m.compute(m.sequence(), tokens_from(1, 9));
        bool grandchild = holds_in_child([&] {
            auto stats = described<quire_cache_stats>();
            Manager own;
            own.compute(own.sequence(), tokens_from(1, 9));
            return own.probe(tokens_from(1, 9)) == 8 &&
                   own.api().cache_get_stats(m.cache(), &stats, nullptr) == QUIRE_E_FORKED &&
                   own.api().cache_get_stats(parents.cache(), &stats, nullptr) == QUIRE_E_FORKED;
        });
        return grandchild && m.probe(tokens_from(1, 9)) == 8 && !testing::Test::HasFailure();
    }));
}

// An allocator through which the records of a cache's blocks can be found: they are the first of
// their size.
struct Watched {
    std::map<uint64_t, void *> by_size;

    quire_instance_desc description() {
        auto desc = described<quire_instance_desc>();
        desc.allocator_user = this;
        desc.allocate = [](void *user, uint64_t size_bytes, uint64_t alignment) -> void * {
            void *pointer =
                std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment);
            static_cast<Watched *>(user)->by_size.emplace(size_bytes, pointer);
            return pointer;
        };
        desc.release = [](void *, void *pointer, uint64_t, uint64_t) { std::free(pointer); };
        return desc;
    }
};

TEST(Instance, a_broken_invariant_stops_its_cache_and_nothing_else) {
    constexpr uint32_t blocks = 37;
    const quire_api &api = library();
    auto error = described<quire_error>();
    Watched host;
    quire_instance_desc instance_desc = host.description();
    quire_instance *instance = nullptr;
    ASSERT_EQ(api.instance_create(&instance_desc, &instance, &error), QUIRE_OK);
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    auto desc = described<quire_cache_desc>();
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.blocks = blocks;
    quire_cache *cache = nullptr, *other = nullptr;
    ASSERT_EQ(api.cache_create(instance, &desc, &cache, &error), QUIRE_OK);
    auto *records = static_cast<quire::Block *>(host.by_size.at(blocks * sizeof(quire::Block)));
    ASSERT_EQ(api.cache_create(instance, &desc, &other, &error), QUIRE_OK);

    auto seq_desc = described<quire_seq_desc>();
    auto step_desc = described<quire_step_desc>();
    quire_step_item item{};
    ASSERT_EQ(api.seq_create(cache, &seq_desc, &item.seq, &error), QUIRE_OK);
    Tokens tokens = tokens_from(1, 20);
    item.token_count = 20;
    quire_step_result result{};
    quire_step committed = 0, open = 0;
    ASSERT_EQ(api.step_begin(cache, &step_desc, &item, 1, sizeof item, tokens.data(), 20, &result,
                             sizeof result, &committed, &error),
              QUIRE_OK);
    ASSERT_EQ(api.step_commit(cache, committed, nullptr, &error), QUIRE_OK);
    quire_seq unharmed = 0;
    ASSERT_EQ(api.seq_create(cache, &seq_desc, &unharmed, &error), QUIRE_OK);
    ASSERT_EQ(api.step_begin(cache, &step_desc, nullptr, 0, sizeof item, nullptr, 0, nullptr,
                             sizeof result, &open, &error),
              QUIRE_OK);

    for (uint32_t i = 1; i < blocks; ++i) records[i].refs = 0;  // as if by a cosmic ray
    EXPECT_EQ(api.seq_end(cache, item.seq, 0, &error), QUIRE_E_INTERNAL);
    const std::string words = error.message;
    EXPECT_NE(words.find("broken invariant"), std::string::npos) << words;
    EXPECT_NE(words.find("block_pool.cpp"), std::string::npos) << words;
    // Every call says so, whatever object it is on.
    quire_seq out = 0;
    EXPECT_EQ(api.seq_create(cache, &seq_desc, &out, &error), QUIRE_E_INTERNAL);
    EXPECT_NE(std::string(error.message).find("block_pool.cpp"), std::string::npos);
    EXPECT_EQ(api.seq_end(cache, unharmed, 0, &error), QUIRE_E_INTERNAL);
    EXPECT_EQ(api.step_commit(cache, open, nullptr, &error), QUIRE_E_INTERNAL);
    EXPECT_EQ(api.cache_check(cache, &error), QUIRE_E_INTERNAL);
    // Except the calls that give the cache up.
    auto stats = described<quire_cache_stats>();
    EXPECT_EQ(api.cache_get_stats(cache, &stats, &error), QUIRE_OK);
    EXPECT_EQ(stats.sequences, 2u);
    EXPECT_EQ(api.cache_destroy(cache, &error), QUIRE_E_BUSY) << "a step is not finished";
    EXPECT_EQ(api.step_finish(cache, committed, nullptr, QUIRE_STEP_FAILED, &error), QUIRE_OK)
        << error.message;
    EXPECT_EQ(api.cache_destroy(cache, &error), QUIRE_OK) << error.message;
    // The other cache goes on.
    EXPECT_EQ(api.seq_create(other, &seq_desc, &out, &error), QUIRE_OK);
    EXPECT_EQ(api.cache_check(other, &error), QUIRE_OK);
    EXPECT_EQ(api.cache_destroy(other, &error), QUIRE_OK);
    EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK);
}

}  // namespace
