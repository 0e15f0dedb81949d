// SPDX-License-Identifier: Apache-2.0

#include "core/cache.hpp"

namespace quire {

namespace {

constexpr uint32_t kDefaultSequences = 1024;
constexpr uint32_t kMaxSequences = 1u << 24;
constexpr uint32_t kMaxNamespaces = 65536;  // the default one included
constexpr uint32_t kMaxNamespaceKeyBytes = 256;
constexpr uint64_t kDefaultKeyBytes = uint64_t{256} << 20;

uint64_t key_limit(uint64_t key_bytes) { return key_bytes != 0 ? key_bytes : kDefaultKeyBytes; }

Status check_calibrating(const Geometry &geometry, bool has_memory) {
    if (!has_memory) {
        return fail(QUIRE_E_ARG,
                    "flags: QUIRE_CACHE_CALIBRATE needs a device; a cache without memory writes no "
                    "K and V");
    }
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const GroupGeometry &group = geometry.groups[g];
        if (group.k_scale == QUIRE_SCALE_NONE && group.v_scale == QUIRE_SCALE_NONE) continue;
        return fail(QUIRE_E_ARG,
                    "flags: QUIRE_CACHE_CALIBRATE, but groups[{}] holds codes: calibrate with f32, "
                    "f16 or bf16",
                    g);
    }
    return Status{};
}

}  // namespace

Cache::Cache(const HostAllocator &host)
    : host_(host),
      journal_(&host_, &timeline_),
      token_pages_(&host_, &journal_.buffers()),
      shards_(&host_),
      leader_(&host_, &journal_.buffers()),
      follower_(&host_),
      sequence_handles_(&host_, HandleType::sequence, &g_sequence_numbers),
      scales_(&host_),
      places_(&host_),
      sequences_(&host_),
      namespaces_(&host_),
      hashes_(&host_),
      matches_(&host_),
      words_(&host_),
      spans_(&host_),
      victims_(&host_),
      named_(&host_),
      is_named_(&host_),
      witness_(&host_) {
    for (StepRecord &record : records_) record.bind(&host_);
}

Cache::~Cache() {
    for (Sequence &s : sequences_) {
        token_pages_.release(&s.tokens);
        journal_.buffers().give_back(&s.tree);
        journal_.buffers().give_back(&s.moves);
    }
}

