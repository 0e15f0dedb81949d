// SPDX-License-Identifier: Apache-2.0

#include "tests/tiers/tier_rig.hpp"

#include <dlfcn.h>

namespace quire::test {

namespace {

// A number for one element that follows from the row's number.
float element(uint64_t row, uint32_t shard, uint32_t group, uint32_t i) {
    uint64_t x = row ^ (uint64_t{shard} << 40) ^ (uint64_t{group} << 48) ^ i;
    x *= 0x9E3779B97F4A7C15u;
    return static_cast<float>((x >> 40) % 65'536);
}

}  // namespace

RigCache::RigCache(quire_instance *of, const RigShape &shape) : instance(of), shape_(shape) {
    error.struct_size = sizeof error;
    std::vector<quire_shard_desc> shards;
    for (uint32_t i = 0; i < shape.shards; ++i) {
        auto desc = described<quire_device_desc>();
        desc.backend = "cpu";
        quire_device *device = nullptr;
        EXPECT_EQ(api.device_open(instance, &desc, &device, &error), QUIRE_OK) << error.message;
        devices.push_back(device);
        quire_queue *queue = nullptr;
        EXPECT_EQ(api.queue_create(device, nullptr, &queue, &error), QUIRE_OK) << error.message;
        queues.push_back(queue);
        auto shard = described<quire_shard_desc>();
        shard.device = device;
        shard.head_begin = i;
        shard.head_count = 1;
        shards.push_back(shard);
    }
    quire_group_desc groups[2] = {described<quire_group_desc>(), described<quire_group_desc>()};
    for (quire_group_desc &group : groups) {
        group.layer_count = 1;
        group.kv_heads = shape.shards;
        group.k_head_dim = group.v_head_dim = kDim;
        group.k_dtype = shape.k_dtype;
    }
    if (shape.window != 0) groups[1].kind = QUIRE_GROUP_WINDOW;
    groups[1].window = shape.window;
    auto desc = described<quire_cache_desc>();
    desc.groups = groups;
    desc.group_count = group_count();
    desc.group_stride = sizeof groups[0];
    const uint32_t layer_groups[2] = {0, 1};
    desc.layer_groups = layer_groups;
    desc.shards = shards.data();
    desc.shard_count = shape.shards;
    desc.shard_stride = sizeof shards[0];
    desc.flags = shape.flags;
    desc.blocks = shape.blocks;
    desc.block_tokens = kBlockTokens;
    desc.max_sequences = 32;
    // K and V of one head.
    desc.host_bytes =
        uint64_t{shape.host_blocks} * desc.group_count * 2 * kBlockTokens * kDim * sizeof(float);
    EXPECT_EQ(api.cache_create(instance, &desc, &cache, &error), QUIRE_OK) << error.message;
}

RigCache::~RigCache() {
    EXPECT_EQ(wrong_rows, 0u);
    EXPECT_EQ(api.cache_destroy(cache, &error), QUIRE_OK) << error.message;
    for (quire_queue *queue : queues) {
        EXPECT_EQ(api.queue_destroy(queue, &error), QUIRE_OK) << error.message;
    }
    for (quire_device *device : devices) {
        EXPECT_EQ(api.device_close(device, &error), QUIRE_OK) << error.message;
    }
}

quire_status RigCache::attach(quire_tier *tier, uint32_t write, uint8_t model) {
    auto desc = described<quire_cache_tier_desc>();
    desc.fingerprint[0] = model;
    desc.write = write;
    desc.load_timeout_ns = UINT64_MAX / 4;
    desc.load_expiry_ns = UINT64_MAX / 4;
    return api.cache_attach_tier(cache, tier, &desc, &error);
}

quire_namespace RigCache::tenant(const char *key) {
    auto desc = described<quire_namespace_desc>();
    desc.key = key;
    desc.key_size_bytes = key != nullptr ? static_cast<uint32_t>(std::strlen(key)) : 0;
    quire_namespace ns = 0;
    EXPECT_EQ(api.namespace_create(cache, &desc, &ns, &error), QUIRE_OK) << error.message;
    uint64_t seed = 1;
    for (const char *c = key; c != nullptr && *c != 0; ++c) seed = seed * 131 + *c;
    tenants_.push_back({ns, seed});
    return ns;
}

quire_seq RigCache::create(quire_namespace ns, const char *salt) {
    auto desc = described<quire_seq_desc>();
    desc.ns = ns;
    quire_key key{};
    key.type = QUIRE_KEY_SALT;
    uint64_t seed = 0;
    for (const auto &[number, own] : tenants_) seed = number == ns ? own : seed;
    if (salt != nullptr) {
        key.bytes = salt;
        key.size_bytes = static_cast<uint32_t>(std::strlen(salt));
        desc.keys = &key;
        desc.key_count = 1;
        desc.key_stride = sizeof key;
        for (const char *c = salt; *c != 0; ++c) seed = seed * 137 + *c + 7;
    }
    quire_seq seq = 0;
    EXPECT_EQ(api.seq_create(cache, &desc, &seq, &error), QUIRE_OK) << error.message;
    known_.push_back({seq, Known{{}, seed}});
    return seq;
}

void RigCache::end(quire_seq seq) {
    EXPECT_EQ(api.seq_end(cache, seq, 0, &error), QUIRE_OK) << error.message;
    std::erase_if(known_, [&](const auto &one) { return one.first == seq; });
}

RigCache::Known &RigCache::of(quire_seq seq) {
    for (auto &one : known_) {
        if (one.first == seq) return one.second;
    }
    ADD_FAILURE() << "no such sequence";
    return known_.front().second;
}

quire_status RigCache::begin(const std::vector<Item> &items) {
    std::vector<quire_step_item> list;
    Tokens tokens;
    for (const Item &item : items) {
        quire_step_item one{};
        one.seq = item.seq;
        one.token_offset = static_cast<uint32_t>(tokens.size());
        one.token_count = static_cast<uint32_t>(item.tokens.size());
        one.max_compute = item.max_compute;
        one.max_hit_tokens = item.max_hit_tokens;
        one.flags = item.flags;
        list.push_back(one);
        tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    }
    auto desc = described<quire_step_desc>();
    desc.queues = queues.data();
    desc.queue_count = static_cast<uint32_t>(queues.size());
    results.assign(items.size(), quire_step_result{});
    quire_status status =
        api.step_begin(cache, &desc, list.data(), static_cast<uint32_t>(list.size()),
                       sizeof(quire_step_item), tokens.data(), static_cast<uint32_t>(tokens.size()),
                       results.data(), sizeof(quire_step_result), &step, &error);
    if (status == QUIRE_OK) items_ = items;
    return status;
}

// Writes the rows of tokens [begin, end), or counts those that differ.
void RigCache::each_row(quire_seq seq, uint32_t begin, uint32_t end, bool writes) {
    const Known &known = of(seq);
    std::vector<uint64_t> rows(end);
    uint64_t row = known.seed;
    for (uint32_t i = 0; i < end; ++i) {
        row = (row ^ known.tokens[i]) * 0xD6E8FEB86659FD93u + i;
        rows[i] = row;
    }
    for (uint32_t g = 0; g < group_count(); ++g) {
        std::vector<int32_t> ids(1'024);
        uint32_t count = 0;
        ASSERT_EQ(api.step_blocks(cache, step, seq, g, 0, ids.data(), 1'024, &count, &error),
                  QUIRE_OK)
            << error.message;
        for (uint32_t s = 0; s < shape_.shards; ++s) {
            auto pool = described<quire_pool_info>();
            ASSERT_EQ(api.cache_get_pool(cache, g, s, &pool, &error), QUIRE_OK);
            for (uint32_t i = begin; i < end; ++i) {
                const int32_t block = ids[i / kBlockTokens];
                if (block == 0) continue;  // its window has passed
                if (!writes && shape_.window != 0 && g == 1 && i + shape_.window <= end) continue;
                auto *at = reinterpret_cast<char *>(pool.address) + block * pool.block_stride +
                           (i % kBlockTokens) * pool.k_token_stride;
                for (uint32_t side = 0; side < 2; ++side, at += pool.v_offset) {
                    float want[kDim];
                    for (uint32_t k = 0; k < kDim; ++k)
                        want[k] = element(rows[i], s, g, side * kDim + k);
                    if (writes) {
                        std::memcpy(at, want, sizeof want);
                    } else {
                        wrong_rows += std::memcmp(at, want, sizeof want) != 0;
                    }
                }
            }
        }
    }
}

void RigCache::commit_and_compute() {
    for (size_t i = 0; i < items_.size(); ++i) {
        if (results[i].outcome != QUIRE_ITEM_RUN) continue;
        Tokens &tokens = of(items_[i].seq).tokens;
        tokens.insert(tokens.end(), items_[i].tokens.begin(), items_[i].tokens.end());
    }
    ASSERT_EQ(api.step_commit(cache, step, nullptr, &error), QUIRE_OK) << error.message;
    for (quire_queue *queue : queues) {
        ASSERT_EQ(api.queue_sync(queue, &error), QUIRE_OK) << error.message;
    }
    for (size_t i = 0; i < items_.size(); ++i) {
        const quire_step_result &r = results[i];
        if (r.outcome != QUIRE_ITEM_RUN) continue;
        each_row(items_[i].seq, r.first_position, r.first_position + r.compute_count, true);
    }
    for (size_t i = 0; i < items_.size(); ++i) {
        const quire_step_result &r = results[i];
        if (r.outcome == QUIRE_ITEM_RUN) each_row(items_[i].seq, 0, r.first_position, false);
    }
}

void RigCache::finish(uint32_t outcome) {
    ASSERT_EQ(api.step_finish(cache, step, nullptr, outcome, &error), QUIRE_OK) << error.message;
    for (quire_queue *queue : queues) {
        ASSERT_EQ(api.queue_sync(queue, &error), QUIRE_OK) << error.message;
    }
}

void RigCache::abort() {
    ASSERT_EQ(api.step_abort(cache, step, &error), QUIRE_OK) << error.message;
}

quire_step_result RigCache::run(quire_seq seq, const Tokens &tokens, uint32_t flags) {
    const Tokens &known = of(seq).tokens;
    Tokens added(tokens.begin() + static_cast<ptrdiff_t>(known.size()), tokens.end());
    EXPECT_EQ(begin({Item{seq, added, flags, 0}}), QUIRE_OK) << error.message;
    check();
    commit_and_compute();
    finish();
    check();
    return results[0];
}

quire_step_result RigCache::run_to_the_end(quire_seq seq, const Tokens &tokens) {
    for (;;) {
        quire_step_result result = run(seq, tokens);
        if (result.outcome != QUIRE_ITEM_LOADING) return result;
        quire_status waited = api.cache_load_wait(cache, UINT64_MAX, nullptr, &error);
        EXPECT_EQ(waited, QUIRE_OK) << error.message;
        if (waited != QUIRE_OK) return result;
    }
}

void RigCache::compute(const Tokens &tokens, quire_namespace ns) {
    quire_seq seq = create(ns);
    EXPECT_EQ(run(seq, tokens, 0).outcome, uint32_t{QUIRE_ITEM_RUN});
    end(seq);
}

void RigCache::settle() {
    while (poll().blocks_queued != 0) {
    }
}

// A sequence of other tokens takes every block, unless sequences hold some.
void RigCache::evict_all() {
    quire_seq seq = create(0, "evictor");
    const Tokens other = prompt(9'999, (shape_.blocks - 1) * kBlockTokens);
    run(seq, other, 0);
    end(seq);
}

quire_cache_tier_progress RigCache::poll() {
    auto progress = described<quire_cache_tier_progress>();
    EXPECT_EQ(api.cache_poll_tier(cache, &progress, &error), QUIRE_OK) << error.message;
    return progress;
}

quire_cache_tier_stats RigCache::stats() {
    auto stats = described<quire_cache_tier_stats>();
    EXPECT_EQ(api.cache_get_tier_stats(cache, &stats, &error), QUIRE_OK) << error.message;
    return stats;
}

TierRig::TierRig() {
    error.struct_size = sizeof error;
    auto desc = described<quire_instance_desc>();
    EXPECT_EQ(api.instance_create(&desc, &instance, &error), QUIRE_OK) << error.message;
}

TierRig::~TierRig() {
    close();
    EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK) << error.message;
}

quire_status TierRig::open(const char *store, const std::vector<quire_store_option> &options,
                           uint32_t flags) {
    auto desc = described<quire_tier_desc>();
    desc.store = store;
    desc.flags = flags;
    desc.options = options.data();
    desc.option_count = static_cast<uint32_t>(options.size());
    desc.option_stride = sizeof(quire_store_option);
    return api.tier_open(instance, &desc, &tier, &error);
}

void TierRig::open_stub() {
    const std::string path = quire::tests::place(QUIRE_STUB_STORE_PATH);
    ASSERT_EQ(open(path.c_str(), {{"capacity", "16MiB"}}), QUIRE_OK) << error.message;
    void *plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(plugin, nullptr) << dlerror();
    void *symbol = dlsym(plugin, "quire_stub_control");
    ASSERT_NE(symbol, nullptr);
    stub = reinterpret_cast<StubControl *(*)()>(symbol)();
    stub->reset();
}

void TierRig::close() {
    if (stub != nullptr) stub->reset();
    if (tier == nullptr) return;
    EXPECT_EQ(api.tier_close_wait(tier, UINT64_MAX, &error), QUIRE_OK) << error.message;
    tier = nullptr;
}

}  // namespace quire::test
