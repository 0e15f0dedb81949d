// SPDX-License-Identifier: Apache-2.0
//
// blocks: the copies that a cache makes for an engine: of blocks that are written while shared, and
// of a sequence that is swapped out and in. The time is from the step's commit until its queue is
// idle.
//
// Each copy is verified afterwards if the host can access the pool: a benchmark of copies that were
// not made would be fast.
//
// Threads: none; the device has its own.
#pragma once

#include <vector>

#include "memcpy_rate.hpp"
#include "tests/bench/scene/session.hpp"

namespace quire::bench {

// A block's sizes, with 16 tokens, f16, 128 elements per head.
struct Geometry {
    uint32_t layers;
    uint32_t kv_heads;

    uint64_t block_bytes() const { return uint64_t{16} * layers * kv_heads * 128 * 2 * 2; }
};

struct Place {
    std::string device;
    uint32_t threads;
};

// A cache of one group, and its pool as the host sees it: if the host cannot access the pool,
// nothing is stamped or verified.
class Blocks {
 public:
    Blocks(const Geometry &geometry, uint32_t block_count, uint32_t host_blocks,
           const Place &place);
    ~Blocks();
    Blocks(const Blocks &) = delete;
    Blocks &operator=(const Blocks &) = delete;

    quire_seq make_sequence();
    quire_seq fork(quire_seq sequence, uint32_t token_count);
    void end(quire_seq sequence);
    void truncate(quire_seq sequence, uint32_t token_count);
    // Runs a step that adds `count` tokens to each sequence, or swaps `victim` out; returns the
    // seconds of its copies.
    double step(const std::vector<quire_seq> &sequences, uint32_t count, quire_seq victim = 0);

    std::vector<int32_t> table(quire_seq sequence);
    void stamp(int32_t block, uint64_t value);  // writes a value throughout a block
    void expect(int32_t block, uint64_t value);
    void forget_pages(int32_t block);  // the next write to it maps fresh ones
    Session &session() { return session_; }

 private:
    std::byte *bytes_of(int32_t block) const;

    Session session_;
    quire_cache *cache_ = nullptr;
    uint64_t block_bytes_;
    bool is_host_visible_;
    quire_pool_info pool_ = described<quire_pool_info>();
};

// `count` sequences end in a block that a fork shares; each fork adds a token.
class CopyOnWrite {
 public:
    CopyOnWrite(const Geometry &geometry, uint32_t count, const Place &place);
    double seconds(Destination destination);

 private:
    Blocks blocks_;
    std::vector<quire_seq> sequences_;
    std::vector<int32_t> free_;  // blocks of the last call's copies
};

// One sequence of `count` blocks.
class Swap {
 public:
    Swap(const Geometry &geometry, uint32_t count, const Place &place);
    double out_seconds();  // the first time into memory never written
    double in_seconds(Destination destination);

 private:
    Blocks blocks_;
    uint32_t count_;
    quire_seq sequence_ = 0;
};

}  // namespace quire::bench
