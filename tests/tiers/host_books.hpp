// SPDX-License-Identifier: Apache-2.0
//
// host_books: caches without memory, with and without a host tier that prefixes live on in, through
// the C ABI.
#pragma once

#include <numeric>
#include <random>
#include <string>

#include "tests/device/cpu_cache.hpp"

namespace quire::test {

using Tokens = std::vector<uint32_t>;

struct BooksShape {
    uint32_t blocks = 0;       // that it can use
    uint32_t host_blocks = 0;  // of them one stays free; 0: no host tier
    uint32_t block_tokens = 4;
    uint32_t flags = 0;
    std::vector<quire_group_desc> groups = {};  // none: one of full attention
};

inline quire_group_desc group_of(uint32_t kind, uint32_t window = 0) {
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    group.kind = kind;
    group.window = window;
    return group;
}

class HostBooks {
 public:
    explicit HostBooks(BooksShape shape) {
        error.struct_size = sizeof error;
        auto instance_desc = described<quire_instance_desc>();
        EXPECT_EQ(api.instance_create(&instance_desc, &instance, &error), QUIRE_OK);
        if (shape.groups.empty()) shape.groups = {group_of(QUIRE_GROUP_FULL)};
        auto desc = described<quire_cache_desc>();
        desc.groups = shape.groups.data();
        desc.group_count = static_cast<uint32_t>(shape.groups.size());
        desc.group_stride = sizeof shape.groups[0];
        desc.block_tokens = shape.block_tokens;
        desc.blocks = shape.blocks + 1;
        desc.host_blocks = shape.host_blocks;
        desc.flags = shape.flags;
        if (shape.host_blocks != 0) desc.flags |= QUIRE_CACHE_HOST_PREFIXES;
        created = api.cache_create(instance, &desc, &cache, &error);
    }
    ~HostBooks() {
        if (cache != nullptr) {
            check();
            EXPECT_EQ(api.cache_destroy(cache, &error), QUIRE_OK) << error.message;
        }
        EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK) << error.message;
    }
    HostBooks(const HostBooks &) = delete;
    HostBooks &operator=(const HostBooks &) = delete;

    void must(quire_status status) { ASSERT_GE(status, 0) << error.message; }
    void check() { EXPECT_EQ(api.cache_check(cache, &error), QUIRE_OK) << error.message; }

    quire_seq create() {
        auto desc = described<quire_seq_desc>();
        quire_seq seq = 0;
        must(api.seq_create(cache, &desc, &seq, &error));
        return seq;
    }
    void end(quire_seq seq) { must(api.seq_end(cache, seq, 0, &error)); }
    uint32_t probe(const Tokens &tokens) {
        quire_seq seq = create();
        uint32_t hits = 0;
        must(api.prefix_probe(cache, seq, tokens.data(), static_cast<uint32_t>(tokens.size()),
                              &hits, &error));
        end(seq);
        return hits;
    }

    quire_step begin() {
        auto desc = described<quire_step_desc>();
        quire_step step = 0;
        must(api.step_begin(cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0, nullptr,
                            sizeof(quire_step_result), &step, &error));
        return step;
    }
    quire_step_result add(quire_step step, quire_seq seq, const Tokens &tokens) {
        quire_step_item item{};
        item.seq = seq;
        item.token_count = static_cast<uint32_t>(tokens.size());
        quire_step_result result{};
        must(api.step_add(cache, step, &item, 1, sizeof item, tokens.data(), item.token_count,
                          &result, sizeof result, &error));
        return result;
    }
    void commit(quire_step step) { must(api.step_commit(cache, step, nullptr, &error)); }
    void finish(quire_step step, uint32_t outcome = QUIRE_STEP_OK) {
        must(api.step_finish(cache, step, nullptr, outcome, &error));
    }
    void abort(quire_step step) { must(api.step_abort(cache, step, &error)); }

    // One request from its prompt to its end; returns what it found.
    uint32_t serve(const Tokens &tokens, uint32_t outcome = QUIRE_STEP_OK) {
        quire_seq seq = create();
        quire_step step = begin();
        quire_step_result result = add(step, seq, tokens);
        EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
        commit(step);
        finish(step, outcome);
        end(seq);
        return result.hit_tokens;
    }
    std::vector<quire_block_copy> copies(quire_step step) {
        uint32_t count = 0;
        must(api.step_copies(cache, step, nullptr, 0, sizeof(quire_block_copy), &count, &error));
        std::vector<quire_block_copy> out(count);
        must(api.step_copies(cache, step, out.data(), count, sizeof(quire_block_copy), &count,
                             &error));
        return out;
    }
    quire_cache_stats stats() {
        auto stats = described<quire_cache_stats>();
        must(api.cache_get_stats(cache, &stats, &error));
        return stats;
    }
    bool says(const char *words) const {
        return std::string(error.message).find(words) != std::string::npos;
    }

    const quire_api &api = library();
    quire_error error{};
    quire_instance *instance = nullptr;
    quire_cache *cache = nullptr;
    quire_status created = 0;
};

// Different tokens for different `name`s.
inline Tokens text(uint32_t name, uint32_t count) {
    Tokens tokens(count);
    std::iota(tokens.begin(), tokens.end(), name * 100'000);
    return tokens;
}

}  // namespace quire::test
