// SPDX-License-Identifier: Apache-2.0
//
// Bugs of the manager that were found through the C ABI, each in a cache without memory.

#include <gtest/gtest.h>

#include <vector>

#include "quire/dyn.h"

namespace {

constexpr uint32_t kBlock = 16;

const quire_api &api() {
    static const quire_api *table = [] {
        const quire_api *out = nullptr;
        char why[512] = "";
        if (quire_dyn_load(nullptr, &out, why, sizeof why) < 0) std::fprintf(stderr, "%s\n", why);
        return out;
    }();
    return *table;
}

template <typename T>
T described() {
    T out{};
    out.struct_size = sizeof out;
    return out;
}

struct Shape {
    std::vector<uint32_t> windows = {0};  // one per group; 0 = full attention
    std::vector<uint32_t> blocks = {16};
    uint32_t host_blocks = 0;
};

class Manager {
 public:
    explicit Manager(const Shape &shape) {
        auto instance = described<quire_instance_desc>();
        EXPECT_EQ(api().instance_create(&instance, &instance_, nullptr), QUIRE_OK);
        std::vector<quire_group_desc> groups;
        for (size_t g = 0; g < shape.windows.size(); ++g) {
            auto group = described<quire_group_desc>();
            group.kind = shape.windows[g] != 0 ? QUIRE_GROUP_WINDOW : QUIRE_GROUP_FULL;
            group.window = shape.windows[g];
            group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
            group.blocks = shape.blocks[g];
            groups.push_back(group);
        }
        auto desc = described<quire_cache_desc>();
        desc.groups = groups.data();
        desc.group_count = static_cast<uint32_t>(groups.size());
        desc.group_stride = sizeof groups[0];
        desc.block_tokens = kBlock;
        desc.host_blocks = shape.host_blocks;
        EXPECT_EQ(api().cache_create(instance_, &desc, &cache, nullptr), QUIRE_OK);
    }
    ~Manager() {
        EXPECT_EQ(api().cache_destroy(cache, nullptr), QUIRE_OK);
        EXPECT_EQ(api().instance_destroy(instance_, nullptr), QUIRE_OK);
    }
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;

    quire_seq sequence(quire_namespace ns = 0) {
        auto desc = described<quire_seq_desc>();
        desc.ns = ns;
        quire_seq out = 0;
        EXPECT_EQ(api().seq_create(cache, &desc, &out, nullptr), QUIRE_OK);
        return out;
    }
    quire_step begin(uint64_t tag = 0) {
        auto desc = described<quire_step_desc>();
        desc.queue_tag = tag;
        quire_step out = 0;
        EXPECT_EQ(api().step_begin(cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0,
                                   nullptr, sizeof(quire_step_result), &out, nullptr),
                  QUIRE_OK);
        return out;
    }
    quire_step_result add(quire_step step, quire_seq seq, const std::vector<uint32_t> &tokens) {
        quire_step_item item{};
        item.seq = seq;
        item.token_count = static_cast<uint32_t>(tokens.size());
        quire_step_result result{};
        EXPECT_GE(api().step_add(cache, step, &item, 1, sizeof item, tokens.data(),
                                 item.token_count, &result, sizeof result, nullptr),
                  QUIRE_OK);
        return result;
    }
    void commit(quire_step step) {
        EXPECT_EQ(api().step_commit(cache, step, nullptr, nullptr), QUIRE_OK);
    }
    void finish(quire_step step, uint32_t outcome = QUIRE_STEP_OK) {
        EXPECT_EQ(api().step_finish(cache, step, nullptr, outcome, nullptr), QUIRE_OK);
    }
    void drop(quire_step step, quire_seq seq) {
        quire_seq dropped[8];
        uint32_t count = 0;
        EXPECT_EQ(api().step_drop(cache, step, seq, dropped, 8, &count, nullptr), QUIRE_OK);
    }
    void run(quire_seq seq, const std::vector<uint32_t> &tokens) {
        quire_step step = begin();
        EXPECT_EQ(add(step, seq, tokens).outcome, uint32_t{QUIRE_ITEM_RUN});
        commit(step);
        finish(step);
        check();
    }
    void check() {
        auto error = described<quire_error>();
        EXPECT_EQ(api().cache_check(cache, &error), QUIRE_OK) << error.message;
    }
    quire_seq_info info(quire_seq seq) {
        auto out = described<quire_seq_info>();
        EXPECT_EQ(api().seq_get_info(cache, seq, &out, nullptr), QUIRE_OK);
        return out;
    }

