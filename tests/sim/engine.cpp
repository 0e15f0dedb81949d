// SPDX-License-Identifier: Apache-2.0
//
// engine: the engine's side of a cache with memory: its queues on the simulated device, and the
// kernels that it enqueues after each commit. In a bookkeeping-only cache these do nothing.
//
// Kernels: one that checks the batch's tables, then the writes of all rows, then their reads. A
// step may be "broken": some of its kernels are never enqueued, and it finishes as failed.
#include <algorithm>

#include "device.hpp"
#include "world.hpp"

namespace sim {

void World::open_device() {
    quire_device_desc desc{};
    desc.struct_size = sizeof desc;
    desc.backend = "sim";
    if (q_->device_open(instance_, &desc, &device_, &error_) < 0)
        fail("device-open", "quire_device_open: %s", error_.message);
    fake_ = Device::current();
    for (uint32_t i = 0; i < config.queues; ++i) {
        quire_queue *queue = nullptr;
        if (q_->queue_create(device_, nullptr, &queue, &error_) < 0)
            fail("device-open", "quire_queue_create: %s", error_.message);
        queues_.push_back(queue);
        queue_index_.push_back(fake_->queue_count() - 1);
    }
    ++tally_->device_seeds;
}

void World::settle_device() {
    pools_.assign(blocks_.size(), {});
    host_blocks_ = 0;
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        pools_[g].struct_size = sizeof pools_[g];
        expect(q_->cache_get_pool(cache_, g, 0, &pools_[g], &error_), {QUIRE_OK},
               "quire_cache_get_pool");
        host_blocks_ = std::max(host_blocks_, pools_[g].host_blocks);
    }
}

void World::close_device() {
    tally_->device_works += fake_->works();
    for (quire_queue *queue : queues_)
        expect(q_->queue_destroy(queue, &error_), {QUIRE_OK}, "quire_queue_destroy at the end");
    expect(q_->device_close(device_, &error_), {QUIRE_OK}, "quire_device_close at the end");
}

bool World::device_idle() const { return fake_ == nullptr || fake_->idle(); }

void World::check_device() {
    if (fake_->finding) throw Finding(*fake_->finding);
    std::erase_if(running_, [](const auto &kernel) { return kernel.use_count() == 1; });
}

bool World::advance(const Op &op) {
    if (fake_ == nullptr) return false;
    fake_->advance(queue_index_[op.f[0] % queue_index_.size()], op.f[1]);
    return true;
}

void World::begin_kernels(Step &step) {
    if (fake_ == nullptr) return;
    kernels_.clear();
    for (size_t i = 0; i < 1 + 2 * step.rows.size(); ++i) {
        kernels_.push_back(std::make_shared<Kernel>());
        kernels_.back()->step = step.id;
    }
}

void World::note_slot(const Sequence &seq, uint32_t group, int32_t block, uint32_t place,
                      uint32_t token, Content content, bool is_write) {
    if (kernel_ == nullptr) return;
    const quire_pool_info &pool = pools_[group];
    const uint64_t k = pool.address + static_cast<uint64_t>(block * pool.block_stride +
                                                            place * pool.k_token_stride);
    const uint64_t v =
        config.groups[group].kind == QUIRE_GROUP_LATENT
            ? k + 4
            : pool.address + static_cast<uint64_t>(block * pool.block_stride + pool.v_offset +
                                                   place * pool.v_token_stride);
    (is_write ? kernel_->writes : kernel_->reads).push_back({k, v, content, seq.id, token, group});
}

void World::enqueue_kernels(Step &step) {
    if (fake_ == nullptr) return;
    uint8_t broken = 0;
    for (const Step &other : committed)
        if (other.broken) broken |= other.actor.bit;
    const uint64_t chance = mix(config.seed, step.number);
    size_t count = kernels_.size();
    if (config.has(Feature::fail) && chance % 12 == 0 && !step.rows.empty()) {
        step.broken = true;
        count = static_cast<size_t>(chance >> 32) % count;
        ++tally_->broken_steps;
    }
    if (step.broken) broken |= step.actor.bit;
    for (size_t i = 0; i < count; ++i) {
        kernels_[i]->checked = (kernels_[i]->depends & broken) == 0;
        fake_->enqueue(queue_index_[step.queue], kernels_[i]);
        running_.push_back(kernels_[i]);
    }
    kernels_.clear();
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
    if (fake_ != nullptr) {
        kernels_[0]->words.emplace_back(address, static_cast<int32_t>(wanted));
        if (size == 8)
            kernels_[0]->words.emplace_back(address + 4, static_cast<int32_t>(wanted >> 32));
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
