// SPDX-License-Identifier: Apache-2.0
//
// sharded_cache: a cache on several devices of the cpu backend, with a batch, and a step's kernels
// launched on all of them.
//
// K, V and Q are functions of token, position, layer and head, so that recomputing a head, on any
// shard and any number of times, writes the same values. The shards' outputs are put side by side
// as one device would return them; where several shards hold a head, their results must be equal.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "cpu_cache.hpp"

namespace quire::test {

struct Range {
    uint32_t layer_begin = 0;
    uint32_t layer_count = 0;
    uint32_t head_begin = 0;
    uint32_t head_count = 0;
};

struct GroupShape {
    uint32_t window;  // 0: full attention
    uint32_t layers;
    uint32_t kv_heads;
};

// Layers 0 to 2, 3 to 4 and 5.
inline const std::vector<GroupShape> kGroups = {{0, 3, 4}, {6, 2, 2}, {0, 1, 1}};
constexpr uint32_t kDim = 8, kShare = 2;  // query heads per KV head

inline float draw(uint32_t kind, uint32_t token, uint32_t position, uint32_t layer, uint32_t i) {
    return std::sin(
        static_cast<float>(1 + kind * 7919 + token * 1299 + position * 31 + layer * 104'729 + i));
}

// A row of a step: what it computes, in order.
struct TestRow {
    std::vector<uint32_t> tokens;
    uint32_t first_position;
};

// How K and V are kept in all groups.
struct KvFormat {
    uint32_t dtype = QUIRE_DTYPE_F32;
    uint32_t scale = QUIRE_SCALE_NONE;
    std::vector<unsigned char> calibration;
    float margin = 0.0f;
};

class ShardedCache {
 public:
    explicit ShardedCache(
        const std::vector<Range> &ranges, uint32_t blocks = 24, const char *path = nullptr,
        const quire_instance_desc &instance_desc = described<quire_instance_desc>(),
        uint32_t cache_flags = 0, const KvFormat &kv_format = {})
        : flags(cache_flags), format(kv_format) {
        error.struct_size = sizeof error;
        must(api.instance_create(&instance_desc, &instance, &error));
        uint32_t index = 0;
        if (path != nullptr) must(api.backend_load(instance, path, &index, &error));
        open_devices(ranges.size(), path != nullptr ? "failing" : "cpu");
        must(create(ranges, blocks));
        must(make_batch());
    }
    ~ShardedCache() {
        sync();
        if (batch != nullptr) {
            EXPECT_GE(api.batch_destroy(batch, &error), 0) << error.message;
        }
        if (cache != nullptr) {
            EXPECT_GE(api.cache_destroy(cache, &error), 0) << error.message;
        }
        for (quire_queue *queue : queues) {
            EXPECT_GE(api.queue_destroy(queue, &error), 0) << error.message;
        }
        for (quire_device *device : devices) {
            EXPECT_GE(api.device_close(device, &error), 0) << error.message;
        }
        EXPECT_GE(api.instance_destroy(instance, &error), 0) << error.message;
    }
    ShardedCache(const ShardedCache &) = delete;
    ShardedCache &operator=(const ShardedCache &) = delete;

    void must(quire_status status) { ASSERT_GE(status, 0) << error.message; }
    void sync() {
        for (quire_queue *queue : queues) must(api.queue_sync(queue, &error));
    }

    static std::vector<quire_group_desc> groups(const KvFormat &format = {}) {
        std::vector<quire_group_desc> out;
        for (const GroupShape &shape : kGroups) {
            auto group = described<quire_group_desc>();
            group.kind = shape.window != 0 ? QUIRE_GROUP_WINDOW : QUIRE_GROUP_FULL;
            group.window = shape.window;
            group.layer_count = shape.layers;
            group.kv_heads = shape.kv_heads;
            group.k_head_dim = group.v_head_dim = kDim;
            group.k_dtype = format.dtype;
            group.k_scale = format.scale;
            out.push_back(group);
        }
        return out;
    }

    quire_status create(const std::vector<Range> &ranges, uint32_t blocks) {
        std::vector<quire_shard_desc> shards;
        for (size_t i = 0; i < ranges.size(); ++i) {
            auto shard = described<quire_shard_desc>();
            shard.device = devices[i];
            shard.layer_begin = ranges[i].layer_begin;
            shard.layer_count = ranges[i].layer_count;
            shard.head_begin = ranges[i].head_begin;
            shard.head_count = ranges[i].head_count;
            shards.push_back(shard);
        }
        return create(shards, blocks);
    }
    quire_status create(const std::vector<quire_shard_desc> &shards, uint32_t blocks) {
        std::vector<quire_group_desc> list = groups(format);
        auto desc = described<quire_cache_desc>();
        desc.groups = list.data();
        desc.group_count = static_cast<uint32_t>(list.size());
        desc.group_stride = sizeof(quire_group_desc);
        desc.shards = shards.data();
        desc.shard_count = static_cast<uint32_t>(shards.size());
        desc.shard_stride = sizeof(quire_shard_desc);
        desc.blocks = blocks;
        desc.block_tokens = 4;
        desc.host_blocks = 12;
        desc.flags = flags;
        if ((flags & QUIRE_CACHE_FOLLOWER) == 0) desc.flags |= QUIRE_CACHE_AUDIT;
        desc.calibration = format.calibration.empty() ? nullptr : format.calibration.data();
        desc.calibration_bytes = format.calibration.size();
        desc.calibration_margin = format.margin;
        return api.cache_create(instance, &desc, &cache, &error);
    }

    quire_pool_info pool(uint32_t group, uint32_t shard) {
        auto info = described<quire_pool_info>();
        must(api.cache_get_pool(cache, group, shard, &info, &error));
        return info;
    }

    quire_step_desc step_desc() {
        auto desc = described<quire_step_desc>();
        desc.queues = queues.data();
        desc.queue_count = static_cast<uint32_t>(queues.size());
        return desc;
    }

    // Launches every layer on every shard; returns the outputs of all query heads,
    // [layer][token][head][dim]. after: called with each layer that was launched.
    std::vector<float> launch(const std::vector<TestRow> &rows,
                              const std::function<void(uint32_t)> &after = {}) {
        uint32_t count = 0, layer = 0;
        for (const TestRow &row : rows) count += static_cast<uint32_t>(row.tokens.size());
        std::vector<float> all;
        for (uint32_t g = 0; g < kGroups.size(); ++g) {
            for (uint32_t i = 0; i < kGroups[g].layers; ++i) {
                std::vector<float> out = launch_layer(rows, count, g, i, layer);
                all.insert(all.end(), out.begin(), out.end());
                if (after) after(layer);
                ++layer;
            }
        }
        return all;
    }

    const quire_api &api = library();
    uint32_t flags;  // QUIRE_CACHE_*
    KvFormat format;
    quire_error error{};
    quire_instance *instance = nullptr;
    std::vector<quire_device *> devices;
    std::vector<quire_queue *> queues;
    quire_cache *cache = nullptr;
    quire_batch *batch = nullptr;

    quire_status make_batch() {
        std::vector<quire_attention_desc> attention;
        for (uint32_t s = 0; s < devices.size(); ++s) {
            for (uint32_t g = 0; g < kGroups.size(); ++g) {
                auto options = described<quire_attention_desc>();
                options.q_heads = pool(g, s).head_count * kShare;
                attention.push_back(options);
            }
        }
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 8;
        desc.max_blocks_per_row = 16;
        desc.max_query_tokens = 128;
        desc.attention = attention.data();
        desc.attention_count = static_cast<uint32_t>(attention.size());
        desc.attention_stride = sizeof(quire_attention_desc);
        return api.batch_create(cache, &desc, &batch, &error);
    }

 private:
    void open_devices(size_t count, const char *backend) {
        auto desc = described<quire_device_desc>();
        desc.backend = backend;
        desc.threads = 1;
        for (size_t i = 0; i < count; ++i) {
            quire_device *device = nullptr;
            must(api.device_open(instance, &desc, &device, &error));
            devices.push_back(device);
            quire_queue *queue = nullptr;
            must(api.queue_create(device, nullptr, &queue, &error));
            queues.push_back(queue);
        }
    }

    // Elements of the heads [first, first + count) of every token; KV heads or query heads.
    static std::vector<float> elements(const std::vector<TestRow> &rows, uint32_t kind,
                                       uint32_t layer, uint32_t first, uint32_t count) {
        std::vector<float> out;
        for (const TestRow &row : rows) {
            for (uint32_t t = 0; t < row.tokens.size(); ++t) {
                for (uint32_t i = first * kDim; i < (first + count) * kDim; ++i) {
                    out.push_back(draw(kind, row.tokens[t], row.first_position + t, layer, i));
                }
            }
        }
        return out;
    }

    std::vector<float> launch_layer(const std::vector<TestRow> &rows, uint32_t count,
                                    uint32_t group, uint32_t in_group, uint32_t layer) {
        uint32_t heads = kGroups[group].kv_heads * kShare;
        std::vector<float> all(size_t{count} * heads * kDim, NAN);
        for (uint32_t s = 0; s < devices.size(); ++s) {
            quire_pool_info info = pool(group, s);
            if (in_group < info.layer_begin || in_group - info.layer_begin >= info.layer_count) {
                refuses_layer(s, layer);
                continue;
            }
            uint32_t q_first = info.head_begin * kShare, q_count = info.head_count * kShare;
            std::vector<float> out = launch_on(s, rows, layer, info);
            for (uint32_t t = 0; t < count; ++t) {
                float *to = &all[(size_t{t} * heads + q_first) * kDim];
                const float *from = &out[size_t{t} * q_count * kDim];
                for (uint32_t i = 0; i < q_count * kDim; ++i) {
                    bool differs = !std::isnan(to[i]) && to[i] != from[i];
                    EXPECT_FALSE(differs) << "replicas differ";
                    to[i] = from[i];
                }
            }
        }
        return all;
    }

    std::vector<float> launch_on(uint32_t s, const std::vector<TestRow> &rows, uint32_t layer,
                                 const quire_pool_info &info) {
        uint32_t q_first = info.head_begin * kShare, q_count = info.head_count * kShare;
        std::vector<float> k = elements(rows, 0, layer, info.head_begin, info.head_count);
        std::vector<float> v = elements(rows, 1, layer, info.head_begin, info.head_count);
        std::vector<float> q = elements(rows, 2, layer, q_first, q_count), out(q.size(), NAN);
        auto kv = described<quire_kv_args>();
        kv.k = reinterpret_cast<uint64_t>(k.data());
        kv.v = reinterpret_cast<uint64_t>(v.data());
        kv.layer = layer;
        must(api.kv_write(batch, &kv, queues[s], &error));
        auto args = described<quire_attend_args>();
        args.q = reinterpret_cast<uint64_t>(q.data());
        args.out = reinterpret_cast<uint64_t>(out.data());
        args.layer = layer;
        must(api.attend(batch, &args, queues[s], &error));
        must(api.queue_sync(queues[s], &error));
        return out;
    }

    void refuses_layer(uint32_t s, uint32_t layer) {
        float nothing = 0;
        auto kv = described<quire_kv_args>();
        kv.k = kv.v = reinterpret_cast<uint64_t>(&nothing);
        kv.layer = layer;
        EXPECT_EQ(api.kv_write(batch, &kv, queues[s], &error), QUIRE_E_ARG);
        EXPECT_NE(std::string(error.message).find("does not hold it"), std::string::npos);
    }
};

}  // namespace quire::test
