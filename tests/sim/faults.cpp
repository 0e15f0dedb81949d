// SPDX-License-Identifier: Apache-2.0
//
// faults: devices that refuse, and what a call may then answer.
//
// A commit whose device refuses its part undoes the step as a failed finish does, and its handle is
// stale. So the step is executed as it was planned, from tables and copies that were read before,
// and fails at once.
#include <utility>

#include "cache_tier.hpp"
#include "device.hpp"
#include "world.hpp"

namespace sim {
namespace {

// What a device answers that refuses.
constexpr quire_status kAnswers[] = {QUIRE_E_DEVICE_LOST, QUIRE_E_DEVICE_MEMORY, QUIRE_E_OS};

}  // namespace

Fault World::make_fault(uint32_t kind, uint32_t after, uint32_t count, uint32_t every,
                        uint32_t status) {
    Fault fault;
    fault.kind = kind;
    fault.after = after;
    fault.count = kind == kFaultHang ? 0 : count;
    fault.every = every;
    fault.status = kind == kFaultMemory ? QUIRE_E_DEVICE_MEMORY
                   : kind == kFaultGone ? QUIRE_E_DEVICE_LOST
                                        : kAnswers[status % 3];
    return fault;
}

bool World::plant_fault(const Op &op) {
    if (op.f[1] == kFaultLeak) {
        leak_ = op.f[3];
        leak_late_ = op.f[2] != 0;
    }
    if (op.f[1] == kFaultWeights && config.has(Feature::cache_tier)) {
        if (!tier_) tier_ = std::make_unique<CacheTier>();
        return tier_->same_weights = true;
    }
    if (op.f[1] >= kFaultSource) return (mistakes_[op.f[1]] = op.f[3]) != 0;
    if (!on_device() || op.f[1] == kFaultLeak) return leak_ != 0;
    Fault fault = make_fault(op.f[1], op.f[2], op.f[3], op.f[4], op.f[5]);
    Shard &shard = shards_[op.f[0] % shards_.size()];
    fault.queue = shard.queue_index[op.f[4] % config.queues];
    shard.fake->plant(fault);
    tally_->reads_refused += fault.kind == kFaultRead;
    tally_->devices_lost += fault.kind == kFaultGone;
    tally_->queues_hung += fault.kind == kFaultHang;
    return true;
}

// True if one of this kind is to be made now.
bool World::makes(uint32_t kind) {
    if (mistakes_[kind] == 0) return false;
    --mistakes_[kind];
    return true;
}

bool World::fault_armed() const {
    for (const Shard &shard : shards_)
        if (shard.fake->fault_armed()) return true;
    return false;
}

uint64_t World::strikes() const {
    uint64_t sum = 0;
    for (const Shard &shard : shards_) sum += shard.fake->strikes();
    return sum;
}

// A device refused, and the call answered what the device said, not QUIRE_E_DEVICE_LOST: then
// nothing has changed (README.md, question 19).
bool World::passed_on(quire_status status, uint64_t struck) {
    const bool own = status == QUIRE_E_DEVICE_MEMORY || status == QUIRE_E_OS;
    if (!own || strikes() == struck) return false;
    ++tally_->refusals_passed_on;
    return true;
}

// A failed step whose fence its device refused may run until the device is idle, and a step that
// must come after it cannot be committed meanwhile.
bool World::may_lack_fence() const {
    for (const Shard &shard : shards_)
        if (shard.fake->order_refused() && !shard.fake->idle()) return true;
    return false;
}

void World::end_faults() {
    tally_->faults_struck += strikes();
    for (Shard &shard : shards_) shard.fake->plant({});
}

std::unique_ptr<World::Plan> World::plan() {
    auto plan = std::make_unique<Plan>();
    for (const auto &seq : sequences)
        for (uint32_t g = 0; g < blocks_.size(); ++g)
            plan->tables[seq->id].push_back(table(*seq, g));
    plan->copies = copies_of(*open);
    return plan;
}

std::vector<quire_block_copy> World::copies_of(const Step &step) {
    std::vector<quire_block_copy> copies(16);
    uint32_t count = 0;
    quire_status status =
        q_->step_copies(cache_, step.handle, copies.data(), static_cast<uint32_t>(copies.size()),
                        sizeof copies[0], &count, &error_);
    copies.resize(count);
    if (status == QUIRE_S_INCOMPLETE)
        status = q_->step_copies(cache_, step.handle, copies.data(), count, sizeof copies[0],
                                 &count, &error_);
    expect(status, {QUIRE_OK}, "quire_step_copies");
    return copies;
}

// Whether the commit of the open step answered so because a device refused its part.
bool World::commit_refused(quire_status status, uint64_t struck, std::unique_ptr<Plan> &plan,
                           Batch *batch, const Snapshot &before) {
    const bool may_be_lost = strikes() != struck || queue_gone_ || may_lack_fence();
    if (status == QUIRE_E_DEVICE_LOST && may_be_lost) {
        undo_step(std::move(plan), batch);
        return true;
    }
    if (!passed_on(status, struck)) return false;
    unchanged(before, "error-changes");
    return true;
}

// "The step was undone as by finish with QUIRE_STEP_FAILED, and its handle is stale."
void World::undo_step(std::unique_ptr<Plan> plan, Batch *batch) {
    Step step = std::move(*open);
    open.reset();
    ++tally_->steps_undone;
    if (batch != nullptr) batch->last_number = commits_ + 1;  // a part of it may run
    step.number = commits_ + 1;
    while (bits_used_ >> step.bit & 1) ++step.bit;
    bits_used_ |= static_cast<uint8_t>(1u << step.bit);
    for (const Undo &undo : step.undo)
        if (Sequence *seq = find(undo.before.id)) seq->in_step = seq->has_item = false;
    const Sums before = sums_;
    const std::vector<Namespace> spaces = namespaces;
    planned_ = std::move(plan);
    begin_kernels(step);
    run_step(step);
    for (Shard &shard : shards_) shard.kernels.clear();
    // The dump does not show any more what the commit published. No later step has had the blocks
    // that this one was to zero, so only their content counts (README.md, question 20).
    Failure failure = foresee(step.actor.bit, false);
    failure.owed.clear();
    planned_.reset();
    changed_since_begin_ = true;
    make_stale(step.handle);
    settle(step.actor.bit, true);
    take_unpublished(step);
    take_failure(failure);
    adopt_undone(before, spaces);
    uint32_t count = 0;
    expect(
        q_->step_copies(cache_, step.handle, nullptr, 0, sizeof(quire_block_copy), &count, &error_),
        {QUIRE_E_STALE}, "quire_step_copies of a step that was undone");
}

// Nothing says whether a step that a commit undid counts in the statistics (README.md, question
// 18).
void World::adopt_undone(const Sums &before, const std::vector<Namespace> &spaces) {
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    const auto either = [](uint64_t &now, uint64_t then, uint64_t got) {
        if (got == then) now = then;
    };
    if (s.prefix_cache_hits == before.hits) namespaces = spaces;
    either(sums_.hits, before.hits, s.prefix_cache_hits);
    either(sums_.copies_on_write, before.copies_on_write, s.copies_on_write);
    either(sums_.swapped_out, before.swapped_out, s.blocks_swapped_out);
    either(sums_.swapped_in, before.swapped_in, s.blocks_swapped_in);
    either(sums_.demoted, before.demoted, s.blocks_demoted);
    either(sums_.promoted, before.promoted, s.blocks_promoted);
    either(sums_.swaps, before.swaps, s.preemptions_swap);
    either(sums_.recomputes, before.recomputes, s.preemptions_recompute);
    if (s.steps == commits_ + 1) ++commits_;
    check_stats();
}

}  // namespace sim
