// SPDX-License-Identifier: Apache-2.0
//
// objects: one of everything that a consumer can have: a device of the cpu backend, a queue, a
// fence, memory, a cache, a namespace, a sequence and a batch with a committed step.
//
// Test programs without GoogleTest use it too, and check problem().
//
// Invariant: problem() describes the first call that failed, and only that one.
//
// Threads: none.
#pragma once

#include <quire/quire.h>

#include <cstdio>

namespace quire::test {

class Objects {
 public:
    explicit Objects(const quire_api &table) : api(table) { error.struct_size = sizeof error; }
    Objects(const Objects &) = delete;
    Objects &operator=(const Objects &) = delete;

    const quire_api &api;
    quire_error error{};
    quire_instance *instance = nullptr;
    quire_device *device = nullptr;
    quire_queue *queue = nullptr;
    quire_fence *fence = nullptr;
    quire_memory *memory = nullptr;
    quire_cache *cache = nullptr;
    quire_namespace ns = 0;
    quire_seq seq = 0;
    quire_step step = 0;  // committed
    quire_batch *batch = nullptr;

    // Empty if every call succeeded.
    const char *problem() const { return problem_; }

    bool make(const quire_instance_desc &host) {
        must("instance_create", api.instance_create(&host, &instance, &error));
        if (instance == nullptr) return false;
        quire_device_desc device_desc{};
        device_desc.struct_size = sizeof device_desc;
        device_desc.backend = "cpu";
        device_desc.threads = 1;
        must("device_open", api.device_open(instance, &device_desc, &device, &error));
        if (device == nullptr) return false;
        must("queue_create", api.queue_create(device, nullptr, &queue, &error));
        must("fence_create", api.fence_create(device, 0, &fence, &error));
        quire_memory_desc memory_desc{};
        memory_desc.struct_size = sizeof memory_desc;
        memory_desc.size_bytes = 4096;
        must("memory_create", api.memory_create(device, &memory_desc, &memory, &error));
        make_cache();
        if (cache == nullptr) return false;
        make_batch();
        commit();
        return problem_[0] == '\0';
    }

    // Writes K and V and runs attention over them.
    void launch() {
        quire_memory_info info{};
        info.struct_size = sizeof info;
        must("memory_get_info", api.memory_get_info(memory, &info, &error));
        quire_kv_args kv{};
        kv.struct_size = sizeof kv;
        kv.k = kv.v = info.address;
        must("kv_write", api.kv_write(batch, &kv, queue, &error));
        quire_attend_args attend{};
        attend.struct_size = sizeof attend;
        attend.q = info.address;
        attend.out = info.address + 1024;
        must("attend", api.attend(batch, &attend, queue, &error));
    }

    void destroy() {
        if (step != 0) {
            must("step_finish", api.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &error));
        }
        if (queue != nullptr) must("queue_sync", api.queue_sync(queue, &error));
        if (batch != nullptr) must("batch_destroy", api.batch_destroy(batch, &error));
        if (cache != nullptr) must("cache_destroy", api.cache_destroy(cache, &error));
        if (memory != nullptr) must("memory_destroy", api.memory_destroy(memory, &error));
        if (fence != nullptr) must("fence_destroy", api.fence_destroy(fence, &error));
        if (queue != nullptr) must("queue_destroy", api.queue_destroy(queue, &error));
        if (device != nullptr) must("device_close", api.device_close(device, &error));
        if (instance != nullptr) must("instance_destroy", api.instance_destroy(instance, &error));
    }

    void must(const char *what, quire_status status) {
        if (status >= 0 || problem_[0] != '\0') return;
        std::snprintf(problem_, sizeof problem_, "%s: %d: %s", what, static_cast<int>(status),
                      error.message);
    }

 private:
    void make_cache() {
        quire_shard_desc shard{};
        shard.struct_size = sizeof shard;
        shard.device = device;
        quire_group_desc group{};
        group.struct_size = sizeof group;
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = 64;
        quire_cache_desc desc{};
        desc.struct_size = sizeof desc;
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.blocks = 32;
        desc.host_bytes = 1 << 16;
        desc.flags = QUIRE_CACHE_EVENTS;
        must("cache_create", api.cache_create(instance, &desc, &cache, &error));
    }

    void make_batch() {
        quire_attention_desc attention{};
        attention.struct_size = sizeof attention;
        attention.q_heads = 1;
        quire_batch_desc desc{};
        desc.struct_size = sizeof desc;
        desc.max_rows = desc.max_blocks_per_row = desc.max_query_tokens = 8;
        desc.views = QUIRE_VIEW_SLOTS;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        must("batch_create", api.batch_create(cache, &desc, &batch, &error));
    }

    void commit() {
        quire_namespace_desc ns_desc{};
        ns_desc.struct_size = sizeof ns_desc;
        must("namespace_create", api.namespace_create(cache, &ns_desc, &ns, &error));
        quire_seq_desc seq_desc{};
        seq_desc.struct_size = sizeof seq_desc;
        seq_desc.ns = ns;
        must("seq_create", api.seq_create(cache, &seq_desc, &seq, &error));
        quire_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.queues = &queue;
        desc.queue_count = 1;
        quire_step_item item{};
        item.seq = seq;
        item.token_count = 3;
        const quire_token tokens[] = {1, 2, 3};
        quire_step_result result{};
        must("step_begin", api.step_begin(cache, &desc, &item, 1, sizeof item, tokens, 3, &result,
                                          sizeof result, &step, &error));
        must("step_commit", api.step_commit(cache, step, batch, &error));
    }

    char problem_[640] = "";
};

}  // namespace quire::test
