// SPDX-License-Identifier: Apache-2.0
//
// A latent group has one row per token, which all query heads share, so every shard holds it whole
// and attends with its own query heads. Put side by side, the outputs have the bits of one device.

#include <cmath>
#include <cstring>

#include "cpu_cache.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kLatent = 16, kTurned = 8, kRow = kLatent + kTurned, kHeads = 4;
constexpr uint32_t kChunks[] = {9, 1, 20, 1, 1};

std::vector<float> draw(uint32_t kind, uint32_t first, uint32_t count, uint32_t elements) {
    std::vector<float> out;
    for (uint32_t i = first * elements; i < (first + count) * elements; ++i) {
        out.push_back(std::sin(static_cast<float>(i + 1 + 7919 * kind)));
    }
    return out;
}

class LatentRanks {
 public:
    explicit LatentRanks(uint32_t count, uint32_t dtype = 0, uint32_t flags = 0)
        : heads_(kHeads / count), dtype_(dtype), flags_(flags) {
        error_.struct_size = sizeof error_;
        auto host = described<quire_instance_desc>();
        must(api_.instance_create(&host, &instance_, &error_));
        devices_.resize(count);
        queues_.resize(count);
        for (uint32_t i = 0; i < count; ++i) {
            auto place = described<quire_device_desc>();
            place.backend = "cpu";
            place.threads = 1;
            must(api_.device_open(instance_, &place, &devices_[i], &error_));
            must(api_.queue_create(devices_[i], nullptr, &queues_[i], &error_));
        }
        make_cache();
        make_batch();
    }
    ~LatentRanks() {
        // The last step's fences come after its launches.
        for (quire_queue *queue : queues_) must(api_.queue_sync(queue, &error_));
        must(api_.batch_destroy(batch_, &error_));
        must(api_.cache_destroy(cache_, &error_));
        for (quire_queue *queue : queues_) must(api_.queue_destroy(queue, &error_));
        for (quire_device *device : devices_) must(api_.device_close(device, &error_));
        must(api_.instance_destroy(instance_, &error_));
    }
    LatentRanks(const LatentRanks &) = delete;
    LatentRanks &operator=(const LatentRanks &) = delete;

    // Runs all chunks; returns the outputs of all heads, [token][head][kLatent].
    std::vector<float> run() {
        auto desc = described<quire_seq_desc>();
        must(api_.seq_create(cache_, &desc, &seq_, &error_));
        std::vector<float> all;
        uint32_t first = 0;
        for (uint32_t count : kChunks) {
            std::vector<float> out = step(first, count);
            all.insert(all.end(), out.begin(), out.end());
            first += count;
        }
        return all;
    }

    // The one layer's numbers: K's and V's.
    std::vector<float> measured() {
        std::vector<unsigned char> bytes(1 << 10);
        uint64_t size = 0;
        must(api_.cache_save_calibration_wait(cache_, bytes.data(), bytes.size(), &size, UINT64_MAX,
                                              &error_));
        auto layer = described<quire_calibration_layer>();
        std::vector<float> amax(2);
        must(api_.calibration_get_layer(bytes.data(), size, 0, &layer, amax.data(), 2, &error_));
        return amax;
    }

    uint64_t pool_bytes(uint32_t shard) {
        auto info = described<quire_pool_info>();
        must(api_.cache_get_pool(cache_, 0, shard, &info, &error_));
        return info.size_bytes;
    }

 private:
    void must(quire_status status) { ASSERT_GE(status, 0) << error_.message; }

    void make_cache() {
        auto group = described<quire_group_desc>();
        group.kind = QUIRE_GROUP_LATENT;
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = kRow;
        group.v_head_dim = kLatent;
        group.k_dtype = dtype_;
        std::vector<quire_shard_desc> shards;
        for (quire_device *device : devices_) {
            shards.push_back(described<quire_shard_desc>());
            shards.back().device = device;
        }
        auto desc = described<quire_cache_desc>();
        desc.shards = shards.data();
        desc.shard_count = static_cast<uint32_t>(shards.size());
        desc.shard_stride = sizeof shards[0];
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.block_tokens = 4;
        desc.blocks = 16;
        desc.flags = flags_;
        must(api_.cache_create(instance_, &desc, &cache_, &error_));
    }

