// SPDX-License-Identifier: Apache-2.0

#include "stage.hpp"

#include <algorithm>

#include "finding.hpp"

namespace gpupaths {

namespace {

constexpr uint64_t kPatience_ns = 20'000'000'000;

}  // namespace

void Stage::must(quire_status status, const char *what) {
    if (status < 0) fail("works-without-faults", "%s: %d, %s", what, status, error.message);
}

Stage::Stage(Library &opened, const Shape &drawn) : library(opened), q(*opened.q), shape(drawn) {
    error = described<quire_error>();
    shards = open(shape.shards);
    create_cache();
    furnish();
}

bool Stage::close() {
    give_up(true);
    bool is_clean = shards.empty() && left_.empty() && old_lanes_.empty();
    return is_clean && !was_abandoned_;
}

std::vector<Shard> Stage::open(const std::vector<ShardShape> &shapes) {
    std::vector<Shard> opened(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
        opened[i].shape = shapes[i];
        opened[i].backend = &library.named(shapes[i].backend);
        std::string name = "watched-" + shapes[i].backend;
        auto desc = described<quire_device_desc>();
        desc.backend = name.c_str();
        desc.threads = 1;
        must(q.device_open(library.instance, &desc, &opened[i].device, &error), "device_open");
        opened[i].inner = opened[i].backend->watch().last_device();
    }
    return opened;
}

std::vector<quire_shard_desc> Stage::descs_of(const std::vector<Shard> &shards) {
    std::vector<quire_shard_desc> descs;
    for (const Shard &shard : shards) {
        auto desc = described<quire_shard_desc>();
        desc.device = shard.device;
        desc.layer_begin = shard.shape.layer_begin;
        desc.layer_count = shard.shape.layer_count;
        desc.head_begin = shard.shape.head_begin;
        desc.head_count = shard.shape.head_count;
        descs.push_back(desc);
    }
    return descs;
}

uint64_t Stage::block_bytes() const {
    uint64_t sum = 0;
    for (const GroupShape &group : shape.groups) {
        sum += uint64_t{2} * group.layers * group.heads * shape.block_tokens * kDim *
               bytes_of(group.dtype);
    }
    return sum;
}

void Stage::create_cache() {
    std::vector<quire_group_desc> groups;
    for (const GroupShape &group : shape.groups) {
        auto desc = described<quire_group_desc>();
        desc.kind = group.kind;
        desc.window = group.window;
        desc.sink_tokens = group.sinks;
        desc.layer_count = group.layers;
        desc.kv_heads = group.heads;
        desc.k_head_dim = desc.v_head_dim = kDim;
        desc.k_dtype = group.dtype;
        groups.push_back(desc);
    }
    std::vector<quire_shard_desc> descs = descs_of(shards);
    auto desc = described<quire_cache_desc>();
    desc.flags = shape.flags;
    desc.shards = descs.data();
    desc.shard_count = static_cast<uint32_t>(descs.size());
    desc.shard_stride = sizeof descs[0];
    desc.groups = groups.data();
    desc.group_count = static_cast<uint32_t>(groups.size());
    desc.group_stride = sizeof groups[0];
    desc.block_tokens = shape.block_tokens;
    desc.max_sequences = 16;
    desc.blocks = shape.blocks;
    desc.host_bytes = shape.host_blocks == 0 ? 0 : (shape.host_blocks + 1) * block_bytes();
    must(q.cache_create(library.instance, &desc, &cache, &error), "cache_create");
}

Memory Stage::make_memory(quire_device *device, uint64_t size_bytes) {
    Memory made;
    auto desc = described<quire_memory_desc>();
    desc.size_bytes = size_bytes;
    desc.kind = QUIRE_MEMORY_HOST;
    must(q.memory_create(device, &desc, &made.memory, &error), "memory_create");
    auto info = described<quire_memory_info>();
    must(q.memory_get_info(made.memory, &info, &error), "memory_get_info");
    made.address = info.address;
    made.host = static_cast<unsigned char *>(info.host_pointer);
    return made;
}

quire_status Stage::try_lane(Shard *shard, Lane *lane) {
    quire_native native{};
    const quire_native *bound = nullptr;
    if (shape.streams && shard->backend->is_emulated()) {
        lane->stream = shard->backend->make_stream();
        native.kind =
            shard->backend->name() == "cuda" ? QUIRE_NATIVE_CUDA_STREAM : QUIRE_NATIVE_HIP_STREAM;
        native.value = reinterpret_cast<uint64_t>(lane->stream);
        bound = &native;
    }
    quire_status status = q.queue_create(shard->device, bound, &lane->queue, &error);
    if (status < 0) return status;
    lane->inner = shard->backend->watch().last_queue();
    return q.fence_create(shard->device, 0, &lane->gate, &error);
}

void Stage::make_lane(Shard *shard, Lane *lane) { must(try_lane(shard, lane), "a queue"); }

void Stage::furnish() {
    uint32_t heads = kMostHeads;
    for (Shard &shard : shards) {
        shard.pools.clear();
        uint64_t block = 0;
        for (uint32_t g = 0; g < shape.groups.size(); ++g) {
            auto info = described<quire_pool_info>();
            auto index = static_cast<uint32_t>(&shard - shards.data());
            must(q.cache_get_pool(cache, g, index, &info, &error), "cache_get_pool");
            shard.pools.push_back(info);
            block += static_cast<uint64_t>(info.block_stride);
        }
        shard.input_bytes = uint64_t{2} * shape.layers() * kMostTokens * heads * kDim * 4;
        shard.seen_bytes = block * kMostRows * (kMostText / shape.block_tokens + 2);
        for (uint32_t i = 0; i < kSlots; ++i) {
            shard.slots.push_back(make_memory(shard.device, shard.input_bytes + shard.seen_bytes));
        }
        shard.scratch = make_memory(shard.device, uint64_t{8} * kMostTokens * heads * kDim);
        uint64_t largest = 64;
        for (const quire_pool_info &pool : shard.pools) {
            largest = std::max(largest, pool.size_bytes);
        }
        shard.audit = make_memory(shard.device, largest);
        shard.lanes.resize(shape.queues);
        for (Lane &lane : shard.lanes) {
            make_lane(&shard, &lane);
            if (shape.graphs && lane.stream != nullptr) {
                lane.graph.input = make_memory(shard.device, shard.input_bytes);
            }
        }
    }
    make_batches();
}

void Stage::make_batches() {
    std::vector<quire_attention_desc> attention;
    for (const Shard &shard : shards) {
        for (uint32_t g = 0; g < shape.groups.size(); ++g) {
            auto desc = described<quire_attention_desc>();
            desc.q_heads = std::max(shard.pools[g].head_count, 1u);
            if (shape.trees) desc.flags |= QUIRE_ATTENTION_MASK;
            attention.push_back(desc);
        }
    }
    auto desc = described<quire_batch_desc>();
    desc.max_rows = kMostRows;
    desc.max_blocks_per_row = kMostText / shape.block_tokens + 2;
    desc.max_query_tokens = kMostTokens;
    if (shape.attends || shape.trees) {
        desc.attention = attention.data();
        desc.attention_count = static_cast<uint32_t>(attention.size());
        desc.attention_stride = sizeof attention[0];
    } else {
        desc.views = QUIRE_VIEW_SLOTS | QUIRE_VIEW_BLOCK_TABLE;
    }
    desc.max_mask_words = shape.trees ? 64 : 0;
    batches.assign(shape.queues, nullptr);
    for (quire_batch *&batch : batches) {
        must(q.batch_create(cache, &desc, &batch, &error), "batch_create");
    }
}

std::vector<quire_queue *> Stage::queues_of(uint32_t queue) const {
    std::vector<quire_queue *> out;
    for (const Shard &shard : shards) out.push_back(shard.lanes[queue].queue);
    return out;
}

bool Stage::shut_gate(uint32_t queue) {
    bool is_shut = false;
    for (Shard &shard : shards) {
        Lane &lane = shard.lanes[queue];
        if (lane.stream != nullptr || lane.shut > lane.opened) continue;
        library.pause(true);
        bool shut = q.queue_after(lane.queue, lane.gate, lane.opened + 1, &error) >= 0;
        library.pause(false);
        if (shut) lane.shut = lane.opened + 1;
        is_shut = is_shut || shut;
    }
    return is_shut;
}

void Stage::open_gates() {
    for (Shard &shard : shards) {
        for (Lane &lane : shard.lanes) {
            if (lane.shut <= lane.opened) continue;
            (void)q.fence_signal(lane.gate, lane.shut, &error);
            lane.opened = lane.shut;
        }
    }
}

bool Stage::has_shut_gate() const {
    for (const Shard &shard : shards) {
        for (const Lane &lane : shard.lanes) {
            if (lane.shut > lane.opened) return true;
        }
    }
    return false;
}

quire_status Stage::sync(uint32_t queue) {
    quire_status first = QUIRE_OK;
    for (Shard &shard : shards) {
        quire_status status = q.queue_sync(shard.lanes[queue].queue, &error);
        if (status < 0 && first == QUIRE_OK) first = status;
    }
    return first;
}

void Stage::quiesce() {
    open_gates();
    for (Shard &shard : shards) {
        shard.backend->pause(true);
        (void)shard.backend->watch().quiesce(shard.inner, kPatience_ns, &error);
        shard.backend->pause(false);
    }
}

void Stage::retire_graph(Lane *lane) {
    if (lane->graph.launchable != nullptr) lane->old_graphs.push_back(lane->graph.launchable);
    lane->graph.launchable = nullptr;
}

void Stage::drop_graphs(const Backend &backend, Lane *lane) {
    retire_graph(lane);
    if (lane->old_graphs.empty()) return;
    backend.pause(true);
    backend.await_stream(lane->stream);
    backend.pause(false);
    for (void *launchable : lane->old_graphs) backend.destroy_graph(launchable);
    lane->old_graphs.clear();
}

bool Stage::replace(uint32_t queue) {
    for (Shard &shard : shards) {
        Lane &lane = shard.lanes[queue];
        drop_graphs(*shard.backend, &lane);
        Lane made;
        made.graph.input = lane.graph.input;
        if (try_lane(&shard, &made) < 0) return false;
        lane.graph.input = {};
        old_lanes_.emplace_back(shard.backend, lane);
        lane = made;
    }
    return true;
}

void Stage::close_lane(Shard *shard, Lane *lane) {
    drop_graphs(*shard->backend, lane);
    if (lane->graph.input.memory != nullptr) {
        must(q.memory_destroy(lane->graph.input.memory, &error), "memory_destroy");
    }
    must(q.queue_destroy(lane->queue, &error), "queue_destroy");
    must(q.fence_destroy(lane->gate, &error), "fence_destroy");
    lane->queue = nullptr;
}

// Destroys everything but the device.
void Stage::clear(Shard *shard) {
    for (Lane &lane : shard->lanes) close_lane(shard, &lane);
    for (const Memory &slot : shard->slots) {
        must(q.memory_destroy(slot.memory, &error), "memory_destroy");
    }
    must(q.memory_destroy(shard->scratch.memory, &error), "memory_destroy");
    must(q.memory_destroy(shard->audit.memory, &error), "memory_destroy");
    shard->slots.clear();
}

void Stage::sweep() {
    std::erase_if(old_lanes_, [&](std::pair<Backend *, Lane> &old) {
        Lane &lane = old.second;
        if (lane.queue != nullptr && q.queue_destroy(lane.queue, &error) < 0) return false;
        lane.queue = nullptr;
        return q.fence_destroy(lane.gate, &error) >= 0;
    });
    std::erase_if(left_, [&](Shard &shard) {
        if (q.device_close(shard.device, &error) < 0) return false;
        for (Lane &lane : shard.lanes) {
            if (lane.stream != nullptr) shard.backend->destroy_stream(lane.stream);
        }
        return true;
    });
}

quire_status Stage::migrate(const std::vector<ShardShape> &shapes, uint32_t blocks, uint32_t flags,
                            quire_migrate_info *info) {
    library.pause(true);
    std::vector<Shard> target = open(shapes);
    library.pause(false);
    std::vector<quire_shard_desc> descs = descs_of(target);
    auto desc = described<quire_migrate_desc>();
    desc.flags = flags;
    desc.shards = descs.data();
    desc.shard_count = static_cast<uint32_t>(descs.size());
    desc.shard_stride = sizeof descs[0];
    desc.blocks = blocks;
    quire_status status = q.cache_migrate_wait(cache, &desc, info, kPatience_ns, &error);
    if (status != QUIRE_OK) {
        left_.insert(left_.end(), target.begin(), target.end());
        return status;
    }
    library.disarm();
    for (quire_batch *batch : batches) must(q.batch_destroy(batch, &error), "batch_destroy");
    std::vector<Shard> old = std::move(shards);
    shards = std::move(target);
    shape.shards = shapes;
    if (blocks != 0) shape.blocks = blocks;
    for (Shard &shard : old) clear(&shard);
    left_.insert(left_.end(), old.begin(), old.end());
    furnish();
    sweep();
    return status;
}

void Stage::give_up(bool destroys_first) {
    bool is_destroyed = destroys_first;
    for (quire_batch *batch : batches) {
        is_destroyed = is_destroyed && q.batch_destroy(batch, &error) >= 0;
    }
    is_destroyed = is_destroyed && q.cache_destroy(cache, &error) >= 0;
    batches.clear();
    if (is_destroyed) {
        cache = nullptr;
        for (Shard &shard : shards) clear(&shard);
        left_.insert(left_.end(), shards.begin(), shards.end());
        shards.clear();
        sweep();
        return;
    }
    was_abandoned_ = true;
    auto info = described<quire_abandon_info>();
    must(q.cache_abandon(cache, &info, &error), "cache_abandon");
    cache = nullptr;
    for (Shard &shard : shards) {
        for (Lane &lane : shard.lanes) drop_graphs(*shard.backend, &lane);
        info = described<quire_abandon_info>();
        must(q.device_abandon(shard.device, &info, &error), "device_abandon");
    }
    shards.clear();
    old_lanes_.clear();
    for (Shard &shard : left_) {
        if (q.device_close(shard.device, &error) >= 0) continue;
        info = described<quire_abandon_info>();
        (void)q.device_abandon(shard.device, &info, &error);
    }
    left_.clear();
}

}  // namespace gpupaths
