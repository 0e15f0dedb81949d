// SPDX-License-Identifier: Apache-2.0

#include "replay_cache.hpp"

#include "dump.hpp"

namespace quire::cli {

namespace {

constexpr uint64_t kTokenBytes = 2 * 2;  // K and V: one f16 each

}  // namespace

ReplayCache::ReplayCache(const ReplayOptions &options, uint32_t max_sequences) : api_(library()) {
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    group.k_dtype = group.v_dtype = QUIRE_DTYPE_F16;
    auto desc = described<quire_cache_desc>();
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.block_tokens = options.block_tokens;
    desc.blocks = options.blocks;
    desc.max_sequences = max_sequences;
    if (options.host_blocks != 0) {
        desc.flags = QUIRE_CACHE_HOST_PREFIXES;
        desc.host_blocks = options.host_blocks + 1;  // one stays free, for exchanges
    }
    step_desc_ = described<quire_step_desc>();
    seq_desc_ = described<quire_seq_desc>();
    auto shard = described<quire_shard_desc>();
    if (options.has_store()) {
        device_.emplace(instance_.get());
        store_.emplace(instance_.get(), options);
        shard.device = device_->get();
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        // Without a host tier there is room for loads alone: for the largest that the pool takes.
        const uint64_t host_blocks = desc.host_blocks != 0 ? desc.host_blocks : desc.blocks;
        desc.host_blocks = 0;
        desc.host_bytes = host_blocks * options.block_tokens * kTokenBytes;
        step_desc_.queues = device_->queue();
        step_desc_.queue_count = 1;
    }
    // The user chose these values, so a refusal is a usage error.
    quire_cache *made = nullptr;
    if (api_.cache_create(instance_.get(), &desc, &made, &error_) < 0)
        throw Failure(error_.message, kUsage);
    cache_.reset(made);
    if (store_) store_->attach(made, options);
}

// A request that does not fit leaves its step open, so abort that first.
ReplayCache::~ReplayCache() {
    if (open_ != 0) api_.step_abort(get(), open_, nullptr);
}

quire_seq ReplayCache::begin_sequence() {
    quire_seq seq = 0;
    must(api_.seq_create(get(), &seq_desc_, &seq, &error_));
    return seq;
}

void ReplayCache::count(ReplayCounts *counts) {
    counts->stats = described<quire_cache_stats>();
    must(api_.cache_get_stats(get(), &counts->stats, &error_));
    if (store_) store_->count(counts);
}

void ReplayCache::write_dump(const ReplayOptions &options) {
    if (!options.dump.empty()) cli::write_dump(get(), options.dump);
}

void does_not_fit(uint64_t request, uint32_t blocks_short) {
    throw Failure("request " + std::to_string(request + 1) +
                      " does not fit into the pool: it needs " + std::to_string(blocks_short) +
                      " more blocks; raise --blocks",
                  kFailed);
}

}  // namespace quire::cli
