// SPDX-License-Identifier: Apache-2.0
//
// faulted_lease: all calls of lease.h, by a table whose calls fail repeatedly before they succeed.
//
// Threads: one.
#pragma once

#include <vector>

#include "faulted_api.hpp"

namespace quire::test {

using Tokens = std::vector<quire_token>;

inline Tokens tokens_from(quire_token first, uint32_t count) {
    Tokens tokens(count);
    for (uint32_t i = 0; i < count; ++i) tokens[i] = first + i;
    return tokens;
}

// On a cache of two groups with blocks of 4 tokens, without an open step. Leaves nothing behind.
class FaultedLease {
 public:
    FaultedLease(const quire_api &table, quire_cache *cache, quire_queue *queue)
        : api_(table), cache_(cache) {
        error_.struct_size = sizeof error_;
        auto desc = described<quire_lease_desc>();
        ok(api_.lease_create(cache_, &desc, &lease_, &error_));
        auto step_desc = described<quire_step_desc>();
        step_desc.queues = &queue;
        step_desc.queue_count = 1;
        ok(api_.step_begin(cache_, &step_desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step_,
                           &error_));
        change();
        ok(api_.step_abort(cache_, step_, &error_));
        end();
    }

 private:
    void ok(quire_status status) { ASSERT_EQ(status, QUIRE_OK) << error_.message; }

    void change() {
        auto result = described<quire_lease_result>();
        int32_t ids[4] = {}, named[4] = {}, taken[2] = {};
        for (uint32_t g = 0; g < 2; ++g) {
            ok(api_.lease_take(cache_, step_, lease_, g, 2, taken, &result, &error_));
            ids[g] = taken[0], ids[2 + g] = taken[1];
        }
        const Tokens tokens = tokens_from(500, 8);
        ok(api_.lease_publish(cache_, step_, lease_, tokens.data(), 8, ids, named, &result,
                              &error_));
        EXPECT_EQ(result.blocks, 2u);
        ok(api_.lease_match(cache_, step_, lease_, tokens.data(), 8, QUIRE_MATCH_PIN, named,
                            &result, &error_));
        EXPECT_EQ(named[2], ids[2]);
        ok(api_.lease_pin(cache_, step_, lease_, 0, ids, 1, &result, &error_));
        ok(api_.lease_give(cache_, step_, lease_, 0, ids, 1, &error_));
        quire_lease_block block{};
        uint32_t count = 0;
        ok(api_.lease_blocks(cache_, lease_, 0, 1, &block, 1, sizeof block, &count, &error_));
        EXPECT_EQ(block.block, ids[2]);
    }
    void end() {
        auto result = described<quire_lease_result>();
        const int64_t tokens[8] = {500, 501, 502, 503, 504, 505, 506, 507};
        int32_t found[4];
        ok(api_.lease_find(cache_, lease_, tokens, 8, QUIRE_MATCH_TOUCH, found, &result, &error_));
        EXPECT_EQ(result.blocks, 0u);
        auto info = described<quire_lease_info>();
        ok(api_.lease_get_info(cache_, lease_, &info, &error_));
        EXPECT_EQ(info.blocks_held, 0u);
        uint32_t count = 9;
        ok(api_.lease_forget(cache_, lease_, 0, nullptr, 0, &count, &error_));
        EXPECT_EQ(count, 0u);
        ok(api_.cache_evict(cache_, 0, 0, nullptr, &count, &error_));
        ok(api_.lease_end(cache_, lease_, &error_));
    }

    const quire_api &api_;
    quire_cache *cache_;
    quire_error error_{};
    quire_lease lease_ = 0;
    quire_step step_ = 0;
};

// What a lease inserts in one call, which serves a cache of one group: one without memory, made and
// destroyed here.
class FaultedInsert {
 public:
    FaultedInsert(const quire_api &table, quire_instance *instance) : api_(table) {
        error_.struct_size = sizeof error_;
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        auto desc = described<quire_cache_desc>();
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.blocks = 8;
        desc.block_tokens = 4;
        ok(api_.cache_create(instance, &desc, &cache_, &error_));
        auto lease_desc = described<quire_lease_desc>();
        ok(api_.lease_create(cache_, &lease_desc, &lease_, &error_));
        take();
        insert();
        ok(api_.lease_end(cache_, lease_, &error_));
        ok(api_.cache_destroy(cache_, &error_));
    }

 private:
    void ok(quire_status status) { ASSERT_EQ(status, QUIRE_OK) << error_.message; }

    void take() {
        auto desc = described<quire_step_desc>();
        auto result = described<quire_lease_result>();
        quire_step step = 0;
        ok(api_.step_begin(cache_, &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step, &error_));
        ok(api_.lease_take(cache_, step, lease_, 0, 2, taken_, &result, &error_));
        ok(api_.step_commit(cache_, step, nullptr, &error_));
        ok(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_));
    }
    void insert() {
        auto result = described<quire_lease_result>();
        int64_t tokens[8], slots[8];
        for (int i = 0; i < 8; ++i) {
            tokens[i] = 700 + i;
            slots[i] = int64_t{taken_[i / 4]} * 4 + i % 4;
        }
        int32_t named[2] = {};
        ok(api_.lease_insert(cache_, lease_, tokens, slots, 8, named, &result, &error_));
        EXPECT_EQ(result.blocks, 2u);
        EXPECT_EQ(named[1], taken_[1]);
    }

    const quire_api &api_;
    quire_error error_{};
    quire_cache *cache_ = nullptr;
    quire_lease lease_ = 0;
    int32_t taken_[2] = {};
};

}  // namespace quire::test
