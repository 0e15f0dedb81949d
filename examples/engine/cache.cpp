// SPDX-License-Identifier: Apache-2.0

#include "cache.hpp"

#include "api_call.hpp"
#include "library.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace engine {
namespace {

// One line per backend that did not load, with the reason.
std::string absent_backends(const quire_api &api, quire_instance *instance) {
    uint32_t count = 0;
    call(api.backend_count, instance, &count);
    std::string lines;
    for (uint32_t i = 0; i < count; ++i) {
        auto info = described<quire_backend_info>();
        call(api.backend_get_info, instance, i, &info);
        if (info.status != QUIRE_OK) {
            lines += std::string("\n  ") + info.path + ": " + info.message;
        }
    }
    return lines;
}

template <typename Range>
uint32_t size_u32(const Range &range) {
    return static_cast<uint32_t>(range.size());
}

template <typename Range>
uint32_t element_bytes(const Range &) {
    return static_cast<uint32_t>(sizeof(typename Range::value_type));
}

struct KvType {
    const char *name;
    uint32_t dtype;
    bool codes;
};

constexpr KvType kKvTypes[] = {
    {"f32", QUIRE_DTYPE_F32, false},         {"f16", QUIRE_DTYPE_F16, false},
    {"bf16", QUIRE_DTYPE_BF16, false},       {"fp8", QUIRE_DTYPE_F8_E4M3FN, true},
    {"fp8-e5m2", QUIRE_DTYPE_F8_E5M2, true}, {"int8", QUIRE_DTYPE_I8, true},
    {"int4", QUIRE_DTYPE_I4, true},
};

// Divides by heads: each shard holds its part of every layer.
std::vector<quire_shard_desc> described_shards(std::span<const Shard> shards) {
    std::vector<quire_shard_desc> descs;
    for (const Shard &shard : shards) {
        descs.push_back(described<quire_shard_desc>());
        descs.back().device = shard.device.get();
        descs.back().head_begin = shard.heads.kv_begin;
        descs.back().head_count = shard.heads.kv_count;
    }
    return descs;
}

uint32_t scale_kind(const std::string &name) {
    if (name == "tensor") {
        return QUIRE_SCALE_TENSOR;
    }
    return name == "head" ? QUIRE_SCALE_HEAD : QUIRE_SCALE_TOKEN_HEAD;
}

}  // namespace

bool holds_codes(const std::string &kv_dtype) {
    return std::any_of(std::begin(kKvTypes), std::end(kKvTypes),
                       [&](const KvType &type) { return kv_dtype == type.name && type.codes; });
}

std::vector<std::string> kv_dtype_names() {
    std::vector<std::string> names;
    for (const KvType &type : kKvTypes) {
        names.push_back(type.name);
    }
    return names;
}

Cache::Cache(const quire_api &api, const CacheOptions &options)
    : api_(api), options_(options), pool_blocks_(options.pool_blocks) {
    const auto instance_desc = described<quire_instance_desc>();
    quire_instance *instance = nullptr;
    call(api_.instance_create, &instance_desc, &instance);
    instance_ = {instance, {api_.instance_destroy}};
    shards_ = open_devices(options.backend, options.device_index, options.shards);
    create_cache();
    create_batch();
}

Cache::~Cache() {
    for (const Shard &shard : shards_) {
        api_.queue_sync(shard.queue.get(), nullptr);
    }
    if (is_attached_) {
        api_.cache_detach_tier_wait(cache_.get(), UINT64_MAX, nullptr);
    }
}

void Cache::expect_device(const std::string &backend, uint32_t device_index) const {
    uint32_t count = 0;
    call(api_.backend_count, instance_.get(), &count);
    for (uint32_t i = 0; i < count; ++i) {
        auto info = described<quire_backend_info>();
        call(api_.backend_get_info, instance_.get(), i, &info);
        if (info.status < 0 || backend != info.name) {
            continue;
        }
        if (device_index < info.device_count) {
            return;
        }
        throw Failure("there is no device " + backend + ":" + std::to_string(device_index) +
                      "; the backend has " + std::to_string(info.device_count));
    }
    throw Failure("there is no backend " + backend + absent_backends(api_, instance_.get()));
}

