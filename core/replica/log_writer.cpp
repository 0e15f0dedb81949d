// SPDX-License-Identifier: Apache-2.0

#include "core/replica/log_writer.hpp"

namespace quire {

Status LogWriter::create(uint64_t identity, uint64_t geometry_digest, uint32_t max_sequences) {
    if (!books_.touched.create(max_sequences)) return no_host_memory();
    return leader_.create(identity, geometry_digest, max_sequences, books_.geometry);
}

Status LogWriter::reserve_log(StepRecord *record) {
    if (record->mask_words.size() > UINT32_MAX) {
        return fail(QUIRE_E_LIMIT, "the step's masks have {} words, a log holds at most 2^32-1",
                    record->mask_words.size());
    }
    for (const Change &change : record->changes) books_.touched.touch(change.sequence);
    uint64_t size_bytes =
        sizeof(LogHeader) +
        (record->copies.size() + books_.journal.unscrubbed_count()) * sizeof(quire_block_copy) +
        record->changes.size() * sizeof(LogRow) + record->mask_words.size() * sizeof(uint32_t);
    for (uint32_t index : books_.touched.indices()) {
        bool alive = books_.handles.is_live(index);
        if (!leader_.reserve(index, alive, &books_.journal.table(index, 0), &size_bytes))
            return no_host_memory();
    }
    if (record->log.capacity() >= size_bytes) [[likely]]
        return Status{};
    for (StepRecord &other : books_.records) {
        if (!other.log.reserve(size_bytes)) return no_host_memory();
    }
    return Status{};
}

// The earlier steps in the log that followers must order before this one: those that were over
// here, so that this step may have their blocks; those that its queue orders; and those that it
// waits for.
uint32_t LogWriter::log_order(const StepRecord &record) const {
    uint32_t order = 0;
    for (uint32_t back = 0; back < kLogOrderBits; ++back) {
        uint64_t step = leader_.step_before(back);
        if (step == 0) break;
        bool before = books_.timeline.has_run(step) ||
                      books_.timeline.queue_of(step) == record.queue ||
                      (record.waited >> Timeline::ring_index(step) & 1) != 0;
        order |= before ? 1u << back : 0u;
    }
    return order;
}

// Writes the rows, and then their masks.
void LogWriter::write_rows(const StepRecord &record, Array<uint8_t> *log, LogHeader *header) {
    for (const Change &change : record.changes) {
        if (change.kind != ChangeKind::item) continue;
        LogRow row{change.sequence,     change.first_position,   change.compute_count,
                   change.cross_tokens, header->mask_word_count, change.mask_rows,
                   change.mask_first,   change.mask_stride};
        if (row.mask_rows == 0) row.mask_at = row.mask_first = row.mask_stride = 0;
        append(log, &row, sizeof row);
        header->mask_word_count += static_cast<uint32_t>(row.mask_words());
        ++header->row_count;
    }
    for (const Change &change : record.changes) {
        if (change.kind != ChangeKind::item || change.mask_rows == 0) continue;
        uint64_t words = uint64_t{change.mask_rows} * (uint64_t{change.mask_stride} + 1);
        append(log, record.mask(change).words, words * sizeof(uint32_t));
    }
}

void LogWriter::write(StepRecord *record) {
    if (!leader_.active()) return;
    Array<uint8_t> &log = record->log;
    LogHeader header{};
    header.magic = kLogMagic;
    header.version = kLogVersion;
    header.order = log_order(*record);
    append(&log, &header, sizeof header);
    for (uint32_t index : books_.touched.indices()) {
        leader_.write_ended(index, books_.handles.is_live(index), &log, &header);
    }
    for (const quire_block_copy &copy : record->copies) {
        if (copy.kind == kVoidCopy) continue;
        append(&log, &copy, sizeof copy);
        ++header.copy_count;
    }
    write_rows(*record, &log, &header);
    for (uint32_t index : books_.touched.indices()) {
        if (!books_.handles.is_live(index)) continue;
        leader_.write_changed(
            describe_sequence(books_.sequences[index], books_.handles.handle(index), index),
            &books_.journal.table(index, 0), &log, &header);
    }
    uint32_t held[kMaxGroups] = {}, host_held[kMaxGroups] = {};
    for (uint32_t p = 0; p < books_.journal.pool_count(); ++p) {
        held[p] = books_.journal.pool(p).held_count();
        if (books_.journal.host_pool(p) != nullptr)
            host_held[p] = books_.journal.host_pool(p)->held_count();
    }
    leader_.close(held, host_held, record->number, &header);
    books_.touched.clear();
    header.size_bytes = log.size();
    std::memcpy(log.data(), &header, sizeof header);
    seal(log.data(), log.size());
}

Status LogWriter::step_log(uint64_t step, void *buffer, uint64_t capacity, uint64_t *size_bytes) {
    StepRecord *record = nullptr;
    QUIRE_TRY(books_.records.find(step, false, &record));
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
