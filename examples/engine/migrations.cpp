// SPDX-License-Identifier: Apache-2.0

#include "migrations.hpp"

#include "failure.hpp"

namespace engine {

void Migrations::between_steps(size_t steps_done) {
    const size_t moved = records_.size();
    if (moved == targets_.size() || steps_done < every_ * (moved + 1)) {
        return;
    }
    const MigrateTo &to = targets_[moved];
    CacheTarget target{.backend = to.device,
                       .device_index = to.device_index,
                       .pool_blocks = to.pool_blocks,
                       .shards = {}};
    for (uint32_t rank = 0; rank < to.tp; ++rank) {
        target.shards.push_back(heads_of(rank, to.tp, q_heads_, kv_heads_));
    }
    const std::optional<Moved> done = cache_.migrate(target);
    if (!done) {
        ++refused_;
        return;
    }
    if (done->info.bytes_moved < done->info.live_bytes) {
        throw Failure("a migration copied " + std::to_string(done->info.bytes_moved) +
                      " bytes, and " + std::to_string(done->info.live_bytes) + " are live");
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
                  (refused_ != 0 ? ": its pool had no room for the live blocks before any step. "
                                   "Give more blocks."
                                 : ": the run was over before. Give a smaller --migrate-every."));
}

}  // namespace engine