// Each shard has its own device object, but several may use the same device.
std::vector<Shard> Cache::open_devices(const std::string &backend, uint32_t device_index,
                                       std::span<const HeadRange> ranges) const {
    auto device_desc = described<quire_device_desc>();
    device_desc.backend = backend.c_str();
    device_desc.index = device_index;
    device_desc.flags = options_.device_flags;
    const uint32_t q_dtype = q_dtype_of(options_.q_dtype);
    std::vector<Shard> shards;
    for (const HeadRange &heads : ranges) {
        Shard &shard = shards.emplace_back();
        shard.heads = heads;
        quire_device *device = nullptr;
        try {
            call(api_.device_open, instance_.get(), &device_desc, &device);
        } catch (const Failure &failure) {
            throw Failure(failure.what() + absent_backends(api_, instance_.get()));
        }
        shard.device = {device, {api_.device_close}};
        quire_queue *queue = nullptr;
        call(api_.queue_create, device, nullptr, &queue);
        shard.queue = {queue, {api_.queue_destroy}};
        shard.q = create_activation(device, q_dtype, heads.q_count);
        shard.k = create_activation(device, QUIRE_DTYPE_F32, heads.kv_count);
        shard.v = create_activation(device, QUIRE_DTYPE_F32, heads.kv_count);
        shard.attended = create_activation(device, q_dtype, heads.q_count);
    }
    return shards;
}

std::vector<quire_queue *> Cache::queues() const {
    std::vector<quire_queue *> queues;
    for (const Shard &shard : shards_) {
        queues.push_back(shard.queue.get());
    }
    return queues;
}

void Cache::create_cache() {
    const CacheOptions &options = options_;
    auto group = described<quire_group_desc>();
    group.kind = QUIRE_GROUP_FULL;
    group.layer_count = options.layer_count;
    group.kv_heads = options.kv_heads;
    group.k_head_dim = stored_head_dim();
    group.v_head_dim = stored_head_dim();
    for (const KvType &type : kKvTypes) {
        if (options.kv_dtype != type.name) continue;
        group.k_dtype = group.v_dtype = type.dtype;
        group.k_scale = group.v_scale = type.codes ? scale_kind(options.kv_scale) : 0U;
    }
    std::vector<quire_shard_desc> shards = described_shards(shards_);

    auto desc = described<quire_cache_desc>();
    desc.flags = options.flags;
    desc.calibration = options.calibration.empty() ? nullptr : options.calibration.data();
    desc.calibration_bytes = options.calibration.size();
    desc.shards = shards.data();
    desc.shard_count = size_u32(shards);
    desc.shard_stride = element_bytes(shards);
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.block_tokens = options.block_tokens;
    desc.blocks = options.pool_blocks;
    desc.max_sequences = options.max_sequences;
    desc.max_sequence_tokens = options.max_sequence_tokens;
    // Every shard holds equally many heads: its share of the bytes, and the same blocks on all.
    desc.host_bytes = options.host_bytes * shards_.front().heads.kv_count / options.kv_heads;
    // One block in a hundred stays free so that running texts can grow, as in vLLM.
    desc.watermark_blocks = options.pool_blocks / 100;
    quire_cache *cache = nullptr;
    call(api_.cache_create, instance_.get(), &desc, &cache);
    cache_ = {cache, {api_.cache_destroy}};
}

void Cache::create_batch() {
    const CacheOptions &options = options_;
    auto attention = described<quire_attention_desc>();
    attention.q_heads = shards_.front().heads.q_count;
    attention.q_dtype = q_dtype_of(options.q_dtype);
    attention.scale = 1.0F / std::sqrt(static_cast<float>(options.head_dim));  // the model's own
    attention.flags = options.max_mask_words != 0 ? uint32_t{QUIRE_ATTENTION_MASK} : 0U;

    auto desc = described<quire_batch_desc>();
    desc.max_rows = options.max_rows;
    desc.max_blocks_per_row =
        (options.max_sequence_tokens + options.block_tokens - 1) / options.block_tokens;
    desc.max_query_tokens = options.max_query_tokens;
    desc.max_context_tokens = options.max_rows * desc.max_blocks_per_row * options.block_tokens;
    desc.views = QUIRE_VIEW_BLOCK_TABLE;
    desc.max_mask_words = options.max_mask_words;
    desc.attention = &attention;
    desc.attention_count = 1;
    desc.attention_stride = sizeof attention;
    quire_batch *batch = nullptr;
    call(api_.batch_create, cache_.get(), &desc, &batch);
    batch_ = {batch, {api_.batch_destroy}};
}

