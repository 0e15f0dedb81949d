// SPDX-License-Identifier: Apache-2.0
//
// name_space: the tenants of a cache: how much each may hold, and which content is its own.
//
// A namespace's number is that of its handle, so it is never given out twice in the process:
// content that carries the number can never be taken for another tenant's, however long it stays
// cached. The default namespace is number 0, which no handle has.
//
// Invariant: blocks_held + returned <= quota_blocks, if there is a quota. So no namespace holds
// more, whichever items of the open step are dropped.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/handle_table.hpp"
#include "core/base/sha256.hpp"

namespace quire {

struct Namespace {
    uint64_t number = 0;
    uint32_t quota_blocks = 0;
    bool gives_tokens = false;           // to readers of events
    bool has_digest = false;             // else it has no name outside of the cache
    Digest digest{};                     // of its key; zeros: the default one's
    uint32_t next = HandleTable::kNone;  // in its bucket, or free
    uint64_t sequences = 0;              // leases included
    uint64_t leases = 0;
    uint64_t blocks_held = 0;
    // Blocks that the open step took off blocks_held and that can come back until it is committed:
    // `returned` by items, which can be dropped one by one, and `given_up` by its victims and
    // leases, which only an abort undoes.
    uint64_t returned = 0;
    uint64_t given_up = 0;
    uint64_t queries = 0;
    uint64_t hits = 0;
    // Sums over its sequences, by CacheCheck.
    uint64_t counted_sequences = 0;
    uint64_t counted_leases = 0;
    uint64_t counted_blocks = 0;
    uint64_t counted_returned = 0;
    uint64_t counted_given_up = 0;

    // By how many blocks the namespace would be over its quota if it held that many; 0: it would
    // not. Blocks that items of the open step gave back return if those items are dropped. The
    // commit frees them, so they are not missing for good.
    uint64_t over_quota(uint64_t held) const {
        if (quota_blocks == 0 || held + returned <= quota_blocks) [[likely]]
            return 0;
        return held > quota_blocks ? held - quota_blocks : 1;
    }
};

class Namespaces {
 public:
    static constexpr uint32_t kNone = HandleTable::kNone;
    static constexpr uint32_t kDefault = 0;  // index

    explicit Namespaces(const HostAllocator *host) : records_(host), buckets_(host) {}

    // capacity: namespaces alive at once, the default one included; a power of two.
    [[nodiscard]] bool create(uint32_t capacity) {
        if (!records_.create(capacity) || !buckets_.create(capacity)) return false;
        for (uint32_t &bucket : buckets_) bucket = kNone;
        records_[kDefault] = Namespace{};
        records_[kDefault].has_digest = true;
        used_ = 1;
        return true;
    }

    uint32_t used() const { return used_; }  // higher indices were never used
    Namespace &operator[](uint32_t index) { return records_[index]; }
    const Namespace &operator[](uint32_t index) const { return records_[index]; }

    void give_tokens(uint32_t index) { records_[index].gives_tokens = gives_tokens_ = true; }
    // True if any namespace ever did.
    bool gives_tokens() const { return gives_tokens_; }

    // kNone if all are live or no number is left.
    uint32_t take() {
        uint32_t index = free_ != kNone ? free_ : used_;
        if (index == records_.size()) return kNone;
        uint64_t number = g_namespace_numbers.take(1);
        if (number == 0) return kNone;
        if (index == free_) {
            free_ = records_[index].next;
        } else {
            ++used_;
        }
        records_[index] = Namespace{};
        records_[index].number = number;
        uint32_t &bucket = bucket_of(number);
        records_[index].next = bucket;
        bucket = index;
        return index;
    }

    // REQUIRES: it is live and not the default one.
    void end(uint32_t index) {
        QUIRE_ASSERT(index != kDefault);
        uint32_t *link = &bucket_of(records_[index].number);
        while (*link != index) link = &records_[*link].next;
        *link = records_[index].next;
        records_[index].next = free_;
        free_ = index;
    }

    uint64_t handle(uint32_t index) const {
        return make_handle(HandleType::name_space, records_[index].number);
    }

    // The index, or kNone if the handle is not live. The default namespace has no handle.
    uint32_t find(uint64_t handle_value) const {
        uint64_t number = handle_value & (HandleNumbers::kEnd - 1);
        if (handle_value != make_handle(HandleType::name_space, number)) return kNone;
        for (uint32_t i = bucket_of(number); i != kNone; i = records_[i].next) {
            if (records_[i].number == number) return i;
        }
        return kNone;
    }

 private:
    // Spreads numbers evenly, whether adjacent or with gaps that other caches took (Fibonacci
    // hashing, 2^64 / golden ratio).
    uint64_t place_of(uint64_t number) const {
        return (number * 0x9E3779B97F4A7C15u >> 32) & (buckets_.size() - 1);
    }
    uint32_t &bucket_of(uint64_t number) { return buckets_[place_of(number)]; }
    uint32_t bucket_of(uint64_t number) const { return buckets_[place_of(number)]; }

    Array<Namespace> records_;
    Array<uint32_t> buckets_;
    uint32_t used_ = 0;  // records from here on were never used
    uint32_t free_ = kNone;
    bool gives_tokens_ = false;
};

}  // namespace quire