Status Cache::create(const quire_cache_desc &desc, const quire_group_desc *groups,
                     const ShardRange *shards, const CacheSeeds &seeds, quire_error *error) {
    QUIRE_TRY(compute_shape(desc, groups, &geometry_));
    constexpr uint32_t both = QUIRE_CACHE_LOG | QUIRE_CACHE_FOLLOWER;
    if ((desc.flags & both) == both) {
        return fail(QUIRE_E_ARG, "flags: a cache leads or follows, not both");
    }
    if ((desc.flags & QUIRE_CACHE_FOLLOWER) != 0 && (desc.flags & QUIRE_CACHE_ZERO_ON_FREE) != 0) {
        return fail(QUIRE_E_ARG,
                    "flags: a follower zeroes blocks as its leader's log says; set "
                    "QUIRE_CACHE_ZERO_ON_FREE on the leader");
    }
    if ((desc.flags & QUIRE_CACHE_FOLLOWER) != 0 && (desc.flags & QUIRE_CACHE_AUDIT) != 0) {
        return fail(
            QUIRE_E_ARG,
            "flags: a follower makes no decisions to audit; set QUIRE_CACHE_AUDIT on the leader");
    }
    if (desc.eviction != QUIRE_EVICT_LRU) {
        return fail(QUIRE_E_UNSUPPORTED, "eviction {} is not known", desc.eviction);
    }
    if (desc.victim != QUIRE_VICTIM_NEWEST && desc.victim != QUIRE_VICTIM_PRIORITY) {
        return fail(QUIRE_E_UNSUPPORTED, "victim {} is not known", desc.victim);
    }
    if (desc.shard_count == 0 && (desc.host_bytes != 0 || desc.pool_fraction != 0)) {
        return fail(QUIRE_E_ARG,
                    "host_bytes and pool_fraction need a device: give counts of blocks");
    }
    uint32_t max_sequences = desc.max_sequences != 0 ? desc.max_sequences : kDefaultSequences;
    if (max_sequences > kMaxSequences) {
        return fail(QUIRE_E_LIMIT, "max_sequences is {}: at most {}", max_sequences, kMaxSequences);
    }
    has_memory_ = desc.shard_count != 0;
    if (!places_.create(geometry_.layer_count)) return no_host_memory();
    QUIRE_TRY(place_layers(desc.layer_groups, geometry_, places_.data()));
    calibrates_ = (desc.flags & QUIRE_CACHE_CALIBRATE) != 0;
    if (calibrates_) QUIRE_TRY(check_calibrating(geometry_, has_memory_));
    QUIRE_TRY(scales_.create(desc, geometry_, places_.data()));
    // The pools first: a size that the device cannot hold is refused before its books are made.
    QUIRE_TRY(shards_.plan(desc, shards, desc.shard_count, places_.data(), &geometry_));
    QUIRE_TRY(shards_.create(scales_, calibrates_, error));
    can_move_ = shards_.can_move();
    bool follows = (desc.flags & QUIRE_CACHE_FOLLOWER) != 0;
    QUIRE_TRY(journal_.create(geometry_, {.max_sequences = max_sequences,
                                          .seed = seeds.hash,
                                          .has_tree = !follows,
                                          .scrubs = (desc.flags & QUIRE_CACHE_ZERO_ON_FREE) != 0}));
    uint64_t digest = digest_geometry(geometry_, places_.data(), max_sequences, scales_.numbers());
    if (follows) QUIRE_TRY(follower_.create(digest, geometry_, max_sequences));
    if ((desc.flags & QUIRE_CACHE_LOG) != 0) {
        QUIRE_TRY(leader_.create(seeds.identity, digest, max_sequences, geometry_));
    }
    g_sequence_numbers.start_at(seeds.handles);
    bool ok = sequence_handles_.create(max_sequences) && sequences_.create(max_sequences) &&
              namespaces_.create(kMaxNamespaces) && named_.create(max_sequences) &&
              is_named_.create(max_sequences);
    ok = ok &&
         journal_.tree().scopes().open_account(Namespaces::kDefault, key_limit(desc.key_bytes));
    if (!ok) return no_host_memory();
    named_.shrink(0);
    for (Sequence &s : sequences_) s = Sequence{};
    prefix_off_ = (desc.flags & QUIRE_CACHE_NO_PREFIX) != 0;
    audits_ = (desc.flags & QUIRE_CACHE_AUDIT) != 0;
    watermark_ = desc.watermark_blocks;
    victim_order_ = desc.victim;
    swap_cost_ = SwapCost{static_cast<double>(desc.swap_bytes_per_second),
                          static_cast<double>(desc.prefill_tokens_per_second)};
    return Status{};
}

void Cache::info(quire_cache_info *out) const {
    out->group_count = geometry_.group_count;
    out->layer_count = geometry_.layer_count;
    out->block_tokens = geometry_.block_tokens;
    out->shard_count = shards_.count();
    for (uint32_t i = 0; i < shards_.count(); ++i) {
        out->pool_bytes += shards_[i].pool_bytes();
        out->host_bytes += shards_[i].host_bytes();
    }
    uint64_t tokens = UINT64_MAX, sequences = UINT64_MAX;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        const GroupGeometry &group = geometry_.groups[g];
        uint64_t usable = group.blocks - 1;
        if (group.cross) continue;
        bool counts = group.full || !geometry_.any_full;
        if (counts && usable * geometry_.block_tokens < tokens)
            tokens = usable * geometry_.block_tokens;
        uint32_t longest = geometry_.max_sequence_tokens;
        uint64_t in_window =
            uint64_t{group.sink_tokens} + group.window + 3 * uint64_t{geometry_.block_tokens};
        if (group.windowed && longest > in_window) {
            longest = static_cast<uint32_t>(in_window);  // dead slots at the gap, a partial tail
        }
        uint64_t fit = usable / ceil_div(longest, geometry_.block_tokens);
        if (fit < sequences) sequences = fit;
    }
    out->pool_tokens = tokens;
    out->max_sequences = sequences;
}

