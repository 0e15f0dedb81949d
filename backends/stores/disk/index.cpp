// SPDX-License-Identifier: Apache-2.0

#include "disk/index.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "disk/segment.hpp"

namespace quire::disk {

namespace {

// Hashed although keys are digests: a caller may use keys that differ in few bits.
uint64_t hash_of(const uint8_t key[32]) { return XXH3_64bits(key, 32); }

}  // namespace

uint64_t Index::slot_of(const uint8_t key[32]) const {
    uint64_t mask = slots_.size() - 1;
    for (uint64_t slot = hash_of(key) & mask;; slot = (slot + 1) & mask) {
        if (slots_[slot] == kNoEntry) return slot;
        if (std::memcmp(entries_[slots_[slot]].label.key, key, 32) == 0) return slot;
    }
}

void Index::grow(uint64_t slot_count) {
    std::vector<uint32_t> slots(slot_count, kNoEntry);
    slots.swap(slots_);
    for (uint32_t number = 0; number < end(); ++number) {
        if (entries_[number].segment != nullptr) {
            slots_[slot_of(entries_[number].label.key)] = number;
        }
    }
}

void Index::reserve(uint64_t count) {
    uint64_t wanted = entries_.size() + count;
    // By doubling, so that entries are copied a constant number of times.
    if (wanted > entries_.capacity()) {
        entries_.reserve(std::max<uint64_t>(wanted, 2 * entries_.capacity()));
    }
    uint64_t slot_count = std::max<uint64_t>(slots_.size(), 64);
    while (slot_count < 2 * (count_ + count)) slot_count *= 2;
    if (slot_count != slots_.size()) grow(slot_count);
}

uint32_t Index::find(const uint8_t key[32]) const {
    return slots_.empty() ? kNoEntry : slots_[slot_of(key)];
}

void Index::link(uint32_t number, Segment *segment) {
    Entry &entry = entries_[number];
    entry.segment = segment;
    entry.previous = segment->last_entry;
    entry.next = kNoEntry;
    if (segment->last_entry == kNoEntry) {
        segment->first_entry = number;
    } else {
        entries_[segment->last_entry].next = number;
    }
    segment->last_entry = number;
    segment->live_bytes += entry.total_bytes();
}

void Index::unlink(uint32_t number) {
    Entry &entry = entries_[number];
    Segment *segment = entry.segment;
    segment->live_bytes -= entry.total_bytes();
    if (entry.previous == kNoEntry) {
        segment->first_entry = entry.next;
    } else {
        entries_[entry.previous].next = entry.next;
    }
    if (entry.next == kNoEntry) {
        segment->last_entry = entry.previous;
    } else {
        entries_[entry.next].previous = entry.previous;
    }
    entry.segment = nullptr;
}

void Index::move(uint32_t number, const Record &record, Segment *segment) {
    unlink(number);
    Entry &entry = entries_[number];
    value_bytes_ += record.value_bytes - entry.value_bytes;
    entry.label = record.label;
    entry.offset = record.offset;
    entry.value_bytes = record.value_bytes;
    entry.sequence = record.sequence;
    entry.first_sequence = record.first_sequence;
    entry.was_read = false;
    link(number, segment);
}

uint32_t Index::put(const Record &record, Segment *segment) {
    uint64_t slot = slot_of(record.label.key);
    if (slots_[slot] != kNoEntry) {
        move(slots_[slot], record, segment);
        return slots_[slot];
    }
    uint32_t number = first_unused_;
    if (number != kNoEntry) {
        first_unused_ = entries_[number].next;
    } else {
        number = end();
        entries_.emplace_back();
    }
    slots_[slot] = number;
    entries_[number] = {record.label,       nullptr,         record.offset,
                        record.value_bytes, record.sequence, record.first_sequence,
                        kNoEntry,           kNoEntry,        false};
    link(number, segment);
    value_bytes_ += record.value_bytes;
    ++count_;
    return number;
}

void Index::remove(uint32_t number) {
    uint64_t mask = slots_.size() - 1;
    uint64_t hole = slot_of(entries_[number].label.key);
    unlink(number);
    value_bytes_ -= entries_[number].value_bytes;
    --count_;
    slots_[hole] = kNoEntry;
    // Entries after the hole move into it unless that would put them before their own slot.
    for (uint64_t slot = (hole + 1) & mask; slots_[slot] != kNoEntry; slot = (slot + 1) & mask) {
        uint64_t home = hash_of(entries_[slots_[slot]].label.key) & mask;
        if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
        slots_[hole] = slots_[slot];
        slots_[slot] = kNoEntry;
        hole = slot;
    }
    entries_[number].next = first_unused_;
    first_unused_ = number;
}

}  // namespace quire::disk
