// SPDX-License-Identifier: Apache-2.0

#include "core/base/word_table.hpp"

namespace quire {

namespace {

constexpr uint64_t kFirstBuckets = 64;  // doubled when there are as many entries

}  // namespace

WordTable::~WordTable() {
    for (Entry &entry : entries_) {
        if (entry.references != 0) discard(entry.words, entry.count);
    }
}

bool WordTable::create(uint64_t seed) {
    static_assert(sizeof(Entry) == 32);  // as cache.h counts keys
    seed_ = seed;
    if (!buckets_.create(kFirstBuckets)) return false;
    for (uint32_t &head : buckets_) head = kNone;
    return true;
}

uint32_t *WordTable::store(const uint32_t *words, uint32_t count) {
    Buffer buffer;
    if (count <= kShortWords) {
        if (!buffers_->grow(&buffer, kShortWords, 0)) return nullptr;
    } else {
        buffer.data =
            static_cast<uint32_t *>(host_->allocate(host_->user, stored_bytes(count), kCacheLine));
        if (buffer.data == nullptr) return nullptr;
    }
    if (count != 0) std::memcpy(buffer.data, words, uint64_t{count} * sizeof(uint32_t));
    return buffer.data;
}

void WordTable::discard(uint32_t *words, uint32_t count) {
    if (count > kShortWords) {
        return host_->release(host_->user, words, stored_bytes(count), kCacheLine);
    }
    Buffer buffer{words, kShortWords};
    buffers_->give_back(&buffer);
}

// Keeps chains short on average. Without memory they grow longer.
void WordTable::spread() {
    if (live_ < buckets_.size()) return;
    Array<uint32_t> buckets(buckets_.host());
    if (!buckets.create(2 * buckets_.size())) return;
    for (uint32_t &head : buckets) head = kNone;
    buckets_.swap(buckets);
    for (uint64_t i = 0; i < entries_.size(); ++i) {
        Entry &entry = entries_[i];
        if (entry.references == 0) continue;
        entry.next = bucket(entry.hash);
        bucket(entry.hash) = static_cast<uint32_t>(i);
    }
}

uint32_t WordTable::acquire(uint32_t parent, const uint32_t *words, uint32_t count, bool *is_new) {
    uint64_t size_bytes = uint64_t{count} * sizeof(uint32_t);
    uint64_t hash = chain_hash(seed_ ^ parent, words, size_bytes);
    *is_new = false;
    for (uint32_t i = bucket(hash); i != kNone; i = entries_[i].next) {
        Entry &entry = entries_[i];
        if (entry.hash == hash && entry.parent == parent && entry.count == count &&
            (count == 0 || std::memcmp(entry.words, words, size_bytes) == 0)) {
            ++entry.references;
            return i;
        }
    }
    uint32_t index = free_;
    if (index == kNone && !entries_.reserve(entries_.size() + 1)) return kNone;
    uint32_t *stored = store(words, count);
    if (stored == nullptr) return kNone;
    if (index != kNone) {
        free_ = entries_[index].next;
    } else {
        index = static_cast<uint32_t>(entries_.size());
        entries_.push(Entry{});
    }
    spread();  // before the new entry is counted
    entries_[index] = Entry{stored, count, parent, 1, bucket(hash), hash};
    bucket(hash) = index;
    ++live_;
    *is_new = true;
    return index;
}

void WordTable::remove(uint32_t index) {
    Entry &entry = entries_[index];
    uint32_t *link = &bucket(entry.hash);
    while (*link != index) link = &entries_[*link].next;
    *link = entry.next;
    discard(entry.words, entry.count);
    entry.words = nullptr;
    entry.next = free_;
    free_ = index;
    --live_;
}

}  // namespace quire
