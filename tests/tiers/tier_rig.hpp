// SPDX-License-Identifier: Apache-2.0
//
// tier_rig: an engine without a model on the cpu backend, with a store below its cache.
//
// K and V of a token are numbers that follow from all tokens up to it, the tenant and the model, so
// that any block which is not what it should be shows. The rig writes and compares them in the
// pool's memory.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/device/cpu_cache.hpp"
#include "tests/place.hpp"
#include "tests/tiers/stub_store.hpp"

namespace quire::test {

using Tokens = std::vector<uint32_t>;

struct RigShape {
    uint32_t blocks = 33;  // the null block included
    uint32_t host_blocks = 32;
    uint32_t shards = 1;
    uint32_t groups = 1;
    uint32_t window = 0;  // of a second group; 0: none has one
    uint32_t k_dtype = QUIRE_DTYPE_F32;
    uint32_t flags = QUIRE_CACHE_AUDIT;
};

inline Tokens prompt(uint32_t seed, uint32_t count) {
    Tokens out;
    for (uint32_t i = 0; i < count; ++i) out.push_back((seed * 7919 + i * 31 + i / 7) % 50'000);
    return out;
}

// A cache with one queue per shard.
class RigCache {
 public:
    static constexpr uint32_t kBlockTokens = 8;
    static constexpr uint32_t kDim = 16;

    explicit RigCache(quire_instance *instance, const RigShape &shape = {});
    ~RigCache();
    RigCache(const RigCache &) = delete;
    RigCache &operator=(const RigCache &) = delete;

    quire_status attach(quire_tier *tier, uint32_t write = QUIRE_TIER_WRITE_THROUGH,
                        uint8_t model = 1);
    quire_status detach(uint64_t timeout_ns = UINT64_MAX) {
        return api.cache_detach_tier_wait(cache, timeout_ns, &error);
    }
    quire_namespace tenant(const char *key);
    quire_seq create(quire_namespace ns = 0, const char *salt = nullptr);
    void end(quire_seq seq);

    struct Item {
        quire_seq seq;
        Tokens tokens;  // added by the item
        uint32_t flags = QUIRE_ITEM_MAY_LOAD;
        uint32_t max_compute = 0;
        uint32_t max_hit_tokens = 0;
    };
    quire_status begin(const std::vector<Item> &items);
    // Computes what the step's items compute, after comparing what they found.
    void commit_and_compute();
    void finish(uint32_t outcome = QUIRE_STEP_OK);
    void abort();
    // One item, in a step of its own; its result. `tokens` are all that the sequence knows then.
    quire_step_result run(quire_seq seq, const Tokens &tokens,
                          uint32_t flags = QUIRE_ITEM_MAY_LOAD);
    // Sends the item until it does not load any more.
    quire_step_result run_to_the_end(quire_seq seq, const Tokens &tokens);
    // Computes the prompt in a sequence that ends then.
    void compute(const Tokens &tokens, quire_namespace ns = 0);
    // Waits until everything that was computed is in the store.
    void settle();
    void evict_all();
    quire_cache_tier_progress poll();
    quire_cache_tier_stats stats();
    void check() { ASSERT_EQ(api.cache_check(cache, &error), QUIRE_OK) << error.message; }
    bool says(const char *words) const {
        return std::string(error.message).find(words) != std::string::npos;
    }

    const quire_api &api = library();
    quire_error error{};
    quire_instance *instance;
    std::vector<quire_device *> devices;
    std::vector<quire_queue *> queues;
    quire_cache *cache = nullptr;
    quire_step step = 0;
    std::vector<quire_step_result> results;
    uint64_t wrong_rows = 0;  // found in blocks that items were given

 private:
    struct Known {
        Tokens tokens;
        uint64_t seed;
    };
    uint32_t group_count() const { return shape_.window != 0 ? 2 : shape_.groups; }
    void each_row(quire_seq seq, uint32_t begin, uint32_t end, bool writes);

    RigShape shape_;
    std::vector<Item> items_;
    std::vector<std::pair<quire_seq, Known>> known_;
    std::vector<std::pair<quire_namespace, uint64_t>> tenants_;
    Known &of(quire_seq seq);
};

// An instance, and a store of some kind.
class TierRig : public testing::Test {
 protected:
    TierRig();
    ~TierRig() override;

    quire_status open(const char *store, const std::vector<quire_store_option> &options = {},
                      uint32_t flags = 0);
    void open_stub();
    void close();

    const quire_api &api = library();
    quire_error error{};
    quire_instance *instance = nullptr;
    quire_tier *tier = nullptr;
    StubControl *stub = nullptr;
};

}  // namespace quire::test
