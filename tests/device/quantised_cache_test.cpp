// SPDX-License-Identifier: Apache-2.0
//
// A cache of codes through the exported functions: whatever happens to a sequence's blocks, the
// scales of its tokens stay with its codes, so attention gives the same bits as for the text alone.

#include "schedule_cache.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kBlockTokens = 4;  // ScheduleCache's

// Two layers: one of codes with scales per token, and one without codes.
ScheduleShape shape_of(uint32_t k_dtype, uint32_t v_dtype) {
    GroupOptions codes;
    codes.group = described<quire_group_desc>();
    codes.group.layer_count = 1;
    codes.group.kv_heads = 2;
    codes.group.k_head_dim = codes.group.v_head_dim = 16;
    codes.group.k_dtype = k_dtype;
    codes.group.v_dtype = v_dtype;
    codes.group.k_scale = codes.group.v_scale = QUIRE_SCALE_TOKEN_HEAD;
    codes.attention = described<quire_attention_desc>();
    codes.attention.q_heads = kQueryHeads;
    GroupOptions values = codes;
    values.group.k_dtype = values.group.v_dtype = QUIRE_DTYPE_F16;
    values.group.k_scale = values.group.v_scale = QUIRE_SCALE_NONE;
    return {"codes and unquantised values", {codes, values}, false};
}

