// SPDX-License-Identifier: Apache-2.0
//
// rank_rig: a leader and its followers in one process, engines without a model on the cpu backend,
// each with a store of its own below its cache.
//
// K and V of a token in a layer and KV head are numbers that follow from all tokens up to it and
// the tenant, so that any block of any rank which is not what it should be shows. Each rank writes
// and compares the layers and heads that it holds. What goes from one rank to another, logs and
// reports, waits in lists until the test delivers it.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/device/cpu_cache.hpp"
#include "tests/place.hpp"
#include "tests/tiers/stub_store.hpp"

namespace quire::test {

using Tokens = std::vector<uint32_t>;
using Bytes = std::vector<uint8_t>;

// What a shard holds, as in quire_shard_desc; 0 counts: all.
struct Cut {
    uint32_t layer_begin = 0;
    uint32_t layer_count = 0;
    uint32_t head_begin = 0;
    uint32_t head_count = 0;
};

struct RanksShape {
    std::vector<std::vector<Cut>> ranks;  // their shards; the first leads
    uint32_t blocks = 33;                 // the null block included
    uint32_t host_blocks = 32;
    uint32_t layers = 2;  // of the first group
    uint32_t heads = 2;
    uint32_t window = 0;  // of a second group of one layer; 0: there is none
    uint32_t leader_flags = QUIRE_CACHE_AUDIT;
};

inline const std::vector<std::vector<Cut>> kByHeads = {{{0, 0, 0, 1}}, {{0, 0, 1, 1}}};

// A log with what the engine sends beside it.
struct Sent {
    struct Row {
        quire_seq seq;
        uint32_t first;
        Tokens tokens;  // all up to the row's end
        uint64_t seed;
    };
    Bytes log;
    std::vector<Row> rows;
};

// One rank, with one queue per shard.
class Rank {
 public:
    static constexpr uint32_t kBlockTokens = 8;
    static constexpr uint32_t kDim = 8;

    Rank(quire_instance *of, const RanksShape &shape, uint32_t rank);
    ~Rank();
    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;

    // Opens a stub store, or with `name` another one, and puts it below the cache.
    void open_store(const char *name = nullptr);
    void close_store();
    quire_status attach(uint32_t write = QUIRE_TIER_WRITE_THROUGH);
    quire_status detach() {
        attached = false;
        return api.cache_detach_tier_wait(cache, UINT64_MAX, &error);
    }
    void sync();
    // Writes this rank's part of the rows, and compares what was found before them.
    void compute(quire_step step, const std::vector<Sent::Row> &rows);
    // Followers: applies the oldest log that has arrived, and computes. False: none has.
    bool apply();
    // A log, without computing or finishing; for tests that hold a queue.
    quire_status try_apply(const Bytes &log);
    // Moves to another device of the backend. No step may be unfinished.
    void migrate(uint32_t flags);
    // A report for the leader; empty: nothing is to be reported.
    Bytes report();
    quire_cache_tier_progress poll();
    quire_cache_tier_stats stats();
    void check() { ASSERT_EQ(api.cache_check(cache, &error), QUIRE_OK) << error.message; }
    bool says(const char *words) const {
        return std::string(error.message).find(words) != std::string::npos;
    }

    const quire_api &api = library();
    quire_error error{};
    quire_instance *instance;
    uint32_t number;
    RanksShape shape;
    std::vector<quire_device *> devices;
    std::vector<quire_queue *> queues;
    quire_cache *cache = nullptr;
    quire_tier *tier = nullptr;
    StubControl *stub = nullptr;
    bool attached = false;
    uint64_t load_timeout_ns = UINT64_MAX / 4;
    uint64_t max_write_bytes = 0;
    std::deque<Sent> logs;  // that have arrived
    quire_step applied = 0;
    uint64_t wrong_rows = 0;

 private:
    void each_row(quire_step step, const Sent::Row &row, uint32_t begin, uint32_t end, bool writes);
};

class Ranks {
 public:
    explicit Ranks(const RanksShape &shape);
    ~Ranks();
    Ranks(const Ranks &) = delete;
    Ranks &operator=(const Ranks &) = delete;

    Rank &leader() { return *ranks[0]; }
    Rank &follower(size_t i = 0) { return *ranks[i + 1]; }
    size_t follower_count() const { return ranks.size() - 1; }
    void attach_all(uint32_t write = QUIRE_TIER_WRITE_THROUGH);
    // The leader's first; then a log with what it wrote; then the followers'.
    void detach_all();

    quire_namespace tenant(const char *key);
    quire_seq create(quire_namespace ns = 0);
    void end(quire_seq seq);
    void truncate(quire_seq seq, uint32_t count);
    struct Item {
        quire_seq seq;
        Tokens tokens;  // added by the item
        uint32_t flags = QUIRE_ITEM_MAY_LOAD;
        uint32_t max_compute = 0;
        uint32_t max_hit_tokens = 0;
    };
    quire_status begin(const std::vector<Item> &items, uint32_t preempt = 0);
    // Commits, computes on the leader and sends the log.
    void commit();
    void finish(uint32_t outcome = QUIRE_STEP_OK);
    void abort();
    // Followers apply all logs that have arrived; the leader gets all reports.
    void deliver_logs();
    void deliver_reports();
    // A step without items.
    void empty_step();
    // One item, in a step of its own, delivered everywhere; its result.
    quire_step_result run(quire_seq seq, const Tokens &tokens,
                          uint32_t flags = QUIRE_ITEM_MAY_LOAD);
    // Sends the item until it does not load any more, delivering everything.
    quire_step_result run_to_the_end(quire_seq seq, const Tokens &tokens);
    // A new sequence finds `blocks` blocks of the prompt, right on every rank.
    void expect_found(const Tokens &prompt, uint32_t blocks);
    // Computes the prompt in a sequence that ends then.
    void compute(const Tokens &tokens, quire_namespace ns = 0);
    // Goes on until everything that the leader ordered is in the stores.
    void settle();
    void evict_all();
    void check();
    uint64_t wrong_rows() const;
    // Reads all values of a detached rank's store. Those that hold other K and V than a prefix that
    // was computed, with the tokens and at the place that the value names, count as wrong.
    uint64_t wrong_values(Rank *rank, uint64_t *values);

    const quire_api &api = library();
    quire_error error{};
    quire_instance *instance = nullptr;
    std::vector<std::unique_ptr<Rank>> ranks;
    quire_step step = 0;
    std::vector<quire_step_result> results;

 private:
    struct Known {
        Tokens tokens;
        uint64_t seed;
    };
    Known &of(quire_seq seq);
    void note_computed(const Sent::Row &row);

    std::vector<Item> items_;
    std::map<quire_seq, Known> known_;
    std::map<quire_namespace, uint64_t> tenants_;
    // By the index of a block and its tokens: the seed and all tokens of sequences that had it.
    std::map<std::pair<uint64_t, Tokens>, std::vector<std::pair<uint64_t, Tokens>>> computed_;
};

inline Tokens rank_prompt(uint32_t seed, uint32_t count) {
    Tokens out;
    for (uint32_t i = 0; i < count; ++i) out.push_back((seed * 7919 + i * 31 + i / 7) % 50'000);
    return out;
}

}  // namespace quire::test
