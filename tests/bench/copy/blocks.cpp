// SPDX-License-Identifier: Apache-2.0

#include "blocks.hpp"

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <string>

#include "tests/bench/machine/failure.hpp"

namespace quire::bench {

namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kHalfBlock = kBlockTokens / 2;

}  // namespace

Blocks::Blocks(const Geometry &geometry, uint32_t block_count, uint32_t host_blocks,
               const Place &place)
    : session_(place.threads, place.device),
      block_bytes_(geometry.block_bytes()),
      is_host_visible_(session_.is_host_visible()) {
    auto group = described<quire_group_desc>();
    group.layer_count = geometry.layers;
    group.kv_heads = geometry.kv_heads;
    group.k_head_dim = group.v_head_dim = 128;
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
    desc.blocks = block_count + 1;  // and the null block
    desc.max_sequences = block_count + 1;
    desc.host_bytes = host_blocks * block_bytes_;
    session_.must(session_.api.cache_create(session_.instance, &desc, &cache_, &session_.error));
    quire_status status = session_.api.cache_get_pool(cache_, 0, 0, &pool_, &session_.error);
    if (status == QUIRE_OK && pool_.block_stride == static_cast<int64_t>(block_bytes_)) return;
    session_.api.cache_destroy(cache_, nullptr);
    session_.must(status);
    throw Failure("a block has " + std::to_string(pool_.block_stride) + " bytes, not " +
                  std::to_string(block_bytes_));
}

Blocks::~Blocks() {
    session_.api.queue_sync(session_.queue, nullptr);
    session_.api.cache_destroy(cache_, nullptr);
}

quire_seq Blocks::make_sequence() {
    auto desc = described<quire_seq_desc>();
    quire_seq sequence = 0;
    session_.must(session_.api.seq_create(cache_, &desc, &sequence, &session_.error));
    return sequence;
}

quire_seq Blocks::fork(quire_seq sequence, uint32_t token_count) {
    quire_seq fork = 0;
    session_.must(session_.api.seq_fork(cache_, sequence, token_count, &fork, &session_.error));
    return fork;
}

void Blocks::end(quire_seq sequence) {
    session_.must(session_.api.seq_end(cache_, sequence, 0, &session_.error));
}

void Blocks::truncate(quire_seq sequence, uint32_t token_count) {
    session_.must(session_.api.seq_truncate(cache_, sequence, token_count, &session_.error));
}

double Blocks::step(const std::vector<quire_seq> &sequences, uint32_t count, quire_seq victim) {
    const quire_api &api = session_.api;
    std::vector<quire_token> tokens(count);
    std::vector<quire_step_item> items(sequences.size());
    std::vector<quire_step_result> results(sequences.size());
    for (size_t i = 0; i < items.size(); ++i) {
        items[i].seq = sequences[i];
        items[i].token_count = count;
    }
    auto desc = described<quire_step_desc>();
    desc.queues = &session_.queue;
    desc.queue_count = 1;
    quire_step step = 0;
    session_.must(api.step_begin(cache_, &desc, items.data(), static_cast<uint32_t>(items.size()),
                                 sizeof items[0], tokens.data(), count, results.data(),
                                 sizeof results[0], &step, &session_.error));
    for (const quire_step_result &result : results) {
        if (result.outcome != QUIRE_ITEM_RUN)
            throw Failure("the pool is too small for its sequences");
    }
    if (victim != 0) {
        uint32_t freed = 0;
        session_.must(
            api.step_preempt(cache_, step, victim, QUIRE_PREEMPT_SWAP, &freed, &session_.error));
    }
    auto begin = std::chrono::steady_clock::now();
    session_.must(api.step_commit(cache_, step, nullptr, &session_.error));
    session_.sync();
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    session_.must(api.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &session_.error));
    session_.sync();
    return seconds.count();
}

std::vector<int32_t> Blocks::table(quire_seq sequence) {
    std::vector<int32_t> ids(pool_.blocks);
    uint32_t count = 0;
    session_.must(session_.api.step_blocks(cache_, 0, sequence, 0, 0, ids.data(), pool_.blocks,
                                           &count, &session_.error));
    ids.resize(count);
    return ids;
}

std::byte *Blocks::bytes_of(int32_t block) const {
    return reinterpret_cast<std::byte *>(pool_.address) + block * pool_.block_stride;
}

void Blocks::stamp(int32_t block, uint64_t value) {
    if (!is_host_visible_) return;
    for (uint64_t at = 0; at < block_bytes_; at += sizeof value) {
        std::memcpy(bytes_of(block) + at, &value, sizeof value);
    }
}

void Blocks::expect(int32_t block, uint64_t value) {
    if (!is_host_visible_) return;
    for (uint64_t at : {uint64_t{0}, block_bytes_ - sizeof value}) {
        uint64_t found = 0;
        std::memcpy(&found, bytes_of(block) + at, sizeof found);
        if (found != value) throw Failure("a block was not copied");
    }
}

void Blocks::forget_pages(int32_t block) {
    if (madvise(bytes_of(block), block_bytes_, MADV_DONTNEED) == 0) return;
    throw Failure("the pool's pages cannot be released, so no page is fresh");
}

CopyOnWrite::CopyOnWrite(const Geometry &geometry, uint32_t count, const Place &place)
    : blocks_(geometry, 2 * count, 0, place) {
    for (uint32_t i = 0; i < count; ++i) sequences_.push_back(blocks_.make_sequence());
    blocks_.step(sequences_, kHalfBlock);
    for (uint32_t i = 0; i < count; ++i) blocks_.stamp(blocks_.table(sequences_[i])[0], i + 1);
    seconds(Destination::warm);  // from now on every block has been written
}

double CopyOnWrite::seconds(Destination destination) {
    std::vector<quire_seq> forks;
    for (quire_seq sequence : sequences_) forks.push_back(blocks_.fork(sequence, kHalfBlock));
    // Only the sequences' own blocks are in use; all others are free and will be taken.
    if (destination == Destination::fresh) {
        for (int32_t block : free_) blocks_.forget_pages(block);
    }
    double seconds = blocks_.step(forks, 1);
    free_.clear();
    for (size_t i = 0; i < forks.size(); ++i) {
        free_.push_back(blocks_.table(forks[i])[0]);
        blocks_.expect(free_.back(), i + 1);
        blocks_.end(forks[i]);
    }
    return seconds;
}

Swap::Swap(const Geometry &geometry, uint32_t count, const Place &place)
    : blocks_(geometry, count, count, place), count_(count), sequence_(blocks_.make_sequence()) {
    blocks_.step({sequence_}, count * kBlockTokens - 1);
    std::vector<int32_t> table = blocks_.table(sequence_);
    for (uint32_t i = 0; i < count; ++i) blocks_.stamp(table[i], i + 1);
}

double Swap::out_seconds() { return blocks_.step({}, 0, sequence_); }

double Swap::in_seconds(Destination destination) {
    // Block 0 is the null block; all others are free while the sequence is away.
    for (uint32_t block = 1; destination == Destination::fresh && block <= count_; ++block) {
        blocks_.forget_pages(static_cast<int32_t>(block));
    }
    double seconds = blocks_.step({sequence_}, 1);
    std::vector<int32_t> table = blocks_.table(sequence_);
    for (uint32_t i = 0; i < count_; ++i) blocks_.expect(table[i], i + 1);
    blocks_.truncate(sequence_, count_ * kBlockTokens - 1);
    return seconds;
}

}  // namespace quire::bench