Status Cache::pool_info(uint32_t group, uint32_t shard, quire_pool_info *out) const {
    if (group >= geometry_.group_count) {
        return fail(QUIRE_E_ARG, "group is {}: the cache has {}", group, geometry_.group_count);
    }
    QUIRE_TRY(check_shard(shard));
    const GroupGeometry &g = geometry_.groups[group];
    out->blocks = g.blocks;
    out->block_tokens = geometry_.block_tokens;
    out->host_blocks = g.host_blocks;
    quire_be_pool pool = describe_pool(g, geometry_.block_tokens);
    pool.size_bytes = 0;
    if (has_memory_) {
        pool = shards_[shard].pool(group);
        out->layer_begin = shards_[shard].first_layer(group);
        out->head_begin = shards_[shard].first_head(group);
    }
    out->address = pool.address;
    out->size_bytes = pool.size_bytes;
    out->block_stride = pool.block_stride;
    out->layer_stride = pool.layer_stride;
    out->v_offset = pool.v_offset;
    out->k_head_stride = pool.k_head_stride;
    out->k_token_stride = pool.k_token_stride;
    out->v_head_stride = pool.v_head_stride;
    out->v_token_stride = pool.v_token_stride;
    out->layer_count = pool.layer_count;
    out->head_count = pool.kv_heads;
    out->k_scale_offset = pool.k_scale_offset;
    out->v_scale_offset = pool.v_scale_offset;
    out->scale_head_stride = pool.scale_head_stride;
    out->scales = pool.scales;
    return Status{};
}

// A bookkeeping-only cache has one shard, 0, which stands for the whole cache.
Status Cache::check_shard(uint32_t shard) const {
    uint32_t count = has_memory_ ? shards_.count() : 1;
    if (shard < count) return Status{};
    return fail(QUIRE_E_ARG, "shard is {}: the cache has {}", shard, count);
}

void Cache::stats(quire_cache_stats *out) const {
    uint32_t struct_size = out->struct_size;
    *out = counts_;
    out->struct_size = struct_size;
    out->num_preemptions = counts_.preemptions_swap + counts_.preemptions_recompute;
    out->evictions = journal_.evictions();
    out->bytes_compared = journal_.tree().bytes_compared();
    out->sequences = sequence_handles_.live();
    out->nodes = journal_.tree().node_count();
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        const BlockPool &pool = journal_.pool(g);
        out->blocks_total += pool.block_count() - 1;
        out->blocks_free += pool.free_count() + pool.parked_count();
        out->blocks_cached += pool.cached_count();
        out->blocks_held += pool.held_count();
        const BlockPool *host = journal_.host_pool(g);
        if (host != nullptr) out->host_blocks_used += host->held_count();
        if (!follower_.active()) continue;
        out->blocks_held += follower_.held()[g];
        out->blocks_free -= follower_.held()[g];
        out->host_blocks_used += follower_.host_held()[g];
    }
    out->kv_cache_usage_perc =
        static_cast<double>(out->blocks_held) / static_cast<double>(out->blocks_total);
}

Status Cache::reset() {
    if (step_open()) return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        BlockPool &pool = journal_.pool(g);
        for (uint32_t b = 1; b < pool.block_count(); ++b) {
            if (pool[b].node != kNone) journal_.forget(pool[b].node);
        }
    }
    // The tokens computed so far come from the old weights, so blocks that build on them must not
    // be found.
    for (uint32_t i = 0; i < sequences_.size(); ++i) {
        SequenceState &state = sequences_[i].state;
        if (!sequence_handles_.is_live(i) || state.computed == 0) continue;
        state.flags |= Sequence::kUnpublished;
        leader_.touch(i);
    }
    return Status{};
}

Status Cache::create_namespace(const quire_namespace_desc &desc, uint64_t *out) {
    if (desc.key_size_bytes > kMaxNamespaceKeyBytes) {
        return fail(QUIRE_E_LIMIT, "key_size_bytes is {}: at most {}", desc.key_size_bytes,
                    kMaxNamespaceKeyBytes);
    }
    if (desc.key_size_bytes != 0 && desc.key == nullptr) return fail(QUIRE_E_ARG, "key is NULL");
    uint32_t index = namespaces_.take();
    if (index == kNone) {
        return fail(QUIRE_E_LIMIT, "{} namespaces are alive: destroy one first",
                    kMaxNamespaces - 1);
    }
    if (!journal_.tree().scopes().open_account(index, key_limit(desc.key_bytes))) {
        namespaces_.end(index);
        return no_host_memory();
    }
    namespaces_[index].quota_blocks = desc.quota_blocks;
    *out = namespaces_.handle(index);
    return Status{};
}