class QuantisedCache : public testing::TestWithParam<std::pair<uint32_t, uint32_t>> {
 protected:
    QuantisedCache()
        : shape_(shape_of(GetParam().first, GetParam().second)), cache_(shape_, 32, 100'000, 2) {}

    // A different text for each `content`, each with different magnitudes of K and V.
    static uint32_t token_of(uint32_t content, uint32_t position) {
        return 100 * content + position;
    }

    // Adds the content's tokens [first, first + count) to the sequence, and computes what it must.
    std::vector<Output> compute(ScheduleCache *cache, quire_seq seq, uint32_t content,
                                uint32_t first, uint32_t count, quire_seq victim = 0) {
        quire_step step = cache->begin();
        uint32_t freed = 0;
        if (victim != 0) {
            cache->must(cache->api.step_preempt(cache->cache, step, victim, QUIRE_PREEMPT_SWAP,
                                                &freed, &cache->error));
            EXPECT_GT(freed, 0u);
        }
        std::vector<uint32_t> words;
        for (uint32_t p = first; p < first + count; ++p) words.push_back(token_of(content, p));
        quire_step_item item{};
        item.seq = seq;
        item.token_count = count;
        quire_step_result result = cache->add(step, item, words);
        EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
        ScheduledRow row;
        for (uint32_t p = result.first_position; p < first + count; ++p) {
            row.tokens.push_back(token_of(content, p));
            row.positions.push_back(p);
        }
        return cache->run(step, {row});
    }

    // The output of the content's last token, computed at once in a cache of its own. The first
    // `own_from` tokens are those of content 1.
    Output alone(uint32_t content, uint32_t own_from, uint32_t count) {
        ScheduleCache cache(shape_, 32, 0, 1);
        quire_seq seq = cache.create(0);
        if (own_from != 0) compute(&cache, seq, 1, 0, own_from);
        return compute(&cache, seq, content, own_from, count - own_from).back();
    }
    quire_cache_stats stats() {
        auto out = described<quire_cache_stats>();
        cache_.must(cache_.api.cache_get_stats(cache_.cache, &out, &cache_.error));
        return out;
    }
    void end(quire_seq seq) {
        cache_.must(cache_.api.seq_end(cache_.cache, seq, 0, &cache_.error));
    }

    ScheduleShape shape_;
    ScheduleCache cache_;
};

TEST_P(QuantisedCache, fork_and_copy_on_write_take_the_scales_along) {
    quire_seq parent = cache_.create(0), child = 0;
    compute(&cache_, parent, 1, 0, 10);
    cache_.must(cache_.api.seq_fork(cache_.cache, parent, 10, &child, &cache_.error));
    // Both write into the block that they share: the child gets a copy.
    EXPECT_TRUE(compute(&cache_, child, 2, 10, 3).back() == alone(2, 10, 13));
    EXPECT_TRUE(compute(&cache_, parent, 3, 10, 5).back() == alone(3, 10, 15));
    EXPECT_TRUE(compute(&cache_, child, 2, 13, 1).back() == alone(2, 10, 14));
    EXPECT_GT(stats().copies_on_write, 0u);
    end(parent);
    end(child);
}

TEST_P(QuantisedCache, swap_out_and_in_takes_the_scales_along) {
    quire_seq seq = cache_.create(0), other = cache_.create(0);
    compute(&cache_, seq, 1, 0, 14);
    compute(&cache_, other, 2, 0, 9, seq);
    EXPECT_NE(cache_.info(seq).flags & QUIRE_SEQ_SWAPPED, 0u);
    // Takes the blocks that the sequence had on the device.
    compute(&cache_, other, 2, 9, 20);
    EXPECT_TRUE(compute(&cache_, seq, 1, 14, 2).back() == alone(1, 0, 16));
    EXPECT_GT(stats().blocks_swapped_out, 0u);
    EXPECT_GT(stats().blocks_swapped_in, 0u);
    end(seq);
    end(other);
}

TEST_P(QuantisedCache, truncate_keeps_the_scales_of_what_stays) {
    quire_seq seq = cache_.create(0);
    compute(&cache_, seq, 1, 0, 15);
    cache_.must(cache_.api.seq_truncate(cache_.cache, seq, 6, &cache_.error));
    EXPECT_TRUE(compute(&cache_, seq, 4, 6, 7).back() == alone(4, 6, 13));
    end(seq);
}

TEST_P(QuantisedCache, found_prefix_has_its_scales) {
    quire_seq first = cache_.create(0), second = cache_.create(0);
    compute(&cache_, first, 1, 0, 12);
    end(first);
    EXPECT_TRUE(compute(&cache_, second, 1, 0, 15).back() == alone(1, 0, 15));
    EXPECT_GT(stats().prefix_cache_hits, 0u);
    end(second);
}

// An engine with its own kernels finds the scales by the cache's pool info.
TEST_P(QuantisedCache, pool_info_says_where_scales_lie) {
    quire_seq seq = cache_.create(0);
    compute(&cache_, seq, 1, 0, 1);
    auto pool = described<quire_pool_info>();
    cache_.must(cache_.api.cache_get_pool(cache_.cache, 0, 0, &pool, &cache_.error));
    EXPECT_EQ(pool.scale_head_stride, int64_t{kBlockTokens * 4});
    EXPECT_EQ(pool.v_scale_offset, pool.k_scale_offset + 2 * pool.scale_head_stride);
    EXPECT_EQ(pool.layer_stride, pool.v_scale_offset + 2 * pool.scale_head_stride);
    int32_t block = 0;
    uint32_t count = 0;
    cache_.must(
        cache_.api.step_blocks(cache_.cache, 0, seq, 0, 0, &block, 1, &count, &cache_.error));
    float largest = 0.0f;  // of V of head 1, as ScheduleCache computes it
    for (uint32_t i = 16; i < 32; ++i) {
        largest = std::fmax(largest, std::fabs(drawn(2, token_of(1, 0), 0, 0, i)));
    }
    int64_t offset = block * pool.block_stride + pool.v_scale_offset + pool.scale_head_stride;
    uint64_t at = pool.address + static_cast<uint64_t>(offset);
    float scale = 0.0f;
    std::memcpy(&scale, reinterpret_cast<const void *>(at), sizeof scale);
    uint32_t v = GetParam().second;
    float most = v == QUIRE_DTYPE_I8 ? 127.0f : v == QUIRE_DTYPE_I4 ? 7.0f : 448.0f;
    EXPECT_EQ(scale, largest / most);
    cache_.must(cache_.api.cache_get_pool(cache_.cache, 1, 0, &pool, &cache_.error));
    EXPECT_EQ(pool.k_scale_offset, 0) << "the layer without codes";
    EXPECT_EQ(pool.scale_head_stride, 0);
    end(seq);
}

TEST_P(QuantisedCache, codes_are_not_what_a_write_is_given) {
    quire_seq seq = cache_.create(0);
    quire_step step = cache_.begin();
    quire_step_item item{};
    item.seq = seq;
    item.token_count = 1;
    cache_.add(step, item, {7});
    cache_.must(cache_.api.step_commit(cache_.cache, step, cache_.batch, &cache_.error));
    auto write = described<quire_kv_args>();
    write.k = write.v = 4096;
    write.dtype = QUIRE_DTYPE_I8;
    EXPECT_EQ(cache_.api.kv_write(cache_.batch, &write, cache_.queue, &cache_.error),
              QUIRE_E_UNSUPPORTED)
        << cache_.error.message;
    cache_.must(cache_.api.step_finish(cache_.cache, step, nullptr, QUIRE_STEP_OK, &cache_.error));
    end(seq);
}

INSTANTIATE_TEST_SUITE_P(
    Types, QuantisedCache,
    testing::Values(std::pair{uint32_t{QUIRE_DTYPE_I8}, uint32_t{QUIRE_DTYPE_I8}},
                    std::pair{uint32_t{QUIRE_DTYPE_I8}, uint32_t{QUIRE_DTYPE_I4}},
                    std::pair{uint32_t{QUIRE_DTYPE_F8_E5M2}, uint32_t{QUIRE_DTYPE_F8_E4M3FN}}));

}  // namespace
