// SPDX-License-Identifier: Apache-2.0
//
// schedule_cache: a cache of any groups and attention options on the cpu backend, behind `strict`,
// that launches whole steps and returns their outputs as bytes.
//
// Layer g is the one layer of group g. Q, K and V are functions of token, position, layer, head and
// element, so that recomputing a token, in any sequence and any number of times, writes the same
// values.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "cpu_cache.hpp"
#include "tests/place.hpp"

namespace quire::test {

struct GroupOptions {
    quire_group_desc group{};
    quire_attention_desc attention{};
    quire_rope_desc rope{};
    std::vector<float> slopes;
    bool has_rope = false;
};

struct ScheduleShape {
    std::string name;
    std::vector<GroupOptions> groups;
    bool masks = false;

    bool has_cross() const { return groups.back().group.kind == QUIRE_GROUP_CROSS; }
};

constexpr uint32_t kQueryHeads = 4, kMostRows = 12, kMostTokens = 256, kMostCross = 64;

inline float drawn(uint32_t kind, uint32_t token, uint32_t position, uint32_t layer, uint32_t i) {
    return std::sin(
        static_cast<float>(1 + kind * 7919 + token * 1299 + position * 31 + layer * 104'729 + i));
}

// The part of a step that one row computes.
struct ScheduledRow {
    std::vector<uint32_t> tokens;
    std::vector<uint32_t> positions;
    uint32_t cross_tokens = 0;  // to be written
    uint32_t cross_content = 0;
};

// The output of a token: the bytes of out and LSE over all layers.
using Output = std::vector<unsigned char>;

class ScheduleCache {
 public:
    ScheduleCache(const ScheduleShape &shape, uint32_t blocks, uint64_t host_bytes,
                  uint32_t threads)
        : shape_(shape) {
        error.struct_size = sizeof error;
        auto instance_desc = described<quire_instance_desc>();
        must(api.instance_create(&instance_desc, &instance_, &error));
        uint32_t index = 0;
        must(
            api.backend_load(instance_, quire::tests::place(QUIRE_STRICT).c_str(), &index, &error));
        device_ = open_device(threads);
        must(api.queue_create(device_, nullptr, &queue, &error));
        create_cache(blocks, host_bytes);
        create_batch();
        for (uint32_t i = 0; i < kArrays; ++i) arrays_[i] = make_array();
    }
    ~ScheduleCache() {
        must(api.queue_sync(queue, &error));
        must(api.batch_destroy(batch, &error));
        must(api.cache_destroy(cache, &error));
        for (Array &array : arrays_) must(api.memory_destroy(array.memory, &error));
        must(api.queue_destroy(queue, &error));
        left_.push_back(device_);
        for (quire_device *device : left_) must(api.device_close(device, &error));
        must(api.instance_destroy(instance_, &error));
    }
    ScheduleCache(const ScheduleCache &) = delete;
    ScheduleCache &operator=(const ScheduleCache &) = delete;

    void must(quire_status status) { ASSERT_GE(status, 0) << error.message; }

    quire_seq create(uint32_t cross_tokens) {
        auto desc = described<quire_seq_desc>();
        desc.cross_tokens = cross_tokens;
        quire_seq seq = 0;
        must(api.seq_create(cache, &desc, &seq, &error));
        return seq;
    }
    quire_seq_info info(quire_seq seq) {
        auto out = described<quire_seq_info>();
        must(api.seq_get_info(cache, seq, &out, &error));
        return out;
    }
    quire_step begin() {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue;
        desc.queue_count = 1;
        quire_step step = 0;
        must(api.step_begin(cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0, nullptr,
                            0, &step, &error));
        return step;
    }
    quire_step_result add(quire_step step, const quire_step_item &item,
                          const std::vector<uint32_t> &words) {
        quire_step_result result{};
        must(api.step_add(cache, step, &item, 1, sizeof item, words.data(),
                          static_cast<uint32_t>(words.size()), &result, sizeof result, &error));
        return result;
    }

    // Commits, runs all layers and finishes. Returns the output of every token, in row order.
    std::vector<Output> run(quire_step step, const std::vector<ScheduledRow> &rows) {
        must(api.step_commit(cache, step, batch, &error));
        std::vector<Output> outputs;
        for (const ScheduledRow &row : rows) outputs.resize(outputs.size() + row.tokens.size());
        for (uint32_t layer = 0; layer < shape_.groups.size() && !rows.empty(); ++layer) {
            launch(layer, rows);
            collect(layer, &outputs);
        }
        must(api.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &error));
        must(api.queue_sync(queue, &error));
        return outputs;
    }

    // Migrates, between steps, to a new device and pool; false if the live content does not fit.
    bool migrate(uint32_t blocks, uint32_t threads) {
        quire_device *target = open_device(threads);
        auto shard = described<quire_shard_desc>();
        shard.device = target;
        auto desc = described<quire_migrate_desc>();
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.blocks = blocks;
        auto info = described<quire_migrate_info>();
        quire_status status = api.cache_migrate(cache, &desc, &info, &error);
        must(status);
        left_.push_back(status == QUIRE_OK ? device_ : target);
        if (status != QUIRE_OK) return false;
        must(api.batch_destroy(batch, &error));
        must(api.queue_destroy(queue, &error));
        for (Array &array : arrays_) must(api.memory_destroy(array.memory, &error));
        device_ = target;
        must(api.queue_create(device_, nullptr, &queue, &error));
        create_batch();
        for (uint32_t i = 0; i < kArrays; ++i) arrays_[i] = make_array();
        must(api.cache_check(cache, &error));
        return true;
    }

    const quire_api &api = library();
    quire_error error{};
    quire_queue *queue = nullptr;
    quire_cache *cache = nullptr;
    quire_batch *batch = nullptr;

 private:
    struct Array {
        quire_memory *memory = nullptr;
        uint64_t address = 0;
        float *values = nullptr;
    };
    enum { kQ, kK, kV, kOut, kLse, kSinks, kArrays };

    quire_device *open_device(uint32_t threads) {
        auto desc = described<quire_device_desc>();
        desc.backend = "strict";
        desc.threads = threads;
        quire_device *device = nullptr;
        must(api.device_open(instance_, &desc, &device, &error));
        return device;
    }

    Array make_array() {
        auto desc = described<quire_memory_desc>();
        desc.kind = QUIRE_MEMORY_HOST;
        desc.size_bytes = uint64_t{kMostTokens} * kQueryHeads * 64 * sizeof(float);
        Array array;
        must(api.memory_create(device_, &desc, &array.memory, &error));
        auto info = described<quire_memory_info>();
        must(api.memory_get_info(array.memory, &info, &error));
        array.address = info.address;
        array.values = static_cast<float *>(info.host_pointer);
        return array;
    }

    void create_cache(uint32_t blocks, uint64_t host_bytes) {
        std::vector<quire_group_desc> groups;
        for (const GroupOptions &options : shape_.groups) groups.push_back(options.group);
        auto shard = described<quire_shard_desc>();
        shard.device = device_;
        auto desc = described<quire_cache_desc>();
        desc.groups = groups.data();
        desc.group_count = static_cast<uint32_t>(groups.size());
        desc.group_stride = sizeof(quire_group_desc);
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.blocks = blocks;
        desc.block_tokens = 4;
        desc.host_bytes = host_bytes;
        must(api.cache_create(instance_, &desc, &cache, &error));
    }

    void create_batch() {
        std::vector<quire_attention_desc> attention;
        for (const GroupOptions &options : shape_.groups) {
            attention.push_back(options.attention);
            if (options.has_rope) attention.back().rope = &options.rope;
            if (!options.slopes.empty()) attention.back().alibi_slopes = options.slopes.data();
        }
        auto desc = described<quire_batch_desc>();
        desc.flags = QUIRE_BATCH_SHARED_PREFIX;
        desc.max_rows = kMostRows;
        desc.max_blocks_per_row = 64;
        desc.max_query_tokens = kMostTokens;
        desc.max_mask_words = shape_.masks ? 512 : 0;
        desc.max_cross_tokens = kMostCross;
        desc.attention = attention.data();
        desc.attention_count = static_cast<uint32_t>(attention.size());
        desc.attention_stride = sizeof(quire_attention_desc);
        must(api.batch_create(cache, &desc, &batch, &error));
    }

    static void fill(float *at, uint32_t count, uint32_t kind, uint32_t token, uint32_t position,
                     uint32_t layer) {
        for (uint32_t i = 0; i < count; ++i) at[i] = drawn(kind, token, position, layer, i);
    }

    void launch(uint32_t layer, const std::vector<ScheduledRow> &rows) {
        const quire_group_desc &group = shape_.groups[layer].group;
        bool latent = group.kind == QUIRE_GROUP_LATENT, cross = group.kind == QUIRE_GROUP_CROSS;
        uint32_t k_count = group.kv_heads * (latent ? group.v_head_dim : group.k_head_dim);
        uint32_t v_count =
            group.kv_heads * (latent ? group.k_head_dim - group.v_head_dim : group.v_head_dim);
        uint32_t q_count = kQueryHeads * group.k_head_dim;
        uint32_t query = 0, written = 0;
        for (const ScheduledRow &row : rows) {
            for (size_t i = 0; i < row.tokens.size(); ++i, ++query) {
                uint32_t token = row.tokens[i], position = row.positions[i];
                fill(arrays_[kQ].values + query * q_count, q_count, 0, token, position, layer);
                if (cross) continue;
                fill(arrays_[kK].values + written * k_count, k_count, 1, token, position, layer);
                fill(arrays_[kV].values + written++ * v_count, v_count, 2, token, position, layer);
            }
            for (uint32_t i = 0; cross && i < row.cross_tokens; ++i, ++written) {
                uint32_t token = 5000 + row.cross_content;
                fill(arrays_[kK].values + written * k_count, k_count, 1, token, i, layer);
                fill(arrays_[kV].values + written * v_count, v_count, 2, token, i, layer);
            }
        }
        auto write = described<quire_kv_args>();
        write.k = arrays_[kK].address;
        write.v = arrays_[kV].address;
        write.layer = layer;
        if (shape_.groups[layer].has_rope) write.q = arrays_[kQ].address;
        must(api.kv_write(batch, &write, queue, &error));
        auto attend = described<quire_attend_args>();
        attend.q = arrays_[kQ].address;
        attend.out = arrays_[kOut].address;
        attend.lse = arrays_[kLse].address;
        attend.layer = layer;
        if ((shape_.groups[layer].attention.flags & QUIRE_ATTENTION_SINK_LOGITS) != 0) {
            fill(arrays_[kSinks].values, kQueryHeads, 3, 0, 0, layer);
            attend.sinks = arrays_[kSinks].address;
        }
        must(api.attend(batch, &attend, queue, &error));
        must(api.queue_sync(queue, &error));
    }

    void collect(uint32_t layer, std::vector<Output> *outputs) {
        uint32_t count = kQueryHeads * shape_.groups[layer].group.v_head_dim;
        for (size_t i = 0; i < outputs->size(); ++i) {
            auto append = [&](const float *values, uint32_t number) {
                const auto *bytes = reinterpret_cast<const unsigned char *>(values);
                (*outputs)[i].insert((*outputs)[i].end(), bytes, bytes + number * sizeof(float));
            };
            append(arrays_[kOut].values + i * count, count);
            append(arrays_[kLse].values + i * kQueryHeads, kQueryHeads);
        }
    }

    ScheduleShape shape_;
    quire_instance *instance_ = nullptr;
    quire_device *device_ = nullptr;
    std::vector<quire_device *> left_;  // some provide the host tier: closed at the end
    Array arrays_[kArrays];
};

}  // namespace quire::test