Status Cache::destroy_namespace(uint64_t handle) {
    uint32_t index = namespaces_.find(handle);
    if (index == kNone) return fail(QUIRE_E_STALE, "no such namespace");
    if (namespaces_[index].sequences != 0) {
        return fail(QUIRE_E_BUSY, "{} sequences live in the namespace: end them first",
                    namespaces_[index].sequences);
    }
    if (step_open()) return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    // No sequence lives in it, so all its content belongs to idle scopes.
    journal_.forget_account(index);
    namespaces_.end(index);
    return Status{};
}

Status Cache::namespace_info(uint64_t handle, quire_namespace_info *out) const {
    uint32_t index = handle == 0 ? Namespaces::kDefault : namespaces_.find(handle);
    if (index == kNone) return fail(QUIRE_E_STALE, "no such namespace");
    const Namespace &ns = namespaces_[index];
    out->sequences = ns.sequences;
    out->blocks_held = ns.blocks_held;
    out->quota_blocks = ns.quota_blocks;
    out->prefix_cache_queries = ns.queries;
    out->prefix_cache_hits = ns.hits;
    out->key_bytes = journal_.tree().scopes().used_bytes(index);
    out->key_bytes_limit = journal_.tree().scopes().limit_bytes(index);
    return Status{};
}

Status Cache::find_sequence(uint64_t handle, uint32_t *index) const {
    *index = sequence_handles_.find(handle);
    if (*index != HandleTable::kNone) [[likely]]
        return Status{};
    return fail(QUIRE_E_STALE, "no such sequence: it was ended, or belongs to another cache");
}

Status Cache::find_idle_sequence(uint64_t handle, uint32_t *index) const {
    QUIRE_TRY(find_sequence(handle, index));
    if (sequences_[*index].change != kNone) {
        return fail(QUIRE_E_BUSY, "the sequence is in the open step: drop its item first");
    }
    return Status{};
}

Status Cache::find_step(uint64_t handle, bool must_be_open, StepRecord **out) {
    for (StepRecord &record : records_) {
        if (record.handle != handle || handle == 0) continue;
        if (must_be_open && record.phase != StepPhase::open) {
            return fail(QUIRE_E_BUSY, "the step is committed: it can only be finished");
        }
        *out = &record;
        return Status{};
    }
    return fail(QUIRE_E_STALE, "no such step: it was finished or aborted");
}

// The open step is neither undone nor enqueued; its handle is dropped, and its record stays for a
// dump. Committed steps can still be finished.
void Cache::stop(const BrokenInvariant &why) {
    if (is_stopped_) return;
    is_stopped_ = true;
    why_stopped_ = why;
    migrating_ = false;
    journal_.pause();
    for (StepRecord &record : records_) {
        if (record.phase == StepPhase::open) {
            release_queues(&record);
            record.handle = 0;
            record.phase = StepPhase::stopped;
            open_slot_ = kNone;
        }
        if (record.phase == StepPhase::finished && !has_memory_) complete(&record);
    }
}

Status Cache::check_idle(quire_error *error) {
    QUIRE_TRY(poll(error));
    if (!step_open() && timeline_.idle()) return Status{};
    return fail(QUIRE_E_BUSY, "a step is open, unfinished, or still running");
}

Status Cache::create_batch(const quire_batch_desc &desc, Batch *batch, quire_error *error) {
    QUIRE_TRY(batch->create(desc, geometry_, &shards_, error));
    batch->next = batches_;
    batches_ = batch;
    ++batch_count_;
    return Status{};
}

DeviceMemory Cache::memory() const {
    DeviceMemory sum = shards_.memory();
    for (const Batch *batch = batches_; batch != nullptr; batch = batch->next) {
        batch->add_memory(&sum);
    }
    return sum;
}

void Cache::forget_batch(Batch *batch) {
    Batch **link = &batches_;
    while (*link != batch) link = &(*link)->next;
    *link = batch->next;
    --batch_count_;
}

}  // namespace quire
