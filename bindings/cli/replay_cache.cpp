// SPDX-License-Identifier: Apache-2.0

#include "replay_cache.hpp"

#include "dump.hpp"

namespace quire::cli {

ReplayCache::ReplayCache(const ReplayOptions &options, uint32_t max_sequences) : api_(library()) {
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
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
    // The user chose these values, so a refusal is a usage error.
    if (api_.cache_create(instance_.get(), &desc, &cache_, &error_) < 0)
        throw Failure(error_.message, kUsage);
    step_desc_ = described<quire_step_desc>();
    seq_desc_ = described<quire_seq_desc>();
}

// A request that does not fit leaves its step open, so abort that first.
ReplayCache::~ReplayCache() {
    if (open_ != 0) api_.step_abort(cache_, open_, nullptr);
    api_.cache_destroy(cache_, nullptr);
}

quire_seq ReplayCache::begin_sequence() {
    quire_seq seq = 0;
    must(api_.seq_create(cache_, &seq_desc_, &seq, &error_));
    return seq;
}

quire_cache_stats ReplayCache::stats() {
    auto stats = described<quire_cache_stats>();
    must(api_.cache_get_stats(cache_, &stats, &error_));
    return stats;
}

void ReplayCache::write_dump(const ReplayOptions &options) {
    if (!options.dump.empty()) cli::write_dump(cache_, options.dump);
}

void does_not_fit(uint64_t request, uint32_t blocks_short) {
    throw Failure("request " + std::to_string(request + 1) +
                      " does not fit into the pool: it needs " + std::to_string(blocks_short) +
                      " more blocks; raise --blocks",
                  kFailed);
}

}  // namespace quire::cli