// For a layer of all tokens that a step may have.
Activation Cache::create_activation(quire_device *device, uint32_t dtype, uint32_t heads) const {
    const HeadForm form{dtype, options_.head_dim, stored_head_dim()};
    const size_t head_count = size_t{options_.max_query_tokens} * heads;
    auto desc = described<quire_memory_desc>();
    desc.kind = QUIRE_MEMORY_HOST;
    desc.size_bytes = head_count * form.bytes();
    quire_memory *memory = nullptr;
    call(api_.memory_create, device, &desc, &memory);
    Owned<quire_memory> owned{memory, {api_.memory_destroy}};
    auto info = described<quire_memory_info>();
    call(api_.memory_get_info, memory, &info);
    return {std::move(owned), info.address, info.host_pointer, form, head_count};
}

uint32_t Cache::stored_head_dim() const {
    return options_.padded_head_dim != 0 ? options_.padded_head_dim : options_.head_dim;
}

quire_seq Cache::create_sequence() {
    const auto desc = described<quire_seq_desc>();
    quire_seq seq = 0;
    call(api_.seq_create, cache_.get(), &desc, &seq);
    return seq;
}

void Cache::end_sequence(quire_seq seq) { call(api_.seq_end, cache_.get(), seq, 0U); }

quire_seq Cache::fork_sequence(quire_seq seq, size_t token_count) {
    quire_seq fork = 0;
    call(api_.seq_fork, cache_.get(), seq, static_cast<uint32_t>(token_count), &fork);
    return fork;
}

void Cache::truncate_sequence(quire_seq seq, size_t token_count) {
    call(api_.seq_truncate, cache_.get(), seq, static_cast<uint32_t>(token_count));
}

void Cache::accept_path(quire_seq seq, std::span<const uint32_t> path) {
    call(api_.seq_accept_path, cache_.get(), seq, path.data(), size_u32(path));
}

std::vector<int32_t> Cache::blocks(quire_seq seq) const {
    uint32_t count = 0;
    call(api_.step_blocks, cache_.get(), quire_step{0}, seq, 0U, 0U,
         static_cast<int32_t *>(nullptr), 0U, &count);
    std::vector<int32_t> ids(count);
    call(api_.step_blocks, cache_.get(), quire_step{0}, seq, 0U, 0U, ids.data(), count, &count);
    return ids;
}

quire_seq_info Cache::sequence_info(quire_seq seq) const {
    auto info = described<quire_seq_info>();
    call(api_.seq_get_info, cache_.get(), seq, &info);
    return info;
}

quire_cache_stats Cache::stats() const {
    auto stats = described<quire_cache_stats>();
    call(api_.cache_get_stats, cache_.get(), &stats);
    return stats;
}

void Cache::check() const { call(api_.cache_check, cache_.get()); }

std::vector<uint8_t> Cache::calibration() const {
    std::vector<uint8_t> bytes;
    uint64_t size_bytes = 0;
    const auto ask = [&] {
        return call(api_.cache_save_calibration_wait, cache_.get(), bytes.data(),
                    uint64_t{bytes.size()}, &size_bytes, UINT64_MAX);
    };
    if (ask() == QUIRE_S_INCOMPLETE) {
        bytes.resize(size_bytes);
        ask();
    }
    return bytes;
}

quire_session_info Cache::save_sequence(quire_seq seq, const std::string &path,
                                        const Fingerprint &fingerprint) {
    auto desc = described<quire_export_desc>();
    std::copy(fingerprint.begin(), fingerprint.end(), desc.fingerprint);
    auto info = described<quire_session_info>();
    call(api_.seq_save_wait, cache_.get(), seq, &desc, path.c_str(), &info, UINT64_MAX);
    return info;
}

quire_seq Cache::restore_sequence(const std::string &path, const Fingerprint &fingerprint) {
    auto desc = described<quire_import_desc>();
    std::copy(fingerprint.begin(), fingerprint.end(), desc.fingerprint);
    quire_seq seq = 0;
    if (call(api_.seq_restore, cache_.get(), &desc, path.c_str(), &seq,
             static_cast<quire_session_info *>(nullptr)) == QUIRE_S_NO_BLOCKS) {
        throw Failure(path + " does not fit into the host tier: give more --host-bytes");
    }
    return seq;
}

