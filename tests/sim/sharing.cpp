// SPDX-License-Identifier: Apache-2.0
//
// sharing: who may write into a block that several sequences have (cache.h, quire_seq_fork).
#include <algorithm>

#include "world.hpp"

namespace sim {

// True if the sequence was swapped when its item was added to the step.
bool World::came_back(const Step &step, uint32_t id) const {
    return std::any_of(step.undo.begin(), step.undo.end(), [id](const Undo &undo) {
        return undo.before.id == id && undo.before.swapped;
    });
}

// Up to where the slots of `other` are its own when `step` runs: written, and to be read by it.
uint32_t World::reads_to(const Step &step, const Sequence &other) const {
    for (const Row &row : step.rows)
        if (row.seq == other.id) {
            // What it found, others may write in this step; so too what it has instead of a swap.
            return came_back(step, other.id) ? 0 : row.first - row.hit;
        }
    uint32_t end = other.computed;
    if (other.ahead_written) end += other.ahead;
    return other.may_move ? std::max(end, other.move_end) : end;
}

// "The one that may write a shared block in place goes on after the slots that the other reads, and
// any other writer gets a copy of its own": of two items of one step, one at most writes in place.
void World::check_shared(const Step &step, const Row &row, uint32_t group, uint32_t last) {
    const std::vector<int32_t> own = table_;
    const Namespace *space = find_namespace(find(row.seq)->ns);
    const uint32_t begin = row.first / config.block_size(group);
    for (const auto &other : sequences) {
        if (other->id == row.seq || other->ns != space->id || other->swapped) continue;
        uint32_t other_first = ~0u;  // that it writes in this step
        uint32_t other_last = 0;
        for (const Row &one : step.rows)
            if (one.seq == other->id) {
                other_first = one.first;
                other_last = one.first + one.count + one.ahead;
            }
        const uint32_t end = reads_to(step, *other);
        const std::vector<int32_t> &ids = table(*other, group);
        for (uint32_t at = begin; at * config.block_size(group) < last; ++at) {
            if (at >= own.size() || at >= ids.size() || own[at] == 0 || own[at] != ids[at])
                continue;
            // A state is overwritten as a whole.
            const uint32_t from = config.recurrent(group) ? 0 : row.first;
            const uint32_t first = std::max(from, at * config.block_size(group));
            const bool both = other_first < (at + 1) * config.block_size(group) &&
                              other_last > at * config.block_size(group);
            ++tally_->shared_in_place;
            if ((first < end || both) && !tolerate("shared-write"))
                fail("shared-write",
                     "step %u sequence %u writes place %u in block %d of group %u; sequence %u %s",
                     step.id, row.seq, first, own[at], group, other->id,
                     both ? "writes there too" : "reads it");
        }
    }
    table_ = own;
}

// A copy goes to no slot that a sequence outside the step reads.
void World::check_copied(const Step &step, const quire_block_copy &copy) {
    const uint32_t place = copy.kind == QUIRE_COPY_TOKEN ? copy.dst_place : 0;
    for (const auto &other : sequences) {
        if (other->swapped) continue;
        bool in_step = false;
        for (const Undo &undo : step.undo) in_step |= undo.before.id == other->id;
        if (in_step) continue;
        const bool cross = config.groups[copy.group].kind == QUIRE_GROUP_CROSS;
        const uint32_t end = cross ? other->cross_tokens : reads_to(step, *other);
        const std::vector<int32_t> &ids = table(*other, copy.group);
        for (uint32_t at = 0; at < ids.size(); ++at)
            if (ids[at] == copy.dst && at * config.block_size(copy.group) + place < end &&
                !tolerate("shared-write"))
                fail("shared-write",
                     "a copy of step %u, kind %u, goes to block %d place %u of group %u, which "
                     "sequence %u reads",
                     step.id, copy.kind, copy.dst, place, copy.group, other->id);
    }
}

}  // namespace sim
