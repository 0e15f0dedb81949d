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
        sizeof(LogHeader) + orders_bytes() +
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

// The most bytes that the orders take. The commit may end each load.
uint64_t LogWriter::orders_bytes() {
    const uint64_t tokens = uint64_t{books_.geometry.block_tokens} * sizeof(quire_token);
    uint64_t blocks = books_.write_orders.count();
    for (const Load *load = books_.loads.next_untold(0); load != nullptr;
         load = books_.loads.next_untold(load->serial))
        blocks += load->blocks.size();
    return blocks * (sizeof(TierOrder) + tokens) + Loads::kMost * sizeof(TierOrder);
}

void LogWriter::write_load(Load *load, Array<uint8_t> *log, LogHeader *header) {
    TierOrder order{};
    order.kind = kOrderLoad;
    order.serial = load->serial;
    order.tenant = load->tenant;
    for (uint32_t block : load->blocks) order.count += block != kNullBlock ? 1 : 0;
    for (uint64_t entry = 0; entry < load->blocks.size(); ++entry) {
        if (load->blocks[entry] == kNullBlock) continue;
        order.group = load->group_of(entry);
        order.index = load->index_of(entry);
        order.block = load->blocks[entry];
        order.name = load->names[order.index];
        append(log, &order, sizeof order);
        append(log, load->tokens.data() + uint64_t{order.index} * books_.geometry.span.tokens(),
               uint64_t{books_.geometry.block_tokens} * sizeof(quire_token));
    }
    header->order_count += order.count;
    load->is_told = true;
}

// Blocks that are not any more what they were are left out.
void LogWriter::write_kept(const WriteOrder &kept, Array<uint8_t> *log, LogHeader *header) {
    const PrefixTree &tree = books_.journal.tree();
    if (tree.generation(kept.node) != kept.generation || !tree.in_use(kept.node)) return;
    if (tree.blocks(kept.node)[kept.group] != kept.named) return;
    TierOrder order{};
    order.kind = is_on_host(kept.named) ? kOrderWriteHost : kOrderWrite;
    order.group = kept.group;
    order.index = kept.index;
    order.block = number_of(kept.named);
    order.tenant = kept.tenant;
    order.name = kept.name;
    append(log, &order, sizeof order);
    append(log, tree.tokens(kept.node),
           uint64_t{books_.geometry.block_tokens} * sizeof(quire_token));
    ++header->order_count;
}

// Ends come first, so that no follower has more loads than there can be here.
void LogWriter::write_orders(Array<uint8_t> *log, LogHeader *header) {
    Loads &loads = books_.loads;
    for (uint32_t i = 0; i < loads.end_count(); ++i) {
        TierOrder order{};
        order.kind = kOrderEnd;
        order.serial = loads.end(i).serial;
        order.index = loads.end(i).length;
        append(log, &order, sizeof order);
        ++header->order_count;
    }
    loads.clear_ends();
    for (Load *load = loads.next_untold(0); load != nullptr; load = loads.next_untold(load->serial))
        write_load(load, log, header);
    // A lease writes to its blocks as it likes, and no row of a log says when.
    if (books_.leases == 0) {
        for (const WriteOrder &kept : books_.write_orders) write_kept(kept, log, header);
    }
    books_.write_orders.clear();
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
    write_orders(&log, &header);
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
            host_held[p] = books_.journal.host_pool(p)->held_count() - books_.loads.held(p);
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