void Cache::attach_tier(const std::string &store, std::span<const std::string> settings,
                        uint32_t write, const Fingerprint &fingerprint, uint32_t followers) {
    std::vector<std::pair<std::string, std::string>> parts;
    for (const std::string &setting : settings) {
        const size_t equals = setting.find('=');
        parts.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
    }
    std::vector<quire_store_option> options;
    for (const auto &[name, value] : parts) {
        options.push_back({name.c_str(), value.c_str()});
    }
    auto desc = described<quire_tier_desc>();
    desc.store = store.c_str();
    desc.options = options.data();
    desc.option_count = size_u32(options);
    desc.option_stride = element_bytes(options);
    quire_tier *tier = nullptr;
    call(api_.tier_open, instance_.get(), &desc, &tier);
    tier_ = {tier, {[](quire_tier *own, quire_error *error) {
                 return load_library().tier_close_wait(own, UINT64_MAX, error);
             }}};
    auto below = described<quire_cache_tier_desc>();
    std::copy(fingerprint.begin(), fingerprint.end(), below.fingerprint);
    below.write = write;
    below.followers = followers;
    call(api_.cache_attach_tier, cache_.get(), tier, &below);
    is_attached_ = true;
}

std::optional<quire_cache_tier_stats> Cache::detach_tier() {
    if (!is_attached_) {
        return std::nullopt;
    }
    for (const Shard &shard : shards_) {
        call(api_.queue_sync, shard.queue.get());
    }
    // Counts end with the detach.
    auto progress = described<quire_cache_tier_progress>();
    do {
        call(api_.cache_poll_tier, cache_.get(), &progress);
    } while (progress.blocks_queued != 0);
    auto stats = described<quire_cache_tier_stats>();
    call(api_.cache_get_tier_stats, cache_.get(), &stats);
    call(api_.cache_detach_tier_wait, cache_.get(), UINT64_MAX);
    is_attached_ = false;
    return stats;
}

void Cache::wait_for_load() {
    call(api_.cache_load_wait, cache_.get(), UINT64_MAX,
         static_cast<quire_cache_tier_progress *>(nullptr));
}

std::vector<uint8_t> Cache::report_loads(bool waits) {
    auto progress = described<quire_cache_tier_progress>();
    do {
        if (is_attached_) {
            call(api_.cache_poll_tier, cache_.get(), &progress);
        }
    } while (waits && progress.loads_running != 0);
    std::vector<uint8_t> report(4096);  // of all loads that there can be
    uint64_t size_bytes = 0;
    call(api_.cache_report_loads, cache_.get(), report.data(), uint64_t{report.size()},
         &size_bytes);
    report.resize(size_bytes);
    return report;
}

void Cache::take_report(std::span<const uint8_t> report) {
    call(api_.cache_take_report, cache_.get(), report.data(), uint64_t{report.size()});
}

std::optional<Moved> Cache::migrate(const CacheTarget &target) {
    std::vector<Shard> fresh = open_devices(target.backend, target.device_index, target.shards);
    const std::vector<quire_shard_desc> shards = described_shards(fresh);
    auto desc = described<quire_migrate_desc>();
    desc.shards = shards.data();
    desc.shard_count = size_u32(shards);
    desc.shard_stride = element_bytes(shards);
    desc.blocks = target.pool_blocks;
    Moved moved{described<quire_migrate_info>()};
    const auto begin = std::chrono::steady_clock::now();
    const quire_status status =
        call(api_.cache_migrate_wait, cache_.get(), &desc, &moved.info, UINT64_MAX);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    moved.seconds = seconds.count();
    if (status == QUIRE_S_NO_BLOCKS) {
        return std::nullopt;
    }
    batch_.reset();
    std::swap(shards_, fresh);
    leave(std::move(fresh));
    if (target.pool_blocks != 0) {
        pool_blocks_ = target.pool_blocks;
    }
    create_batch();
    return moved;
}

// A device whose backend allocated the host tier is closed only after the cache is destroyed.
void Cache::leave(std::vector<Shard> shards) {
    for (Shard &shard : shards) {
        shard.queue.reset();
        for (Activation *activation : {&shard.q, &shard.k, &shard.v, &shard.attended}) {
            activation->release();
        }
        if (api_.device_close(shard.device.get(), nullptr) >= 0) {
            shard.device.release();
        } else {
            left_.push_back(std::move(shard.device));
        }
    }
}

