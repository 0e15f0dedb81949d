// SPDX-License-Identifier: Apache-2.0
//
// The log of a leading cache: written at commit, after everything that can fail, and readable until
// finish.
//
// A step that a device refused at commit has no log; its changes to sequences are in the next log.

#include "core/cache.hpp"

namespace quire {

LogSequence Cache::log_sequence(uint32_t index) const {
    const Sequence &s = sequences_[index];
    const SequenceState &state = s.state;
    return LogSequence{sequence_handles_.handle(index),
                       index,
                       0,
                       state.known,
                       state.computed,
                       state.drafts,
                       state.lookahead,
                       state.flags,
                       state.preemptions,
                       s.priority,
                       s.cross_tokens};
}

// Makes room for the step's log and for remembering what it says.
Status Cache::reserve_log(StepRecord *record) {
    if (!leader_.active()) return Status{};
    if (record->mask_words.size() > UINT32_MAX) {
        return fail(QUIRE_E_LIMIT, "the step's masks have {} words, a log holds at most 2^32-1",
                    record->mask_words.size());
    }
    for (const Change &change : record->changes) leader_.touch(change.sequence);
    uint64_t size_bytes =
        sizeof(LogHeader) +
        (record->copies.size() + journal_.left_count()) * sizeof(quire_block_copy) +
        record->changes.size() * sizeof(LogRow) + record->mask_words.size() * sizeof(uint32_t);
    for (uint32_t slot : leader_.touched()) {
        bool alive = sequence_handles_.is_live(slot);
        if (!leader_.reserve(slot, alive, &journal_.table(slot, 0), &size_bytes))
            return no_host_memory();
    }
    if (record->log.capacity() >= size_bytes) [[likely]]
        return Status{};
    for (StepRecord &other : records_) {
        if (!other.log.reserve(size_bytes)) return no_host_memory();
    }
    return Status{};
}

// The earlier steps in the log that followers must order before this one: those that were over
// here, so that this step may have their blocks; those that its queue orders; and those that it
// waits for.
uint32_t Cache::log_order(const StepRecord &record) const {
    uint32_t order = 0;
    for (uint32_t back = 0; back < kLogOrderBits; ++back) {
        uint64_t step = leader_.step_before(back);
        if (step == 0) break;
        bool before = timeline_.has_run(step) || timeline_.queue_of(step) == record.queue ||
                      (record.waited >> Timeline::slot(step) & 1) != 0;
        order |= before ? 1u << back : 0u;
    }
    return order;
}

// REQUIRES: reserve_log(), and since then only the changes that commit makes.
void Cache::write_log(StepRecord *record) {
    if (!leader_.active()) return;
    Array<uint8_t> &log = record->log;
    LogHeader header{};
    header.magic = kLogMagic;
    header.version = kLogVersion;
    header.order = log_order(*record);
    append(&log, &header, sizeof header);
    for (uint32_t slot : leader_.touched()) {
        leader_.tell_ended(slot, sequence_handles_.is_live(slot), &log, &header);
    }
    for (const quire_block_copy &copy : record->copies) {
        if (copy.kind == kVoidCopy) continue;
        append(&log, &copy, sizeof copy);
        ++header.copy_count;
    }
    for (const Change &change : record->changes) {
        if (change.kind != ChangeKind::item) continue;
        LogRow row{change.sequence,     change.first_position,  change.compute_count,
                   change.cross_tokens, header.mask_word_count, change.mask_rows,
                   change.mask_first,   change.mask_stride};
        if (row.mask_rows == 0) row.mask_at = row.mask_first = row.mask_stride = 0;
        append(&log, &row, sizeof row);
        header.mask_word_count += static_cast<uint32_t>(row.mask_words());
        ++header.row_count;
    }
    for (const Change &change : record->changes) {
        if (change.kind != ChangeKind::item || change.mask_rows == 0) continue;
        uint64_t words = uint64_t{change.mask_rows} * (uint64_t{change.mask_stride} + 1);
        append(&log, record->mask(change).words, words * sizeof(uint32_t));
    }
    for (uint32_t slot : leader_.touched()) {
        if (!sequence_handles_.is_live(slot)) continue;
        leader_.tell(log_sequence(slot), &journal_.table(slot, 0), &log, &header);
    }
    uint32_t held[kMaxGroups] = {}, host_held[kMaxGroups] = {};
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        held[g] = journal_.pool(g).held_count();
        if (journal_.host_pool(g) != nullptr) host_held[g] = journal_.host_pool(g)->held_count();
    }
    leader_.close(held, host_held, record->number, &header);
    header.size_bytes = log.size();
    std::memcpy(log.data(), &header, sizeof header);
    seal(log.data(), log.size());
}

Status Cache::step_log(uint64_t step, void *buffer, uint64_t capacity, uint64_t *size_bytes) {
    StepRecord *record = nullptr;
    QUIRE_TRY(find_step(step, false, &record));
    if (!leader_.active()) {
        return fail(QUIRE_E_UNSUPPORTED, "the cache writes no log: create it with QUIRE_CACHE_LOG");
    }
    if (record->phase != StepPhase::committed) {
        return fail(QUIRE_E_BUSY, "the step is not committed: its log is written at commit");
    }
    *size_bytes = record->log.size();
    if (capacity < *size_bytes) return Status{QUIRE_S_INCOMPLETE, nullptr, 0, 0};
    std::memcpy(buffer, record->log.data(), *size_bytes);
    return Status{};
}

}  // namespace quire
