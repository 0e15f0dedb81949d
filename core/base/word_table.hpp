// SPDX-License-Identifier: Apache-2.0
//
// word_table: strings of 32-bit words, each stored once and reference-counted.
//
// Two strings are one entry when their words and their `parent` are equal, compared and not only
// hashed. So an entry's number stands for its content as long as it has a reference. `parent` is
// the caller's scope within which an entry is unique (an account, or another entry's number).
//
// Short strings are stored in buffers of the pool, which later ones reuse; longer ones are released
// to the host with their last reference.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/hash.hpp"
#include "core/base/host_memory.hpp"

namespace quire {

class WordTable {
 public:
    static constexpr uint32_t kNone = 0xFFFFFFFF;

    WordTable(const HostAllocator *host, BufferPool *buffers)
        : host_(host), entries_(host), buckets_(host), buffers_(buffers) {}
    WordTable(const WordTable &) = delete;
    WordTable &operator=(const WordTable &) = delete;
    ~WordTable();

    [[nodiscard]] bool create(uint64_t seed);

    // The entry with these words, with one more reference. *is_new: it was created. kNone: no
    // memory, and nothing changed. Time O(count).
    uint32_t acquire(uint32_t parent, const uint32_t *words, uint32_t count, bool *is_new);
    void share(uint32_t entry, uint32_t times = 1) { entries_[entry].references += times; }
    // True: that was the last reference, and the entry is gone.
    bool release(uint32_t entry) {
        QUIRE_ASSERT(entries_[entry].references > 0);
        if (--entries_[entry].references != 0) return false;
        remove(entry);
        return true;
    }

    const uint32_t *words(uint32_t entry) const { return entries_[entry].words; }
    uint32_t count(uint32_t entry) const { return entries_[entry].count; }
    uint32_t parent(uint32_t entry) const { return entries_[entry].parent; }
    uint32_t references(uint32_t entry) const { return entries_[entry].references; }
    uint64_t hash(uint32_t entry) const { return entries_[entry].hash; }
    // Host memory that the entry takes: its record and its words.
    uint64_t size_bytes(uint32_t entry) const {
        return sizeof(Entry) + stored_bytes(entries_[entry].count);
    }
    // All numbers that were ever given out are below it.
    uint64_t used() const { return entries_.size(); }
    uint64_t live() const { return live_; }
    uint64_t seed() const { return seed_; }

 private:
    static constexpr uint32_t kShortWords = kCacheLine / sizeof(uint32_t);

    struct Entry {
        uint32_t *words;
        uint32_t count;
        uint32_t parent;
        uint32_t references;  // 0: free
        uint32_t next;        // in the bucket, or the free list
        uint64_t hash;
    };

    static uint64_t stored_bytes(uint32_t count) {
        return count <= kShortWords ? kCacheLine : uint64_t{count} * sizeof(uint32_t);
    }
    void remove(uint32_t entry);
    uint32_t *store(const uint32_t *words, uint32_t count);
    void discard(uint32_t *words, uint32_t count);
    void spread();
    uint32_t &bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

    const HostAllocator *host_;
    Array<Entry> entries_;
    Array<uint32_t> buckets_;
    BufferPool *buffers_;
    uint32_t free_ = kNone;
    uint64_t live_ = 0;
    uint64_t seed_ = 0;
};

}  // namespace quire
