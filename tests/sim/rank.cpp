// SPDX-License-Identifier: Apache-2.0
//
// rank: see rank.hpp. Its values and their names are in rank_value.cpp.
#include "rank.hpp"

#include <algorithm>

namespace sim {

Rank::Rank(const quire_api *api, quire_instance *instance, const RanksShape &shape, uint32_t number)
    : number(number), q_(api), instance_(instance), shape_(shape) {
    error.struct_size = sizeof error;
    shards_ = open_shards();
    std::vector<quire_group_desc> groups(shape.groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
        groups[g].struct_size = sizeof groups[g];
        groups[g].kind = shape.groups[g].window != 0 ? QUIRE_GROUP_WINDOW : QUIRE_GROUP_FULL;
        groups[g].window = shape.groups[g].window;
        groups[g].layer_count = shape.groups[g].layers;
        groups[g].kv_heads = shape.heads;
        groups[g].k_head_dim = groups[g].v_head_dim = 1;
        groups[g].k_dtype = groups[g].v_dtype = QUIRE_DTYPE_F32;
    }
    const std::vector<quire_shard_desc> shards = shard_descs(shards_);
    quire_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.groups = groups.data();
    desc.group_count = static_cast<uint32_t>(groups.size());
    desc.group_stride = sizeof groups[0];
    desc.shards = shards.data();
    desc.shard_count = static_cast<uint32_t>(shards.size());
    desc.shard_stride = sizeof shards[0];
    desc.flags = number == 0 ? QUIRE_CACHE_LOG | QUIRE_CACHE_FIXED_HASH : QUIRE_CACHE_FOLLOWER;
    if (number == 0 && shape.host_prefixes) desc.flags |= QUIRE_CACHE_HOST_PREFIXES;
    if (number == 0 && shape.partial) desc.flags |= QUIRE_CACHE_PARTIAL_HITS;
    desc.blocks = shape.blocks;
    desc.block_tokens = shape.block_tokens;
    desc.max_sequences = 16;
    uint64_t slot_bytes = 0;  // of a token in all layers and heads of a shard, all alike
    const RankCut &cut = shape.ranks[number][0];
    slot_bytes += 8ull * (cut.layer_end - cut.layer_begin) * (cut.head_end - cut.head_begin);
    desc.host_bytes = slot_bytes * shape.block_tokens * shape.host_blocks;
    need(q_->cache_create(instance, &desc, &cache, &error), "quire_cache_create");
    find_pools();
}

// What a finding leaves is left alone.
Rank::~Rank() = default;

void Rank::need(quire_status status, const char *call, quire_status also) const {
    if (status == QUIRE_OK || status == also) return;
    fail("rank-status", "%s of rank %u answers %d: %s", call, number, status,
         status < 0 ? error.message : "");
}

std::vector<Rank::Shard> Rank::open_shards() {
    std::vector<Shard> shards(shape_.ranks[number].size());
    for (Shard &shard : shards) {
        quire_device_desc desc{};
        desc.struct_size = sizeof desc;
        desc.backend = "sim";
        need(q_->device_open(instance_, &desc, &shard.device, &error), "quire_device_open");
        shard.fake = Device::current();
        need(q_->queue_create(shard.device, nullptr, &shard.queue, &error), "quire_queue_create");
        shard.queue_index = shard.fake->queue_count() - 1;
    }
    return shards;
}

std::vector<quire_shard_desc> Rank::shard_descs(const std::vector<Shard> &shards) const {
    std::vector<quire_shard_desc> descs(shards.size());
    for (size_t s = 0; s < descs.size(); ++s) {
        const RankCut &cut = shape_.ranks[number][s];
        descs[s].struct_size = sizeof descs[s];
        descs[s].device = shards[s].device;
        descs[s].layer_begin = cut.layer_begin;
        descs[s].layer_count = cut.layer_end - cut.layer_begin;
        descs[s].head_begin = cut.head_begin;
        descs[s].head_count = cut.head_end - cut.head_begin;
    }
    return descs;
}

void Rank::find_pools() {
    for (uint32_t s = 0; s < shards_.size(); ++s) {
        shards_[s].pools.assign(shape_.groups.size(), {});
        for (uint32_t g = 0; g < shape_.groups.size(); ++g) {
            quire_pool_info &pool = shards_[s].pools[g];
            pool.struct_size = sizeof pool;
            need(q_->cache_get_pool(cache, g, s, &pool, &error), "quire_cache_get_pool");
        }
    }
}

RankPart Rank::part(uint32_t group) const {
    RankPart all;
    for (const Shard &shard : shards_) {
        const quire_pool_info &pool = shard.pools[group];
        if (pool.layer_count == 0) continue;
        const RankPart one{pool.layer_begin, pool.layer_begin + pool.layer_count, pool.head_begin,
                           pool.head_begin + pool.head_count};
        if (all.layer_end == 0) all = one;
        all.layer_begin = std::min(all.layer_begin, one.layer_begin);
        all.layer_end = std::max(all.layer_end, one.layer_end);
        all.head_begin = std::min(all.head_begin, one.head_begin);
        all.head_end = std::max(all.head_end, one.head_end);
    }
    return all;
}

void Rank::open_store() {
    quire_tier_desc desc{};
    desc.struct_size = sizeof desc;
    desc.store = "sim";
    need(q_->tier_open(instance_, &desc, &tier, &error), "quire_tier_open");
    store = Store::current();
    store->on_put = [this](const quire_store_label &to, const std::vector<uint8_t> &bytes) {
        check_value(to, bytes);
    };
}

void Rank::attach(const quire_cache_tier_desc &desc) {
    need(q_->cache_attach_tier(cache, tier, &desc, &error), "quire_cache_attach_tier");
    attached = true;
    leaving = false;
}

bool Rank::detach(uint64_t timeout_ns) {
    const quire_status status = q_->cache_detach_tier_wait(cache, timeout_ns, &error);
    need(status, "quire_cache_detach_tier_wait", QUIRE_S_TIMEOUT);
    leaving = status == QUIRE_S_TIMEOUT;
    attached = leaving;
    return status == QUIRE_OK;
}

std::vector<int32_t> Rank::table(quire_seq seq, uint32_t group) {
    std::vector<int32_t> ids(256);
    uint32_t count = 0;
    need(q_->step_blocks(cache, 0, seq, group, 0, ids.data(), 256, &count, &error),
         "quire_step_blocks");
    ids.resize(count);
    return ids;
}

// The slots that a row writes, or those that it sees.
void Rank::add_slots(Kernel *kernel, const Shard &shard, const RankRow &row, uint32_t group,
                     const std::vector<int32_t> &ids, bool is_write) {
    const quire_pool_info &pool = shard.pools[group];
    const uint32_t window = shape_.groups[group].window;
    uint32_t begin = is_write ? row.first : 0;
    if (!is_write && window != 0 && row.first + 1 > window) begin = row.first + 1 - window;
    for (uint32_t i = begin; i < row.chain.size(); ++i) {
        const uint32_t index = i / shape_.block_tokens;
        const int32_t block = index < ids.size() ? ids[index] : 0;
        if (block == 0)
            fail("rank-table", "rank %u has no block for token %u of a row of [%u, %zu)", number, i,
                 row.first, row.chain.size());
        for (uint32_t layer = 0; layer < pool.layer_count; ++layer) {
            for (uint32_t head = 0; head < pool.head_count; ++head) {
                const auto place = static_cast<int64_t>(i % shape_.block_tokens);
                const uint64_t base =
                    pool.address +
                    static_cast<uint64_t>(block * pool.block_stride + layer * pool.layer_stride);
                KernelSlot slot;
                slot.low = base + static_cast<uint64_t>(head * pool.k_head_stride +
                                                        place * pool.k_token_stride);
                slot.high = base + static_cast<uint64_t>(pool.v_offset + head * pool.v_head_stride +
                                                         place * pool.v_token_stride);
                slot.content = rank_content(row.tenant, row.chain[i], group,
                                            pool.layer_begin + layer, pool.head_begin + head);
                slot.seq = static_cast<uint32_t>(row.seq);
                slot.place = i;
                slot.group = group;
                (is_write ? kernel->writes : kernel->reads).push_back(slot);
            }
        }
    }
}

void Rank::compute(uint32_t id, const std::vector<RankRow> &rows) {
    for (Shard &shard : shards_) {
        auto kernel = std::make_shared<Kernel>();
        kernel->step = id;
        for (const RankRow &row : rows) {
            for (uint32_t g = 0; g < shape_.groups.size(); ++g) {
                if (shard.pools[g].layer_count == 0) continue;
                const std::vector<int32_t> ids = table(row.seq, g);
                add_slots(kernel.get(), shard, row, g, ids, true);
                add_slots(kernel.get(), shard, row, g, ids, false);
            }
        }
        slots_compared += kernel->reads.size();
        shard.fake->enqueue(shard.queue_index, kernel);
    }
}

std::vector<quire_queue *> Rank::queues() const {
    std::vector<quire_queue *> queues;
    for (const Shard &shard : shards_) queues.push_back(shard.queue);
    return queues;
}

quire_status Rank::apply(const RankLog &log, quire_step *step) {
    const std::vector<quire_queue *> on = queues();
    quire_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.queues = on.data();
    desc.queue_count = static_cast<uint32_t>(on.size());
    return q_->log_apply(cache, log.bytes.data(), log.bytes.size(), &desc, nullptr, step, &error);
}

void Rank::migrate(bool copies_host) {
    std::vector<Shard> fresh = open_shards();
    const std::vector<quire_shard_desc> descs = shard_descs(fresh);
    quire_migrate_desc desc{};
    desc.struct_size = sizeof desc;
    desc.flags = copies_host ? QUIRE_MIGRATE_COPY_HOST_TIER : 0;
    desc.shards = descs.data();
    desc.shard_count = static_cast<uint32_t>(descs.size());
    desc.shard_stride = sizeof descs[0];
    quire_migrate_info info{};
    info.struct_size = sizeof info;
    need(q_->cache_migrate_wait(cache, &desc, &info, UINT64_MAX, &error),
         "quire_cache_migrate_wait");
    fresh.swap(shards_);
    find_pools();
    for (const Shard &shard : fresh) shard.fake->drain();
    close_shards(fresh);
}

RankState Rank::look(quire_seq seq) {
    RankState state;
    state.seq = seq;
    quire_seq_info info{};
    info.struct_size = sizeof info;
    need(q_->seq_get_info(cache, seq, &info, &error), "quire_seq_get_info");
    // QUIRE_SEQ_UNPUBLISHED may come one log late.
    state.words = {info.known_tokens, info.computed_tokens,
                   info.flags & ~static_cast<uint32_t>(QUIRE_SEQ_UNPUBLISHED)};
    for (uint32_t g = 0; g < shape_.groups.size(); ++g) {
        const std::vector<int32_t> ids = table(seq, g);
        state.words.push_back(ids.size());
        for (const int32_t id : ids) state.words.push_back(static_cast<uint64_t>(id));
    }
    return state;
}

uint32_t Rank::copies_on_write(quire_step step) {
    std::vector<quire_block_copy> copies(1024);
    uint32_t count = 0;
    need(q_->step_copies(cache, step, copies.data(), 1024, sizeof copies[0], &count, &error),
         "quire_step_copies");
    copies.resize(count);
    return static_cast<uint32_t>(std::count_if(
        copies.begin(), copies.end(),
        [](const quire_block_copy &copy) { return copy.kind == QUIRE_COPY_ON_WRITE; }));
}

void Rank::work(uint32_t count, uint32_t pick) {
    Rng rng(pick);
    for (Shard &shard : shards_) {
        if (count == 0) {
            shard.fake->drain();
            continue;
        }
        for (uint32_t q = 0; q < shard.fake->queue_count(); ++q)
            shard.fake->advance(q, 1 + rng.below(count));
    }
}

void Rank::rethrow() {
    if (late_) throw *late_;
    for (const Shard &shard : shards_)
        if (shard.fake->finding) throw *shard.fake->finding;
}

void Rank::check() { need(q_->cache_check(cache, &error), "quire_cache_check"); }

quire_cache_tier_progress Rank::poll() {
    quire_cache_tier_progress progress{};
    progress.struct_size = sizeof progress;
    need(q_->cache_poll_tier(cache, &progress, &error), "quire_cache_poll_tier");
    return progress;
}

quire_cache_tier_stats Rank::stats() {
    quire_cache_tier_stats stats{};
    stats.struct_size = sizeof stats;
    need(q_->cache_get_tier_stats(cache, &stats, &error), "quire_cache_get_tier_stats");
    return stats;
}

void Rank::close_shards(const std::vector<Shard> &shards) {
    for (const Shard &shard : shards) {
        if (shard.fake->finding) throw *shard.fake->finding;
        need(q_->queue_destroy(shard.queue, &error), "quire_queue_destroy");
        need(q_->device_close(shard.device, &error), "quire_device_close");
    }
}

void Rank::close() {
    need(q_->cache_destroy(cache, &error), "quire_cache_destroy");
    need(q_->tier_close_wait(tier, UINT64_MAX, &error), "quire_tier_close_wait");
    close_shards(shards_);
}

}  // namespace sim
