// SPDX-License-Identifier: Apache-2.0
//
// world: one seed's cache, its follower, and the model of both.
//
// A World plays one schedule. Its methods are in files of one noun each, named below; a check that
// does not hold throws Failure. The model's memory changes when a step is executed, which may be
// long after its commit, in any order of queues.
//
// Threads: none; each World is used by one.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "config.hpp"
#include "content.hpp"
#include "failure.hpp"
#include "records.hpp"
#include "rng.hpp"

namespace hybrid {

// A fault in what the model sees or says, which a check must then report.
enum class Plant {
    nothing,
    copy,    // every third copy that a step lists is not made
    table,   // two entries of every tenth row's table change places
    hit,     // items seem to have found more than they start from
    books,   // one more block seems to be held
    finish,  // steps that failed are finished as if they had not
};

struct Play {
    uint64_t seed = 1;
    uint32_t ops = 200;
    bool trace = false;
    Plant plant = Plant::nothing;
};

using Counts = std::map<std::string, uint64_t>;

struct World {
    World(const quire_api *library, const Play &with, Counts *counted)
        : api(library), play(with), counts(counted), rng(with.seed) {}
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    // schedule.cpp: the whole of a seed.
    void run();

    // world.cpp: the cache and queries.
    void create();
    quire_seq_info info(quire_cache *of, uint64_t sequence);
    quire_seq_info info(uint64_t sequence) { return info(cache, sequence); }
    std::vector<int32_t> table(quire_cache *of, uint64_t step, uint64_t sequence, uint32_t group);
    quire_cache_stats stats();
    std::vector<quire_lease_block> lease_blocks(uint64_t lease, uint32_t group);
    quire_lease_info lease_info(uint64_t lease);
    // All that can be asked. with_lookups: including the counts of prefix lookups.
    std::vector<uint64_t> snapshot(bool with_lookups = true);
    // Fails unless nothing changed since `before`.
    void unchanged(const std::vector<uint64_t> &before, const char *check, const char *call,
                   bool with_lookups = true);
    // Fails unless status is 0.
    void require_ok(const char *check, int32_t status);
    quire_error *message();  // emptied
    void count(const std::string &key) { ++(*counts)[key]; }
    template <class... Parts>
    void trace(const Parts &...parts) {
        if (play.trace) print(join(parts...));
    }
    static void print(const std::string &line);
    std::string refusal(int32_t status) { return status < 0 ? error.message : ""; }

    // steps.cpp: steps in flight, and marks of those that fail.
    void execute(Step &step);  // execution.cpp
    void execute_all();
    void forget_ended();
    uint32_t unfinished();
    bool step_unfinished(uint32_t id);
    int new_mark();
    // True if content with these marks may not be read by the step: a failure was known before.
    bool spoilt(uint64_t marks, uint64_t committed_at) const;
    void finish(size_t index);
    void finish_some(bool all);
    void publish(const Sequence &sequence);
    Block &block(uint32_t group, int32_t number, const char *use);
    // Fails unless the cell holds `wanted`, or what a step that may still fail left.
    void expect(const Cell &cell, uint64_t wanted, const Step &step, const Row &row, uint32_t group,
                int32_t number, uint32_t slot, const char *use, uint64_t *marks);

    // books.cpp: counts and contents at rest.
    void check_contents(const char *when);
    void check_books(const char *when);

    // sequences.cpp
    std::vector<uint64_t> chain(const Sequence &sequence, bool with_lookahead = false) const;
    uint32_t live_sequences() const;
    uint32_t live_namespace();
    uint32_t stream_token(uint32_t stream, uint32_t position) const;
    uint32_t other_token() { return 10 + rng.below(3); }
    std::vector<uint32_t> stream_tokens(uint32_t count, uint32_t stream, double whole);
    int pick_sequence();
    void create_sequence();
    void end_sequence();
    void fork_sequence();
    void truncate_sequence();
    void accept_drafts(Sequence &sequence);
    void name_tokens();
    void cut(Sequence &sequence, uint32_t length);

    // leases.cpp
    std::vector<uint32_t> live_leases() const;
    bool lease_busy(const Lease &lease, uint64_t queue);
    bool touchable(const LeaseBlock &block, const Step &step);
    void use_lease_outside();
    void create_lease();
    void forget_leased(Lease &lease);
    void look_without_step(Lease &lease);
    void use_lease(Step &step);  // leased.cpp: in an open step
    bool take(Step &step, uint32_t lease, const std::vector<uint32_t> &tokens);
    void take_group(Step &step, uint32_t lease, uint32_t group, uint32_t blocks, bool *short_of,
                    const std::vector<uint64_t> &chain);
    void publish_leased(Step &step, uint32_t lease, std::vector<uint32_t> tokens);
    void match_leased(Step &step, uint32_t lease, std::vector<uint32_t> tokens);
    void give_some(Step &step, uint32_t lease);
    void give(Step &step, uint32_t lease, uint32_t group, int32_t number, uint32_t times);
    void pin(Step &step, uint32_t lease);

    // step.cpp
    void play_step();

    // whole.cpp: calls on the whole cache.
    void migrate();
    void evict();
    void use_namespaces();
    void reset();

    const quire_api *api;
    Play play;
    Counts *counts;
    Rng rng;
    Config config;
    quire_error error = made<quire_error>();
    quire_instance *instance = nullptr;
    quire_cache *cache = nullptr;  // null: the library refused the shape
    quire_cache *follower = nullptr;
    std::vector<uint32_t> pool_blocks;  // now; migrations change it
    uint32_t host_blocks = 0;
    std::vector<Memory> memory, host;  // per pool
    std::vector<Namespace> namespaces;
    std::vector<Sequence> sequences;
    std::vector<Lease> leases;
    std::vector<Step> steps;
    uint64_t open_step = 0;
    uint64_t clock = 1;
    uint64_t next_admitted = 1;
    uint32_t next_serial = 1;
    std::vector<uint64_t> failed_at = std::vector<uint64_t>(kMarks, 0);  // per mark; 0: not yet
    std::vector<char> mark_used = std::vector<char>(kMarks, 0);
    int next_mark = 0;
    bool lookahead_serves = true;
    std::set<uint64_t> published;   // prefixes, by their chain's entry
    bool published_exactly = true;  // so far, a prefix is found exactly if it is in `published`
    uint32_t step_count = 0;
    uint64_t row_count = 0;
    uint64_t slots_compared = 0;
    uint64_t copies_seen = 0;
};

}  // namespace hybrid
