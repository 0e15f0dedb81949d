// SPDX-License-Identifier: Apache-2.0

#include "migrations.hpp"

#include "failure.hpp"

namespace engine {

Migrations::Migrations(std::span<const MigrateTo> targets, size_t every, Cache &cache,
                       uint32_t q_heads, uint32_t kv_heads)
    : targets_(targets), every_(every), cache_(cache), q_heads_(q_heads), kv_heads_(kv_heads) {
    for (const MigrateTo &to : targets_) {
        target_of(to);
        cache_.expect_device(to.device, to.device_index);
    }
}

CacheTarget Migrations::target_of(const MigrateTo &to) const {
    CacheTarget target{.backend = to.device,
                       .device_index = to.device_index,
                       .pool_blocks = to.pool_blocks,
                       .shards = {}};
    for (uint32_t rank = 0; rank < to.tp; ++rank) {
        target.shards.push_back(heads_of(rank, to.tp, q_heads_, kv_heads_));
    }
    return target;
}

void Migrations::between_steps(size_t steps_done) {
    const size_t moved = records_.size();
    if (moved == targets_.size() || steps_done < every_ * (moved + 1)) {
        return;
    }
    const MigrateTo &to = targets_[moved];
    const std::optional<Moved> done = cache_.migrate(target_of(to));
    if (!done) {
        ++refused_;
        return;
    }
    if (done->info.bytes_moved < done->info.live_bytes) {
        throw Failure("a migration copied " + std::to_string(done->info.bytes_moved) +
                      " bytes, but " + std::to_string(done->info.live_bytes) + " are live");
    }
    records_.push_back({to.text, steps_done, refused_, *done});
    refused_ = 0;
}

void Migrations::finish() const {
    if (records_.size() == targets_.size()) {
        return;
    }
    const MigrateTo &next = targets_[records_.size()];
    throw Failure("--migrate-to " + next.text +
                  (refused_ != 0
                       ? ": its pool never had room for the live blocks. Give more blocks."
                       : ": the run ended before this move. Give a smaller --migrate-every."));
}

}  // namespace engine
