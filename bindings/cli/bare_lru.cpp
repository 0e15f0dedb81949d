// SPDX-License-Identifier: Apache-2.0

#include "bare_lru.hpp"

#include <ctime>

namespace quire::cli {

namespace {

constexpr uint32_t kNone = 0xFFFFFFFF;

// A pool of `capacity` blocks, each identified by a 64-bit name.
class Lru {
 public:
    explicit Lru(uint32_t capacity) : entries_(capacity) {
        uint32_t buckets = 1;
        while (buckets < capacity * 2) buckets *= 2;
        buckets_.assign(buckets, kNone);
        mask_ = buckets - 1;
    }

    bool find(uint64_t name) {
        for (uint32_t i = buckets_[slot(name)]; i != kNone; i = entries_[i].chain) {
            if (entries_[i].name != name) continue;
            leave(i);
            held_.push_back(i);
            return true;
        }
        return false;
    }

    void add(uint64_t name) {
        uint32_t i = used_ < entries_.size() ? used_++ : evict();
        entries_[i].name = name;
        entries_[i].chain = buckets_[slot(name)];
        buckets_[slot(name)] = i;
        held_.push_back(i);
    }

    // The request is over: its blocks enter the LRU list, the tail as the oldest.
    void release() {
        for (size_t k = held_.size(); k-- > 0;) {
            uint32_t i = held_[k];
            entries_[i].prev = newest_;
            entries_[i].next = kNone;
            (newest_ != kNone ? entries_[newest_].next : oldest_) = i;
            newest_ = i;
        }
        held_.clear();
    }

 private:
    struct Entry {
        uint64_t name;
        uint32_t chain, prev, next;
    };

    uint32_t slot(uint64_t name) const {
        return static_cast<uint32_t>(name * 0x9E3779B97F4A7C15ull >> 32) & mask_;
    }

    void leave(uint32_t i) {
        Entry &e = entries_[i];
        (e.prev != kNone ? entries_[e.prev].next : oldest_) = e.next;
        (e.next != kNone ? entries_[e.next].prev : newest_) = e.prev;
    }

    uint32_t evict() {
        uint32_t i = oldest_;
        leave(i);
        uint32_t *link = &buckets_[slot(entries_[i].name)];
        while (*link != i) link = &entries_[*link].chain;
        *link = entries_[i].chain;
        return i;
    }

    std::vector<Entry> entries_;
    std::vector<uint32_t> buckets_;
    std::vector<uint32_t> held_;
    uint32_t mask_ = 0;
    uint32_t used_ = 0;
    uint32_t oldest_ = kNone;
    uint32_t newest_ = kNone;
};

}  // namespace

double process_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double run_bare_lru(const Trace &trace, uint32_t blocks, uint32_t block_tokens,
                    uint64_t *hit_tokens) {
    Lru lru(blocks - 1);
    *hit_tokens = 0;
    uint64_t unique = uint64_t{1} << 40;
    double begin = process_seconds();
    for (const Request &request : trace.requests) {
        uint32_t full = request.input_length / block_tokens;
        uint32_t findable = (request.input_length - 1) / block_tokens;
        bool matching = true;
        for (uint32_t b = 0; b < full; ++b) {
            uint32_t position = b * block_tokens;
            uint64_t name = uint64_t{request.hash_ids[position / kTokensPerHash]} * kTokensPerHash +
                            position % kTokensPerHash;
            matching = matching && b < findable && lru.find(name);
            if (matching) {
                *hit_tokens += block_tokens;
            } else {
                lru.add(name);
            }
        }
        uint32_t total = (request.input_length + request.output_length - 1) / block_tokens;
        for (uint32_t b = full; b < total; ++b) lru.add(unique++);
        lru.release();
    }
    return process_seconds() - begin;
}

}  // namespace quire::cli
