// SPDX-License-Identifier: Apache-2.0
//
// A tree of drafts, and rows of another input: a follower's batch holds the leader's masks,
// positions and cross tables.

#include "manager.hpp"

namespace {

using namespace quire::test;

// A leader and a follower, each with a full group, a cross group and a batch.
class LogMask : public testing::Test {
 protected:
    LogMask() {
        error_.struct_size = sizeof error_;
        auto instance_desc = described<quire_instance_desc>();
        must(api_.instance_create(&instance_desc, &instance_, &error_));
        make(0, QUIRE_CACHE_LOG);
        make(1, QUIRE_CACHE_FOLLOWER);
    }
    ~LogMask() override {
        for (int i = 0; i < 2; ++i) {
            must(api_.step_finish(caches_[i], steps_[i], nullptr, QUIRE_STEP_OK, &error_));
            must(api_.cache_check(caches_[i], &error_));
            must(api_.batch_destroy(batches_[i], &error_));
            must(api_.cache_destroy(caches_[i], &error_));
        }
        must(api_.instance_destroy(instance_, &error_));
    }

    void must(quire_status status) { ASSERT_GE(status, 0) << error_.message; }

    void make(int which, uint32_t flags) {
        quire_group_desc groups[2] = {described<quire_group_desc>(), described<quire_group_desc>()};
        for (quire_group_desc &group : groups) {
            group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        }
        groups[1].kind = QUIRE_GROUP_CROSS;
        auto desc = described<quire_cache_desc>();
        desc.flags = flags;
        desc.groups = groups;
        desc.group_count = 2;
        desc.group_stride = sizeof groups[0];
        desc.blocks = 30;
        desc.block_tokens = 4;
        must(api_.cache_create(instance_, &desc, &caches_[which], &error_));
        auto batch = described<quire_batch_desc>();
        batch.max_rows = 4;
        batch.max_blocks_per_row = 8;
        batch.max_query_tokens = batch.max_mask_words = batch.max_cross_tokens = 16;
        batch.views =
            QUIRE_VIEW_MASK | QUIRE_VIEW_POSITIONS | QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_SLOTS;
        must(api_.batch_create(caches_[which], &batch, &batches_[which], &error_));
    }

    // Five tokens, the last three a tree: two children of the root, and a child of the first.
    void commit() {
        auto seq_desc = described<quire_seq_desc>();
        seq_desc.cross_tokens = 6;
        quire_step_item item{};
        must(api_.seq_create(caches_[0], &seq_desc, &item.seq, &error_));
        const uint32_t words[] = {1, 2, 3, 4, 5, QUIRE_MASK_ROOT, QUIRE_MASK_ROOT, 0};
        item.token_count = 5;
        item.draft_count = item.mask_rows = 3;
        item.mask_kind = QUIRE_MASK_PARENTS;
        item.mask_offset = 5;
        auto desc = described<quire_step_desc>();
        quire_step_result result{};
        must(api_.step_begin(caches_[0], &desc, &item, 1, sizeof item, words, 8, &result,
                             sizeof result, &steps_[0], &error_));
        EXPECT_EQ(result.cross_tokens, 6u);
        must(api_.step_commit(caches_[0], steps_[0], batches_[0], &error_));
    }
    void follow() {
        std::vector<uint8_t> log(4096);
        uint64_t size = 0;
        must(api_.step_log(caches_[0], steps_[0], log.data(), log.size(), &size, &error_));
        auto desc = described<quire_step_desc>();
        must(api_.log_apply(caches_[1], log.data(), size, &desc, batches_[1], &steps_[1], &error_));
    }

    std::string views(int which) {
        std::string out;
        for (uint32_t g = 0; g < 2; ++g) {
            auto v = described<quire_batch_views>();
            must(api_.batch_get_views(batches_[which], g, 0, &v, &error_));
            EXPECT_EQ(v.write_tokens, g == 0 ? 5u : 6u);
            const std::pair<uint64_t, size_t> parts[] = {
                {v.mask, 4 * 3},       {v.mask_rows, 4 * 5}, {v.mask_first, 4},
                {v.positions, 4 * 16}, {v.block_table, 128}, {v.slots, 8 * 16}};
            for (auto [at, bytes] : parts) {
                EXPECT_NE(at, 0u);
                if (at != 0) out.append(reinterpret_cast<const char *>(at), bytes);
            }
        }
        return out;
    }

    const quire_api &api_ = library();
    quire_error error_{};
    quire_instance *instance_ = nullptr;
    quire_cache *caches_[2] = {};
    quire_batch *batches_[2] = {};
    quire_step steps_[2] = {};
};

TEST_F(LogMask, masks_and_other_inputs_are_in_a_followers_batch) {
    commit();
    follow();
    EXPECT_TRUE(views(0) == views(1));
    EXPECT_NE(views(0).find_first_not_of('\0'), std::string::npos);
}

}  // namespace
