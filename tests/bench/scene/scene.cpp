// SPDX-License-Identifier: Apache-2.0

#include "scene.hpp"

#include <algorithm>
#include <chrono>
#include <string>

#include "shuffle.hpp"
#include "tests/bench/machine/failure.hpp"

namespace quire::bench {

namespace {

// Over all rows; large enough that a step's own cost is negligible beside writing its K and V.
constexpr uint32_t kFillTokens = 4096;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Scene::Scene(const SceneDesc &desc)
    : desc_(desc),
      step_rows_tokens_(std::max(kFillTokens / desc.shape.sequences, desc.step_tokens) *
                        desc.shape.sequences),
      session_(desc.threads, desc.device, desc.device_flags),
      kv_dtype_(session_.is_host_visible() ? desc.dtype.written_as : desc.dtype.computed_as),
      q_dtype_(session_.is_host_visible() ? uint32_t{QUIRE_DTYPE_F32} : desc.dtype.computed_as) {
    try {
        make_cache();
        make_batch();
        shuffle_free_blocks(&session_, cache_, static_cast<uint32_t>(desc_.shape.blocks()));
        make_activations();
        make_sequences();
    } catch (...) {
        release();
        throw;
    }
}

Scene::~Scene() { release(); }

void Scene::release() {
    const quire_api &api = session_.api;
    if (open_ != 0) api.step_finish(cache_, open_, nullptr, QUIRE_STEP_FAILED, nullptr);
    api.queue_sync(session_.queue, nullptr);
    if (batch_ != nullptr) api.batch_destroy(batch_, nullptr);
    if (cache_ != nullptr) api.cache_destroy(cache_, nullptr);
    if (kv_.handle != nullptr) api.memory_destroy(kv_.handle, nullptr);
    if (queries_.handle != nullptr) api.memory_destroy(queries_.handle, nullptr);
}

void Scene::make_cache() {
    auto group = described<quire_group_desc>();
    group.layer_count = desc_.layers;
    group.kv_heads = desc_.shape.kv_heads;
    group.k_head_dim = group.v_head_dim = desc_.shape.dim;
    group.k_dtype = desc_.dtype.id;
    if (desc_.dtype.scale_bytes != 0) group.k_scale = QUIRE_SCALE_TOKEN_HEAD;
    auto shard = described<quire_shard_desc>();
    shard.device = session_.device;
    auto desc = described<quire_cache_desc>();
    desc.flags = QUIRE_CACHE_NO_PREFIX;
    desc.shards = &shard;
    desc.shard_count = 1;
    desc.shard_stride = sizeof shard;
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.block_tokens = kBlockTokens;
    desc.blocks = static_cast<uint32_t>(desc_.shape.blocks()) + 1;  // and the null block
    desc.max_sequences = static_cast<uint32_t>(desc_.shape.blocks()) + desc_.shape.sequences;
    session_.must(session_.api.cache_create(session_.instance, &desc, &cache_, &session_.error));
}

void Scene::make_batch() {
    auto attention = described<quire_attention_desc>();
    attention.q_heads = desc_.shape.q_heads;
    attention.q_dtype = q_dtype_;
    auto desc = described<quire_batch_desc>();
    desc.max_rows = desc_.shape.sequences;
    desc.max_blocks_per_row = static_cast<uint32_t>(desc_.shape.blocks() / desc_.shape.sequences);
    desc.max_query_tokens = step_rows_tokens_;
    desc.attention = &attention;
    desc.attention_count = 1;
    desc.attention_stride = sizeof attention;
    session_.must(session_.api.batch_create(cache_, &desc, &batch_, &session_.error));
}

Memory Scene::make_numbers(uint32_t dtype, uint64_t size_bytes, uint64_t count) {
    Memory made = session_.make_activations(size_bytes);
    std::vector<std::byte> bytes(count * written_bytes(dtype));
    fill_numbers(dtype, bytes.data(), count);
    session_.write(made, bytes);
    return made;
}

void Scene::make_activations() {
    uint64_t kv_elements = uint64_t{step_rows_tokens_} * desc_.shape.kv_heads * desc_.shape.dim;
    v_offset_ = kv_elements * written_bytes(kv_dtype_);
    kv_ = make_numbers(kv_dtype_, 2 * v_offset_, 2 * kv_elements);
    uint64_t q_elements =
        uint64_t{desc_.step_tokens} * desc_.shape.sequences * desc_.shape.q_heads * desc_.shape.dim;
    out_offset_ = q_elements * written_bytes(q_dtype_);
    queries_ = make_numbers(q_dtype_, 2 * out_offset_, q_elements);
}

void Scene::make_sequences() {
    auto desc = described<quire_seq_desc>();
    sequences_.resize(desc_.shape.sequences);
    for (quire_seq &sequence : sequences_) {
        session_.must(session_.api.seq_create(cache_, &desc, &sequence, &session_.error));
    }
}

quire_step Scene::commit(uint32_t count) {
    std::vector<quire_token> tokens(count);
    std::vector<quire_step_item> items(sequences_.size());
    std::vector<quire_step_result> results(sequences_.size());
    for (size_t i = 0; i < items.size(); ++i) {
        items[i].seq = sequences_[i];
        items[i].token_count = count;
    }
    auto desc = described<quire_step_desc>();
    desc.queues = &session_.queue;
    desc.queue_count = 1;
    quire_step step = 0;
    const quire_api &api = session_.api;
    session_.must(api.step_begin(cache_, &desc, items.data(), static_cast<uint32_t>(items.size()),
                                 sizeof items[0], tokens.data(), count, results.data(),
                                 sizeof results[0], &step, &session_.error));
    for (const quire_step_result &result : results) {
        if (result.outcome == QUIRE_ITEM_RUN && result.compute_count == count) continue;
        throw Failure("a sequence does not fit into the pool sized for it");
    }
    auto begin = Clock::now();
    session_.must(api.step_commit(cache_, step, batch_, &session_.error));
    plan_seconds_ = seconds_since(begin);
    return step;
}

void Scene::write_layers() {
    auto args = described<quire_kv_args>();
    args.dtype = kv_dtype_;
    args.k = kv_.address;
    args.v = kv_.address + v_offset_;
    for (args.layer = 0; args.layer < desc_.layers; ++args.layer) {
        session_.must(session_.api.kv_write(batch_, &args, session_.queue, &session_.error));
    }
    session_.sync();
}

void Scene::grow(uint32_t count) {
    uint32_t most = step_rows_tokens_ / desc_.shape.sequences;
    while (count > 0) {
        uint32_t now = std::min(count, most);
        open_step(now);
        close_step();
        count -= now;
    }
}

void Scene::open_step(uint32_t count) {
    open_ = commit(count);
    write_layers();
}

void Scene::close_step() {
    session_.must(session_.api.step_finish(cache_, open_, nullptr, QUIRE_STEP_OK, &session_.error));
    open_ = 0;
    session_.sync();
}

void Scene::enqueue_attention() {
    auto args = described<quire_attend_args>();
    args.q = queries_.address;
    args.out = queries_.address + out_offset_;
    auto begin = Clock::now();
    for (args.layer = 0; args.layer < desc_.layers; ++args.layer) {
        session_.must(session_.api.attend(batch_, &args, session_.queue, &session_.error));
    }
    call_seconds_ = seconds_since(begin) / desc_.layers;
}

Attended Scene::attend() {
    double seconds = session_.seconds_of([&] { enqueue_attention(); });
    return {seconds / desc_.layers, call_seconds_};
}

std::vector<int32_t> Scene::tables() {
    std::vector<int32_t> all;
    for (quire_seq sequence : sequences_) {
        std::vector<int32_t> row(desc_.shape.blocks() / desc_.shape.sequences);
        uint32_t count = 0;
        session_.must(session_.api.step_blocks(cache_, 0, sequence, 0, 0, row.data(),
                                               static_cast<uint32_t>(row.size()), &count,
                                               &session_.error));
        all.insert(all.end(), row.begin(), row.begin() + count);
    }
    return all;
}

quire_pool_info Scene::pool() {
    auto info = described<quire_pool_info>();
    session_.must(session_.api.cache_get_pool(cache_, 0, 0, &info, &session_.error));
    return info;
}

}  // namespace quire::bench