    quire_cache *cache = nullptr;

 private:
    quire_instance *instance_ = nullptr;
};

std::vector<uint32_t> text(uint32_t first, uint32_t count) {
    std::vector<uint32_t> out(count);
    for (uint32_t i = 0; i < count; ++i) out[i] = first + i;
    return out;
}

TEST(Manager, a_window_near_the_largest_integer_has_a_size) {
    Manager m(Shape{{0xFFFFFFFF - 2 * kBlock + 1}, {16}});
    auto info = described<quire_cache_info>();
    ASSERT_EQ(api().cache_get_info(m.cache, &info, nullptr), QUIRE_OK);
    EXPECT_EQ(info.max_sequences, 0u);
}

TEST(Manager, two_spans_cannot_name_one_position) {
    Manager m(Shape{});
    quire_seq seq = m.sequence();
    m.run(seq, std::vector<uint32_t>(kBlock, QUIRE_TOKEN_UNKNOWN));
    quire_token_span spans[2] = {{seq, 0, 0, kBlock, 0}, {seq, 3, 5, 1, 0}};
    auto tokens = text(0, kBlock);
    EXPECT_EQ(
        api().seq_set_tokens(m.cache, spans, 2, sizeof spans[0], tokens.data(), kBlock, nullptr),
        QUIRE_E_ARG);
    // The refused call left nothing.
    EXPECT_EQ(
        api().seq_set_tokens(m.cache, spans, 1, sizeof spans[0], tokens.data(), kBlock, nullptr),
        QUIRE_OK);
    m.check();
}

TEST(Manager, a_prefix_dropped_while_the_step_evicts_it_survives_abort) {
    for (bool abort : {true, false}) {
        Manager m(Shape{{0, 16}, {16, 6}});
        quire_seq seq = m.sequence();
        for (uint32_t i = 0; i < 4; ++i)
            m.run(seq, text(i * kBlock, kBlock));  // the window passes blocks
        quire_step step = m.begin();
        quire_seq other = m.sequence();
        ASSERT_EQ(m.add(step, other, text(1000, 3 * kBlock)).outcome, uint32_t{QUIRE_ITEM_RUN});
        ASSERT_EQ(api().seq_end(m.cache, seq, QUIRE_END_DROP_PREFIX, nullptr), QUIRE_OK);
        m.check();
        if (abort) {
            ASSERT_EQ(api().step_abort(m.cache, step, nullptr), QUIRE_OK);
        } else {
            m.commit(step);
            m.finish(step);
        }
        m.check();
        quire_seq last = m.sequence();
        if (abort) m.run(last, text(2000, 5 * kBlock));
        m.check();
    }
}

TEST(Manager, a_dropped_item_does_not_bring_back_half_a_node) {
    // Two full-attention groups of one size: one item evicts a node's block in the first group, the
    // other item evicts one in both.
    Manager m(Shape{{0, 0}, {6, 7}});
    quire_seq old = m.sequence();
    m.run(old, text(0, 2 * kBlock));
    ASSERT_EQ(api().seq_end(m.cache, old, 0, nullptr), QUIRE_OK);
    quire_step step = m.begin();
    quire_seq a = m.sequence(), b = m.sequence();
    ASSERT_EQ(m.add(step, a, text(1000, 4 * kBlock)).outcome, uint32_t{QUIRE_ITEM_RUN});
    ASSERT_EQ(m.add(step, b, text(2000, kBlock)).outcome, uint32_t{QUIRE_ITEM_RUN});
    m.drop(step, a);
    m.check();
    m.commit(step);
    m.finish(step);
    m.check();
}

TEST(Manager, a_failed_step_withdraws_blocks_that_a_later_step_filled) {
    Manager m(Shape{});
    quire_seq writer = m.sequence(), taker = m.sequence();
    quire_step first = m.begin();
    m.add(first, writer, text(0, 8));
    m.commit(first);
    quire_step second = m.begin();
    m.add(second, writer, text(8, 8));
    m.commit(second);
    ASSERT_EQ(api().seq_end(m.cache, writer, 0, nullptr), QUIRE_OK);
    quire_step third = m.begin();
    EXPECT_EQ(m.add(third, taker, text(0, kBlock + 1)).hit_tokens, kBlock);
    m.commit(third);
    m.finish(first, QUIRE_STEP_FAILED);
    m.finish(second);
    m.finish(third);
    EXPECT_EQ(m.info(taker).computed_tokens, 0u);
    EXPECT_NE(m.info(taker).flags & QUIRE_SEQ_LOST, 0u);
    quire_seq late = m.sequence();
    quire_step step = m.begin();
    EXPECT_EQ(m.add(step, late, text(0, kBlock + 1)).hit_tokens, 0u);
    ASSERT_EQ(api().step_abort(m.cache, step, nullptr), QUIRE_OK);
    m.check();
}

TEST(Manager, a_failed_swap_out_is_not_believed_after_the_swap_in) {
    Manager m(Shape{{0}, {16}, 8});
    quire_seq seq = m.sequence();
    m.run(seq, text(0, 8));
    quire_step out = m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(api().step_preempt(m.cache, out, seq, QUIRE_PREEMPT_SWAP, &freed, nullptr), QUIRE_OK);
    m.commit(out);
    quire_step in = m.begin();
    ASSERT_EQ(m.add(in, seq, text(8, 1)).outcome, uint32_t{QUIRE_ITEM_RUN});
    m.commit(in);
    m.finish(out, QUIRE_STEP_FAILED);
    m.finish(in);
    EXPECT_EQ(m.info(seq).computed_tokens, 0u);
    m.check();
}

TEST(Manager, what_another_queue_still_writes_is_not_swapped_out) {
    Manager m(Shape{{0}, {16}, 8});
    quire_seq seq = m.sequence();
    quire_step first = m.begin(1);
    m.add(first, seq, text(0, 8));
    m.commit(first);
    quire_step second = m.begin(2);
    uint32_t freed = 0;
    EXPECT_EQ(api().step_preempt(m.cache, second, seq, QUIRE_PREEMPT_SWAP, &freed, nullptr),
              QUIRE_E_BUSY);
    ASSERT_EQ(api().step_abort(m.cache, second, nullptr), QUIRE_OK);
    m.finish(first);
}

TEST(Manager, a_quota_does_not_count_blocks_that_a_window_has_passed) {
    Manager m(Shape{{0, 16}, {32, 32}});
    auto desc = described<quire_namespace_desc>();
    desc.quota_blocks = 9;
    quire_namespace ns = 0;
    ASSERT_EQ(api().namespace_create(m.cache, &desc, &ns, nullptr), QUIRE_OK);
    quire_seq seq = m.sequence(ns);
    for (uint32_t i = 0; i < 5; ++i) m.run(seq, text(i * kBlock, kBlock));
    ASSERT_EQ(api().seq_end(m.cache, seq, 0, nullptr), QUIRE_OK);
    seq = m.sequence(ns);
    m.run(seq, text(0, 5 * kBlock + 1));  // 6 blocks of the first group, 2 of the second
}

TEST(Manager, a_sequence_that_starts_over_after_a_reset_is_published_again) {
    Manager m(Shape{});
    quire_seq seq = m.sequence();
    m.run(seq, text(0, kBlock));
    ASSERT_EQ(api().cache_reset(m.cache, nullptr), QUIRE_OK);
    ASSERT_EQ(api().seq_truncate(m.cache, seq, 0, nullptr), QUIRE_OK);
    EXPECT_EQ(m.info(seq).flags & QUIRE_SEQ_UNPUBLISHED, 0u);
}

}  // namespace