void Cache::attend(uint32_t layer, size_t token_count) {
    for (const Shard &shard : shards_) {
        shard.q.pack(token_count * shard.heads.q_count);
        shard.k.pack(token_count * shard.heads.kv_count);
        shard.v.pack(token_count * shard.heads.kv_count);
        auto kv = described<quire_kv_args>();
        kv.k = shard.k.address();
        kv.v = shard.v.address();
        kv.layer = layer;
        call(api_.kv_write, batch_.get(), &kv, shard.queue.get());

        auto attend = described<quire_attend_args>();
        attend.q = shard.q.address();
        attend.out = shard.attended.address();
        attend.layer = layer;
        call(api_.attend, batch_.get(), &attend, shard.queue.get());
    }
    if (after_layer) {
        after_layer(layer);
    }
    for (const Shard &shard : shards_) {
        call(api_.queue_sync, shard.queue.get());
        shard.attended.unpack(token_count * shard.heads.q_count);
    }
}

void Cache::plant_wrong_block() {
    auto device = described<quire_device_info>();
    call(api_.device_get_info, shards_.front().device.get(), &device);
    if (device.host_visible == 0) {
        throw Failure("--fault wrong-block needs a device whose memory the host can write");
    }
    auto views = described<quire_batch_views>();
    call(api_.batch_get_views, batch_.get(), 0U, 0U, &views);
    call(api_.queue_sync, shards_.front().queue.get());  // the table is written by the queue
    for (const uint64_t address : {views.block_table, views.csr_indices}) {
        if (address != 0) {
            int32_t &id = *reinterpret_cast<int32_t *>(address);
            id = id + 1 < static_cast<int32_t>(pool_blocks_) ? id + 1 : id - 1;
        }
    }
}

Step::Step(Cache &cache, uint32_t preempt, Items items, Tokens tokens)
    : cache_(cache), results_(items.size()) {
    const std::vector<quire_queue *> queues = cache.queues();
    auto desc = described<quire_step_desc>();
    desc.flags = QUIRE_STEP_MAY_PREEMPT;
    desc.preempt = preempt;
    desc.queues = queues.data();
    desc.queue_count = size_u32(queues);
    call(cache.api_.step_begin, cache.cache_.get(), &desc, items.data(), size_u32(items),
         element_bytes(items), tokens.data(), size_u32(tokens), results_.data(),
         element_bytes(results_), &step_);
}

Step::Step(Cache &cache, std::span<const uint8_t> log) : cache_(cache), phase_(Phase::committed) {
    const std::vector<quire_queue *> queues = cache.queues();
    auto desc = described<quire_step_desc>();
    desc.queues = queues.data();
    desc.queue_count = size_u32(queues);
    call(cache.api_.log_apply, cache.cache_.get(), log.data(), uint64_t{log.size()}, &desc,
         cache.batch_.get(), &step_);
}

Step::~Step() {
    if (phase_ == Phase::open) {
        cache_.api_.step_abort(cache_.cache_.get(), step_, nullptr);
    } else if (phase_ == Phase::committed) {
        cache_.api_.step_finish(cache_.cache_.get(), step_, nullptr, QUIRE_STEP_FAILED, nullptr);
    }
}

quire_step_result Step::add(const quire_step_item &item, Tokens tokens) {
    quire_step_result result{};
    call(cache_.api_.step_add, cache_.cache_.get(), step_, &item, 1U,
         static_cast<uint32_t>(sizeof item), tokens.data(), size_u32(tokens), &result,
         static_cast<uint32_t>(sizeof result));
    return result;
}

std::vector<quire_preemption> Step::preempted() const {
    std::vector<quire_preemption> list(16);
    uint32_t count = 0;
    const auto ask = [&] {
        call(cache_.api_.step_preempted, cache_.cache_.get(), step_, list.data(), size_u32(list),
             element_bytes(list), &count);
    };
    ask();
    if (count > list.size()) {
        list.resize(count);
        ask();
    }
    list.resize(count);
    return list;
}

void Step::commit() {
    call(cache_.api_.step_commit, cache_.cache_.get(), step_, cache_.batch_.get());
    phase_ = Phase::committed;
}

std::vector<uint8_t> Step::log() const {
    std::vector<uint8_t> bytes(4096);
    uint64_t size_bytes = 0;
    const auto ask = [&] {
        return call(cache_.api_.step_log, cache_.cache_.get(), step_, bytes.data(),
                    uint64_t{bytes.size()}, &size_bytes);
    };
    if (ask() == QUIRE_S_INCOMPLETE) {
        bytes.resize(size_bytes);
        ask();
    }
    bytes.resize(size_bytes);
    return bytes;
}

void Step::finish() {
    call(cache_.api_.step_finish, cache_.cache_.get(), step_, nullptr,
         static_cast<uint32_t>(QUIRE_STEP_OK));
    phase_ = Phase::over;
}

}  // namespace engine