    void make_batch() {
        auto rope = described<quire_rope_desc>();
        rope.pairing = QUIRE_ROPE_PAIRS;
        auto attention = described<quire_attention_desc>();
        attention.q_heads = heads_;
        attention.scale = 0.25f;
        attention.rope = &rope;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 1;
        desc.max_blocks_per_row = 16;
        desc.max_query_tokens = 32;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        must(api_.batch_create(cache_, &desc, &batch_, &error_));
    }

    std::vector<float> step(uint32_t first, uint32_t count) {
        std::vector<uint32_t> tokens(count, 7);
        auto desc = described<quire_step_desc>();
        desc.queues = queues_.data();
        desc.queue_count = static_cast<uint32_t>(queues_.size());
        quire_step_item item{};
        item.seq = seq_;
        item.token_count = count;
        quire_step_result result{};
        quire_step step = 0;
        must(api_.step_begin(cache_, &desc, &item, 1, sizeof item, tokens.data(), count, &result,
                             sizeof result, &step, &error_));
        must(api_.step_commit(cache_, step, batch_, &error_));
        std::vector<float> all(size_t{count} * kHeads * kLatent);
        for (uint32_t shard = 0; shard < queues_.size(); ++shard) {
            attend(shard, first, count, &all);
        }
        must(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_));
        return all;
    }

    void attend(uint32_t shard, uint32_t first, uint32_t count, std::vector<float> *all) {
        std::vector<float> latent = draw(0, first, count, kLatent);
        std::vector<float> turned = draw(1, first, count, kTurned);
        std::vector<float> of_all = draw(2, first, count, kHeads * kRow), q, out;
        for (uint32_t t = 0; t < count; ++t) {
            const float *own = &of_all[(size_t{t} * kHeads + shard * heads_) * kRow];
            q.insert(q.end(), own, own + heads_ * kRow);
        }
        out.resize(size_t{count} * heads_ * kLatent);
        auto write = described<quire_kv_args>();
        write.k = reinterpret_cast<uint64_t>(latent.data());
        write.v = reinterpret_cast<uint64_t>(turned.data());
        write.q = reinterpret_cast<uint64_t>(q.data());
        must(api_.kv_write(batch_, &write, queues_[shard], &error_));
        auto args = described<quire_attend_args>();
        args.q = write.q;
        args.out = reinterpret_cast<uint64_t>(out.data());
        must(api_.attend(batch_, &args, queues_[shard], &error_));
        must(api_.queue_sync(queues_[shard], &error_));
        for (uint32_t t = 0; t < count; ++t) {
            std::memcpy(&(*all)[(size_t{t} * kHeads + shard * heads_) * kLatent],
                        &out[size_t{t} * heads_ * kLatent], heads_ * kLatent * sizeof(float));
        }
    }

    const quire_api &api_ = library();
    uint32_t heads_;  // query heads of a shard
    uint32_t dtype_, flags_;
    quire_error error_{};
    quire_instance *instance_ = nullptr;
    std::vector<quire_device *> devices_;
    std::vector<quire_queue *> queues_;
    quire_cache *cache_ = nullptr;
    quire_batch *batch_ = nullptr;
    quire_seq seq_ = 0;
};

TEST(LatentShards, hold_the_whole_row_and_give_the_bits_of_one_device) {
    LatentRanks one(1), two(2), four(4);
    std::vector<float> expected = one.run();
    size_t fifth = size_t{5} * kHeads * kLatent;  // the first token sees one key, whatever the head
    EXPECT_NE(expected[fifth], expected[fifth + kLatent]) << "two heads give different results";
    EXPECT_EQ(two.run(), expected);
    EXPECT_EQ(four.run(), expected);
    for (uint32_t shard = 0; shard < 4; ++shard) {
        EXPECT_EQ(four.pool_bytes(shard), one.pool_bytes(0));
    }
}

TEST(LatentShards, measure_one_row_so_that_v_has_the_number_of_k) {
    for (uint32_t count : {1u, 2u}) {
        LatentRanks ranks(count, QUIRE_DTYPE_F32, QUIRE_CACHE_CALIBRATE);
        ranks.run();
        std::vector<float> amax = ranks.measured();
        EXPECT_GT(amax[0], 0.0f);
        EXPECT_EQ(amax[1], amax[0]);
    }
}

}  // namespace
