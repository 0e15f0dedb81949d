// SPDX-License-Identifier: Apache-2.0

#include "core/replica/leader.hpp"

namespace quire {

Leader::~Leader() {
    for (BlockTable &table : tables_) buffers_->give_back(&table.ids);
}

Status Leader::create(uint64_t identity, uint64_t geometry_digest, uint32_t max_sequences,
                      const Geometry &geometry) {
    group_count_ = geometry.group_count;
    for (uint32_t g = 0; g < group_count_; ++g) kept_blocks_[g] = geometry.groups[g].kept_blocks;
    identity_ = identity;
    geometry_ = geometry_digest;
    bool ok = told_.create(max_sequences) && tables_.create(uint64_t{max_sequences} * group_count_);
    if (!ok) return no_host_memory();
    for (BlockTable &table : tables_) table = BlockTable{};
    active_ = true;
    return Status{};
}

bool Leader::reserve(uint32_t slot, bool alive, const BlockTable *tables, uint64_t *size_bytes) {
    *size_bytes += sizeof slot;  // if it ended
    if (!alive) return true;
    *size_bytes += sizeof(LogSequence) + group_count_ * sizeof(LogTable);
    for (uint32_t g = 0; g < group_count_; ++g) {
        BlockTable &told = tables_of(slot)[g];
        uint32_t length = tables[g].length;
        // The epoch also changes with the sequence and the tier.
        bool grown = told.epoch == tables[g].epoch && told.length <= length;
        *size_bytes += uint64_t{4} * (grown ? length - told.length : length);
        if (!buffers_->grow(&told.ids, length, told.length)) return false;
    }
    return true;
}

void Leader::find_change(const LogSequence &now, const BlockTable *tables, SequenceChange *change) {
    change->before = told_[now.slot()];
    change->after = now;
    change->old_tables = tables_of(now.slot());
    for (uint32_t g = 0; g < group_count_; ++g) {
        const BlockTable &old = change->old_tables[g], &table = tables[g];
        uint32_t end = old.length < table.length ? old.length : table.length, first = 0;
        TableChange &told = change->tables[g];
        told = TableChange{{table.length, table.null_front, 0}, kept_blocks_[g], false, nullptr};
        if (change->continues() && old.epoch == table.epoch) {
            first = end;
        } else if (change->continues()) {
            auto stays = [&](uint32_t i) {
                return (i >= told.kept && i < table.null_front) ||
                       old.ids.data[i] == table.ids.data[i];
            };
            while (first < end && stays(first)) ++first;
        }
        told.shape.first = first;
        told.ids = table.ids.data + first;
    }
}

// Applies the change to the remembered tables. The caller sets their epochs.
void Leader::remember(const SequenceChange &change) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        BlockTable &told = tables_of(change.after.slot())[g];
        const LogTable &shape = change.tables[g].shape;
        const TableChange &table = change.tables[g];
        uint32_t nulled = shape.first < shape.null_front ? shape.first : shape.null_front;
        uint32_t from = told.null_front > table.kept ? told.null_front : table.kept;
        for (uint32_t i = from; i < nulled; ++i) told.ids.data[i] = kNullBlock;
        if (shape.length > shape.first) {
            std::memcpy(told.ids.data + shape.first, table.ids,
                        uint64_t{shape.length - shape.first} * 4);
        }
        told.length = shape.length;
        told.null_front = shape.null_front;
    }
    told_[change.after.slot()] = change.after;
}

void Leader::tell_ended(uint32_t slot, bool alive, Array<uint8_t> *log, LogHeader *header) {
    if (alive || told_[slot].handle == 0) return;
    SequenceChange change{};
    change.before = told_[slot];
    change.old_tables = tables_of(slot);
    for (uint32_t g = 0; g < group_count_; ++g) change.tables[g].kept = kept_blocks_[g];
    sum_ += digest_change(change, group_count_);
    for (uint32_t g = 0; g < group_count_; ++g) {
        BlockTable &told = tables_of(slot)[g];
        buffers_->give_back(&told.ids);
        told = BlockTable{};
    }
    told_[slot] = LogSequence{};
    append(log, &slot, sizeof slot);
    ++header->ended_count;
}

void Leader::tell(const LogSequence &now, const BlockTable *tables, Array<uint8_t> *log,
                  LogHeader *header) {
    SequenceChange change;
    find_change(now, tables, &change);
    bool same = std::memcmp(&change.before, &change.after, sizeof now) == 0;
    for (uint32_t g = 0; same && g < group_count_; ++g) {
        const LogTable &shape = change.tables[g].shape;
        same = shape.first == shape.length && shape.length == change.old_tables[g].length &&
               shape.null_front == change.old_tables[g].null_front;
    }
    if (same) return;
    sum_ += digest_change(change, group_count_);
    append(log, &now, sizeof now);
    for (uint32_t g = 0; g < group_count_; ++g) {
        append(log, &change.tables[g].shape, sizeof(LogTable));
    }
    for (uint32_t g = 0; g < group_count_; ++g) {
        const TableChange &table = change.tables[g];
        table.each_told([&](uint32_t i) {
            uint32_t id = table.id(i);
            append(log, &id, sizeof id);
        });
    }
    remember(change);
    for (uint32_t g = 0; g < group_count_; ++g) tables_of(now.slot())[g].epoch = tables[g].epoch;
    ++header->sequence_count;
}

void Leader::close(const uint32_t *held, const uint32_t *host_held, uint64_t step,
                   LogHeader *header) {
    header->leader = identity_;
    header->geometry = geometry_;
    header->number = ++number_;
    header->digest = digest_state(sum_, held, host_held, group_count_);
    steps_[number_ % kLogOrderBits] = step;
}

}  // namespace quire
