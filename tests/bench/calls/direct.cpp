// SPDX-License-Identifier: Apache-2.0

#include "direct.hpp"

#include <cstdio>
#include <cstdlib>

#include "client.h"

namespace quire::bench {

namespace {

void must(const Status &status) {
    if (status.ok()) return;
    std::fprintf(stderr, "direct: %s\n", status.text != nullptr ? status.text : "failed");
    std::exit(1);
}

void *allocate(void *, uint64_t size_bytes, uint64_t alignment) {
    return std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment);
}
void release(void *, void *pointer, uint64_t, uint64_t) { std::free(pointer); }

}  // namespace

Direct::Direct() : cache_(HostAllocator{allocate, release, nullptr}) {
    error_.struct_size = sizeof error_;
    quire_group_desc group{};
    group.struct_size = sizeof group;
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    quire_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.blocks = BENCH_BLOCKS;
    must(cache_.create(desc, &group, nullptr, CacheSeeds{BENCH_SEED, 0, 1}, &error_));
}

void Direct::run_empty(uint32_t steps) {
    for (uint32_t i = 0; i < steps; ++i) {
        uint64_t step = 0;
        must(cache_.begin(options_, ItemList{}, &step, &error_));
        must(cache_.commit(step, nullptr, &error_));
        must(cache_.finish(step, nullptr, QUIRE_STEP_OK, &error_));
    }
}

void Direct::run_step(const uint32_t *tokens, uint32_t count) {
    quire_step_result result;
    uint64_t step = 0;
    item_.token_count = count;
    ItemList list{reinterpret_cast<const uint8_t *>(&item_),
                  1,
                  sizeof item_,
                  tokens,
                  count,
                  reinterpret_cast<uint8_t *>(&result),
                  sizeof result};
    must(cache_.begin(options_, list, &step, &error_));
    must(cache_.commit(step, nullptr, &error_));
    must(cache_.finish(step, nullptr, QUIRE_STEP_OK, &error_));
}

void Direct::start() {
    quire_seq_desc desc{};
    desc.struct_size = sizeof desc;
    uint32_t prompt[BENCH_PROMPT];
    for (uint32_t &token : prompt) token = next_token_++;
    must(cache_.create_sequence(desc, nullptr, &item_.seq));
    run_step(prompt, BENCH_PROMPT);
}

void Direct::run_decode(uint32_t steps) {
    for (uint32_t i = 0; i < steps; ++i) {
        uint32_t token = next_token_++;
        run_step(&token, 1);
    }
}

void Direct::end() { must(cache_.end_sequence(item_.seq, QUIRE_END_DROP_PREFIX)); }

}  // namespace quire::bench
