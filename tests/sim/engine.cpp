// SPDX-License-Identifier: Apache-2.0
//
// engine: the engine's side of a cache with memory: its queues on the simulated devices, one per
// shard, and the kernels that it enqueues after each commit. In a bookkeeping-only cache these do
// nothing.
//
// Kernels: one that checks the batch's tables, then the writes of all rows, then their reads. A
// step may be "broken": some of its kernels are never enqueued, and it finishes as failed.
// A token is the same eight bytes on every shard that holds something of its group.
#include <algorithm>

#include "device.hpp"
#include "world.hpp"

namespace sim {

void World::open_devices() {
    shards_ = open_shards(config.shards);
    ++tally_->device_seeds;
    tally_->shard_seeds += shards_.size() > 1;
}

std::vector<Shard> World::open_shards(uint32_t count) {
    std::vector<Shard> shards(count);
    for (Shard &shard : shards) {
        quire_device_desc desc{};
        desc.struct_size = sizeof desc;
        desc.backend = "sim";
        if (q_->device_open(instance_, &desc, &shard.device, &error_) < 0)
            fail("device-open", "quire_device_open: %s", error_.message);
        shard.fake = Device::current();
        for (uint32_t i = 0; i < config.queues; ++i) {
            quire_queue *queue = nullptr;
            if (q_->queue_create(shard.device, nullptr, &queue, &error_) < 0)
                fail("device-open", "quire_queue_create: %s", error_.message);
            shard.queues.push_back(queue);
            shard.queue_index.push_back(shard.fake->queue_count() - 1);
        }
    }
    return shards;
}

std::vector<quire_shard_desc> World::shard_descs() const {
    std::vector<quire_shard_desc> descs = descs_.empty() ? config.shard_descs() : descs_;
    for (size_t s = 0; s < descs.size(); ++s) descs[s].device = shards_[s].device;
    return descs;
}

// Steps of two queues share a queue on some shards, and not on others.
uint32_t World::shard_queue(uint32_t shard, uint32_t queue) const {
    return shard == 1 ? queue / 2 : queue;
}

std::vector<quire_queue *> World::step_queues(uint32_t queue) const {
    std::vector<quire_queue *> queues;
    for (uint32_t s = 0; s < shards_.size(); ++s)
        queues.push_back(shards_[s].queues[shard_queue(s, queue)]);
    return queues;
}

void World::settle_devices() {
    host_blocks_ = 0;
    for (uint32_t s = 0; s < shards_.size(); ++s) {
        shards_[s].pools.assign(blocks_.size(), {});
        for (uint32_t g = 0; g < blocks_.size(); ++g) {
            quire_pool_info &pool = shards_[s].pools[g];
            pool.struct_size = sizeof pool;
            expect(q_->cache_get_pool(cache_, g, s, &pool, &error_), {QUIRE_OK},
                   "quire_cache_get_pool");
            if (pool.blocks != blocks_[g])
                fail("pool", "shard %u says %u blocks of group %u; it has %u", s, pool.blocks, g,
                     blocks_[g]);
            // The null block counts there too (README.md, question 3).
            if (pool.host_blocks != 0) host_blocks_ = std::max(host_blocks_, pool.host_blocks - 1);
        }
    }
}

void World::close_shards(const std::vector<Shard> &shards) {
    for (const Shard &shard : shards) {
        tally_->device_works += shard.fake->works();
        for (quire_queue *queue : shard.queues)
            expect(q_->queue_destroy(queue, &error_), {QUIRE_OK}, "quire_queue_destroy at the end");
        expect(q_->device_close(shard.device, &error_), {QUIRE_OK},
               "quire_device_close at the end");
    }
}

bool World::device_idle() const {
    for (const Shard &shard : shards_)
        if (!shard.fake->idle()) return false;
    return true;
}

void World::check_findings(const std::vector<Shard> &shards) {
    for (const Shard &shard : shards)
        if (shard.fake->finding) throw *shard.fake->finding;
}

void World::check_devices() {
    check_findings(shards_);
    std::erase_if(running_, [](const auto &kernel) { return kernel.use_count() == 1; });
}

bool World::advance(const Op &op) {
    if (!on_device()) return false;
    Shard &shard = shards_[op.f[0] / config.queues % shards_.size()];
    shard.fake->advance(shard.queue_index[op.f[0] % config.queues], op.f[1]);
    return true;
}

void World::begin_kernels(Step &step) {
    for (Shard &shard : shards_) {
        shard.kernels.clear();
        const size_t of_leases = lone_ ? 2 : 0;
        for (size_t i = 0; i < 1 + 2 * step.rows.size() + of_leases; ++i) {
            shard.kernels.push_back(std::make_shared<Kernel>());
            shard.kernels.back()->step = step.id;
        }
    }
}

// The engine writes a block of a lease when nothing is unfinished, and waits until it is written.
void World::write_now(const std::vector<Content> &contents, int32_t block) {
    if (!on_device() || makes(kFaultUnwritten)) return;
    for (Shard &shard : shards_) shard.kernels.assign(1, std::make_shared<Kernel>());
    kernel_ = 0;
    for (uint32_t p = 0; p < contents.size(); ++p) note_slot({}, 0, block, p, p, contents[p], true);
    kernel_ = kNoKernel;
    for (Shard &shard : shards_) {
        shard.fake->enqueue(shard.queue_index[0], shard.kernels[0]);
        shard.kernels.clear();
    }
    wait_for_devices();
}

void World::wait_for_devices() {
    for (size_t i = 0; i < shards_.size(); ++i)  // shards may wait for each other
        for (Shard &shard : shards_) shard.fake->drain();
    for (Shard &shard : shards_)
        if (shard.fake->idle()) shard.fake->see_idle();
    check_devices();
}

void World::set_depends(uint8_t depends) {
    for (Shard &shard : shards_)
        if (kernel_ != kNoKernel) shard.kernels[kernel_]->depends = depends;
}

void World::note_slot(const Sequence &seq, uint32_t group, int32_t block, uint32_t place,
                      uint32_t token, Content content, bool is_write) {
    if (kernel_ == kNoKernel) return;
    for (Shard &shard : shards_) {
        const quire_pool_info &pool = shard.pools[group];
        if (pool.layer_count == 0) continue;
        const uint64_t base = pool.address + static_cast<uint64_t>(block * pool.block_stride);
        Kernel &kernel = *shard.kernels[kernel_];
        for (uint32_t head = 0; head < pool.head_count; ++head) {
            const uint64_t k = base + static_cast<uint64_t>(head * pool.k_head_stride +
                                                            place * pool.k_token_stride);
            const uint64_t v =
                config.groups[group].kind == QUIRE_GROUP_LATENT
                    ? k + 4
                    : base + static_cast<uint64_t>(pool.v_offset + head * pool.v_head_stride +
                                                   place * pool.v_token_stride);
            (is_write ? kernel.writes : kernel.reads)
                .push_back({k, v, content, seq.id, token, group});
        }
    }
}

void World::enqueue_kernels(Step &step) {
    if (!on_device()) return;
    uint8_t broken = 0;
    for (const Step &other : committed)
        if (other.broken) broken |= other.actor.bit;
    const uint64_t chance = mix(config.seed, step.number);
    const size_t all = shards_[0].kernels.size();
    size_t count = all;
    if (config.has(Feature::fail) && !calm_ && chance % 12 == 0 && !step.rows.empty()) {
        step.broken = true;
        count = static_cast<size_t>(chance >> 32) % count;
        ++tally_->broken_steps;
    }
    if (step.broken) broken |= step.actor.bit;
    for (uint32_t s = 0; s < shards_.size(); ++s) {
        Shard &shard = shards_[s];
        // A broken step may be whole on the other shards.
        const size_t enqueued = s == 0 || chance % 24 != 0 ? count : all;
        const uint32_t queue = shard.queue_index[shard_queue(s, step.queue)];
        for (size_t i = 0; i < enqueued; ++i) {
            shard.kernels[i]->checked = (shard.kernels[i]->depends & broken) == 0;
            shard.fake->enqueue(queue, shard.kernels[i]);
            running_.push_back(shard.kernels[i]);
        }
        shard.kernels.clear();
    }
}

void World::fail_kernels(uint8_t bit) {
    for (auto &kernel : running_)
        if (kernel->depends & bit) kernel->checked = false;
    settle_kernels(bit);
}

void World::settle_kernels(uint8_t bit) {
    for (auto &kernel : running_) kernel->depends &= static_cast<uint8_t>(~bit);
}

// An entry of a batch's view: compared now where the host has it, else when the step's first kernel
// runs.
void World::entry(const char *view, uint32_t row, uint64_t array, uint64_t index, uint32_t size,
                  int64_t wanted) {
    const uint64_t address = array + index * size;
    if (on_device()) {
        if (array == 0 && without_pool_) return;
        auto &words = shards_[view_shard_].kernels[0]->words;
        words.emplace_back(address, static_cast<int32_t>(wanted));
        if (size == 8) words.emplace_back(address + 4, static_cast<int32_t>(wanted >> 32));
        return;
    }
    const int64_t got = size == 8 ? *reinterpret_cast<const int64_t *>(address)
                                  : *reinterpret_cast<const int32_t *>(address);
    if (got != wanted)
        fail("batch-view", "%s of row %u, entry %llu, is %lld; expected %lld", view, row,
             static_cast<unsigned long long>(index), static_cast<long long>(got),
             static_cast<long long>(wanted));
}

}  // namespace sim
