// SPDX-License-Identifier: Apache-2.0
//
// cpu_cache: a cache with memory on the cpu backend, through the C ABI, for tests that need a
// device.
#pragma once

#include <gtest/gtest.h>
#include <quire/dyn.h>
#include <quire/quire.h>

#include <cstdlib>
#include <vector>

namespace quire::test {

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

inline const quire_api &library() {
    static const quire_api *api = [] {
        const quire_api *loaded = nullptr;
        char why[512] = "";
        if (quire_dyn_load(nullptr, &loaded, why, sizeof why) < 0) {
            std::fprintf(stderr, "%s\n", why);
            std::abort();
        }
        return loaded;
    }();
    return *api;
}

struct CacheShape {
    uint32_t blocks = 0;
    uint32_t block_tokens = 16;
    uint32_t head_dim = 64;
    uint32_t k_dtype = QUIRE_DTYPE_F32;
    uint32_t k_scale = QUIRE_SCALE_NONE;
    const char *backend = "cpu";
    const char *path = nullptr;  // of a plugin that the search does not find
    uint32_t threads = 0;
    quire_run_tasks run_tasks = nullptr;
    void *run_tasks_user = nullptr;
    uint32_t flags = 0;  // of the cache
    uint32_t device_flags = 0;
    const quire_chain *next = nullptr;  // of the device
};

// One layer, one head.
class CpuCache {
 public:
    explicit CpuCache(const CacheShape &shape) {
        error.struct_size = sizeof error;
        auto instance_desc = described<quire_instance_desc>();
        must(api.instance_create(&instance_desc, &instance, &error));
        auto device_desc = described<quire_device_desc>();
        device_desc.backend = shape.backend;
        device_desc.threads = shape.threads;
        device_desc.flags = shape.device_flags;
        device_desc.run_tasks = shape.run_tasks;
        device_desc.run_tasks_user = shape.run_tasks_user;
        device_desc.next = shape.next;
        uint32_t index = 0;
        if (shape.path != nullptr) must(api.backend_load(instance, shape.path, &index, &error));
        must(api.device_open(instance, &device_desc, &device, &error));
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = shape.head_dim;
        group.k_dtype = shape.k_dtype;
        group.k_scale = shape.k_scale;
        auto shard = described<quire_shard_desc>();
        shard.device = device;
        auto desc = described<quire_cache_desc>();
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.flags = shape.flags;
        if ((shape.flags & QUIRE_CACHE_FOLLOWER) == 0) desc.flags |= QUIRE_CACHE_AUDIT;
        desc.blocks = shape.blocks;
        desc.block_tokens = shape.block_tokens;
        must(api.cache_create(instance, &desc, &cache, &error));
    }
    ~CpuCache() {
        EXPECT_GE(api.cache_destroy(cache, &error), 0) << error.message;
        EXPECT_GE(api.device_close(device, &error), 0) << error.message;
        EXPECT_GE(api.instance_destroy(instance, &error), 0) << error.message;
    }
    CpuCache(const CpuCache &) = delete;
    CpuCache &operator=(const CpuCache &) = delete;

    void must(quire_status status) { ASSERT_GE(status, 0) << error.message; }

    quire_seq create() {
        auto desc = described<quire_seq_desc>();
        quire_seq seq = 0;
        must(api.seq_create(cache, &desc, &seq, &error));
        return seq;
    }

    // Opens a step with one item.
    quire_step begin(quire_queue *queue, quire_seq seq, const std::vector<uint32_t> &tokens,
                     quire_step_result *result) {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue;
        desc.queue_count = 1;
        quire_step_item item{};
        item.seq = seq;
        item.token_count = static_cast<uint32_t>(tokens.size());
        quire_step step = 0;
        must(api.step_begin(cache, &desc, &item, 1, sizeof item, tokens.data(), item.token_count,
                            result, sizeof *result, &step, &error));
        return step;
    }

    const quire_api &api = library();
    quire_error error{};
    quire_instance *instance = nullptr;
    quire_device *device = nullptr;
    quire_cache *cache = nullptr;
};

}  // namespace quire::test
