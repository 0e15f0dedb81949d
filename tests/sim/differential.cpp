// SPDX-License-Identifier: Apache-2.0
//
// differential: see differential.hpp.
#include "differential.hpp"

#include <algorithm>
#include <vector>

#include "finding.hpp"
#include "rng.hpp"

namespace sim {
namespace {

struct Shape {
    uint32_t block_tokens = 1;
    uint32_t device = 1;  // usable blocks
    uint32_t host = 0;
    uint32_t groups = 1;
};

// One cache, and what is asked of it. Every call must be answered with QUIRE_OK.
class Half {
 public:
    Half(const quire_api *api, quire_instance *instance, const Shape &shape)
        : q_(api), shape_(shape) {
        error_.struct_size = sizeof error_;
        quire_group_desc group{};
        group.struct_size = sizeof group;
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = 8;
        group.blocks = shape.device + 1;
        const std::vector<quire_group_desc> groups(shape.groups, group);
        quire_cache_desc desc{};
        desc.struct_size = sizeof desc;
        desc.groups = groups.data();
        desc.group_count = shape.groups;
        desc.group_stride = sizeof group;
        desc.block_tokens = shape.block_tokens;
        desc.flags = QUIRE_CACHE_FIXED_HASH;
        if (shape.host != 0) desc.flags |= QUIRE_CACHE_HOST_PREFIXES;
        desc.host_blocks = shape.host;
        need(q_->cache_create(instance, &desc, &cache_, &error_), "quire_cache_create");
    }
    ~Half() { q_->cache_destroy(cache_, &error_); }
    Half(const Half &) = delete;
    Half &operator=(const Half &) = delete;

    void create() {
        quire_seq_desc desc{};
        desc.struct_size = sizeof desc;
        need(q_->seq_create(cache_, &desc, &seq_, &error_), "quire_seq_create");
    }
    // The hits of one step with one item, or what a probe says of it before an abort.
    uint32_t step(const std::vector<quire_token> &tokens, bool abort) {
        quire_step_desc desc{};
        desc.struct_size = sizeof desc;
        quire_step_item item{};
        item.seq = seq_;
        item.token_count = static_cast<uint32_t>(tokens.size());
        quire_step_result result{};
        quire_step step = 0;
        need(q_->step_begin(cache_, &desc, &item, 1, sizeof item, tokens.data(), item.token_count,
                            &result, sizeof result, &step, &error_),
             "quire_step_begin");
        if (result.outcome != QUIRE_ITEM_RUN)
            fail("both-wait", "an item that fits waits for reason %u", result.reason);
        if (abort) {
            need(q_->step_abort(cache_, step, &error_), "quire_step_abort");
            return result.hit_tokens;
        }
        need(q_->step_commit(cache_, step, nullptr, &error_), "quire_step_commit");
        need(q_->step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_), "quire_step_finish");
        return result.hit_tokens;
    }
    uint32_t probe(const std::vector<quire_token> &tokens) {
        uint32_t hits = 0;
        need(q_->prefix_probe(cache_, seq_, tokens.data(), static_cast<uint32_t>(tokens.size()),
                              &hits, &error_),
             "quire_prefix_probe");
        return hits;
    }
    void end(bool drop) {
        need(q_->seq_end(cache_, seq_, drop ? QUIRE_END_DROP_PREFIX : 0, &error_), "quire_seq_end");
    }
    quire_cache_stats stats() {
        quire_cache_stats s{};
        s.struct_size = sizeof s;
        need(q_->cache_get_stats(cache_, &s, &error_), "quire_cache_get_stats");
        return s;
    }
    void check() { need(q_->cache_check(cache_, &error_), "quire_cache_check"); }

 private:
    void need(quire_status status, const char *what) {
        if (status != QUIRE_OK)
            fail("both-status", "%s answered %d: %s", what, status, error_.message);
    }

    const quire_api *q_;
    Shape shape_;
    quire_cache *cache_ = nullptr;
    quire_seq seq_ = 0;
    quire_error error_{};
};

void same(const char *what, uint64_t tiered, uint64_t whole) {
    if (tiered != whole)
        fail("both-differ", "%s: %llu with a host tier, %llu with one pool", what,
             static_cast<unsigned long long>(tiered), static_cast<unsigned long long>(whole));
}

}  // namespace

void play_both(const quire_api *api, quire_instance *instance, uint64_t seed, uint32_t ops) {
    Rng rng(mix(seed, 0xB07F));
    Shape shape;
    shape.block_tokens = 1u << rng.below(3);
    shape.device = rng.range(2, 16);
    shape.host = rng.range(1, 24);
    shape.groups = rng.range(1, 2);
    Half tiered(api, instance, shape);
    Shape both = shape;
    both.device = shape.device + shape.host - 1;
    both.host = 0;
    Half whole(api, instance, both);
    const uint32_t room = shape.device * shape.block_tokens;
    const uint32_t documents = rng.range(1, 6);
    for (uint32_t i = 0; i < ops; ++i) {
        tiered.create();
        whole.create();
        // A document, perhaps going on as another one.
        const uint32_t doc = rng.below(documents);
        const uint32_t other = rng.percent(50) ? doc : rng.below(documents);
        const uint32_t turn = rng.below(room + 1);
        std::vector<quire_token> tokens(rng.range(1, room));
        const auto token = [&](uint64_t at) {
            return static_cast<quire_token>(mix(at < turn ? doc : other + 100, at) % 50);
        };
        for (size_t at = 0; at < tokens.size(); ++at) tokens[at] = token(at);
        same("a probe's hits", tiered.probe(tokens), whole.probe(tokens));
        if (rng.percent(15)) same("hits", tiered.step(tokens, true), whole.step(tokens, true));
        same("hits", tiered.step(tokens, false), whole.step(tokens, false));
        for (size_t at = tokens.size(); at < room && rng.percent(70); ++at)
            same("hits", tiered.step({token(at)}, false), whole.step({token(at)}, false));
        const bool drop = rng.percent(5);
        tiered.end(drop);
        whole.end(drop);
        const quire_cache_stats one = tiered.stats();
        const quire_cache_stats two = whole.stats();
        same("evictions", one.evictions, two.evictions);
        same("cached blocks", one.blocks_cached + one.host_blocks_cached, two.blocks_cached);
        if (i % 16 == 0) tiered.check();
    }
}

}  // namespace sim
