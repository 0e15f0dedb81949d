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
    bool ok =
        logged_.create(max_sequences) && tables_.create(uint64_t{max_sequences} * group_count_);
    if (!ok) return no_host_memory();
    for (BlockTable &table : tables_) table = BlockTable{};
    active_ = true;
    return Status{};
}

bool Leader::reserve(uint32_t index, bool alive, const BlockTable *tables, uint64_t *size_bytes) {
    *size_bytes += sizeof index;  // if it ended
    if (!alive) return true;
    *size_bytes += sizeof(LogSequence) + group_count_ * sizeof(LogTable);
    for (uint32_t g = 0; g < group_count_; ++g) {
        BlockTable &logged = tables_of(index)[g];
        uint32_t length = tables[g].length;
        // The epoch also changes with the sequence and the tier.
        bool grown = logged.epoch == tables[g].epoch && logged.length <= length;
        *size_bytes += uint64_t{4} * (grown ? length - logged.length : length);
        if (!buffers_->grow(&logged.ids, length, logged.length)) return false;
    }
    return true;
}

void Leader::find_change(const LogSequence &now, const BlockTable *tables, SequenceChange *change) {
    change->before = logged_[now.index];
    change->after = now;
    change->old_tables = tables_of(now.index);
    for (uint32_t g = 0; g < group_count_; ++g) {
        const BlockTable &old = change->old_tables[g], &table = tables[g];
        uint32_t end = old.length < table.length ? old.length : table.length, first = 0;
        TableChange &logged = change->tables[g];
        logged = TableChange{{table.length, table.null_front, 0}, kept_blocks_[g], false, nullptr};
        if (change->continues() && old.epoch == table.epoch) {
            first = end;
        } else if (change->continues()) {
            auto stays = [&](uint32_t i) {
                return (i >= logged.kept && i < table.null_front) ||
                       old.ids.data[i] == table.ids.data[i];
            };
            while (first < end && stays(first)) ++first;
        }
        logged.shape.first = first;
        logged.ids = table.ids.data + first;
    }
}

// Applies the change to the remembered tables. The caller sets their epochs.
void Leader::remember(const SequenceChange &change) {
    for (uint32_t g = 0; g < group_count_; ++g) {
        BlockTable &logged = tables_of(change.after.index)[g];
        const LogTable &shape = change.tables[g].shape;
        const TableChange &table = change.tables[g];
        uint32_t nulled = shape.first < shape.null_front ? shape.first : shape.null_front;
        uint32_t from = logged.null_front > table.kept ? logged.null_front : table.kept;
        for (uint32_t i = from; i < nulled; ++i) logged.ids.data[i] = kNullBlock;
        if (shape.length > shape.first) {
            std::memcpy(logged.ids.data + shape.first, table.ids,
                        uint64_t{shape.length - shape.first} * 4);
        }
        logged.length = shape.length;
        logged.null_front = shape.null_front;
    }
    logged_[change.after.index] = change.after;
}

void Leader::write_ended(uint32_t index, bool alive, Array<uint8_t> *log, LogHeader *header) {
    if (alive || logged_[index].handle == 0) return;
    SequenceChange change{};
    change.before = logged_[index];
    change.old_tables = tables_of(index);
    for (uint32_t g = 0; g < group_count_; ++g) change.tables[g].kept = kept_blocks_[g];
    sum_ += digest_change(change, group_count_);
    for (uint32_t g = 0; g < group_count_; ++g) {
        BlockTable &logged = tables_of(index)[g];
        buffers_->give_back(&logged.ids);
        logged = BlockTable{};
    }
    logged_[index] = LogSequence{};
    append(log, &index, sizeof index);
    ++header->ended_count;
}

void Leader::write_changed(const LogSequence &now, const BlockTable *tables, Array<uint8_t> *log,
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
    for (uint32_t g = 0; g < group_count_; ++g) tables_of(now.index)[g].epoch = tables[g].epoch;
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
