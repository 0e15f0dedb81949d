// SPDX-License-Identifier: Apache-2.0
//
// ranks_game: one game of ranks.hpp, and its model of sequences.
//
// Threads: none.  Units: nanoseconds of the simulated clock; tokens.
#pragma once
#include <memory>
#include <vector>

#include "rank.hpp"
#include "ranks.hpp"
#include "rng.hpp"

namespace sim {

constexpr uint64_t kMillisecond = 1000000;

struct RanksLoad {
    bool is_live = false;  // an item of the sequence was LOADING, and has not run since
    uint64_t since_ns = 0;
};

struct RanksSeq {
    quire_seq handle = 0;
    uint32_t tenant = 0;
    uint32_t doc = 0;
    uint32_t wanted = 0;  // tokens of its prompt, once one was sent
    uint32_t computed = 0;
    uint32_t preemptions = 0;
    std::vector<uint32_t> tokens;
    std::vector<uint64_t> chain;
    RanksLoad load;
};

struct RanksItem {
    quire_seq handle = 0;
    std::vector<uint32_t> tokens;
    bool may_load = true;
    uint32_t max_compute = 0;
    uint32_t max_hit = 0;
};

class RanksGame {
 public:
    RanksGame(const quire_api *api, quire_instance *instance, uint64_t seed, RanksTally *tally);

    void play(uint32_t ops);
    // Faults have stopped: all is delivered, loads bring what the stores have, and all ends.
    void conclude();
    // While the library waits.
    void wait_passes();

 private:
    struct Tenant {
        quire_namespace handle = 0;
        bool is_named = true;
        Digest digest{};
    };

    Rank &leader() { return *ranks_[0]; }
    void add_tenants();
    void attach(uint32_t rank);
    uint32_t token(uint32_t doc, uint32_t at) const;
    uint64_t chain_after(const RanksSeq &seq, uint64_t before, uint32_t value) const;
    Digest first_name(const Digest &tenant) const;
    Digest next_name(const Digest &before, const uint32_t *tokens) const;
    void name_blocks(const RanksSeq &seq);
    RanksSeq &find(quire_seq handle);

    void play_one();
    void create();
    void end(size_t at);
    void play_step();
    bool draw_item(const RanksSeq &seq, RanksItem *item);
    std::vector<quire_step_result> begin(const std::vector<RanksItem> &items);
    void judge(const RanksItem &item, const quire_step_result &result);
    void commit(const std::vector<RanksItem> &items, const std::vector<quire_step_result> &results);
    void note_hit(const quire_step_result &result, RankLog *log);
    void check_copies(Rank *rank, const RankLog &log, quire_step step);
    void look_at_sequences(bool may_lose);
    void finish(uint32_t outcome);

    void apply_log(Rank *rank);
    void refuse_log(Rank *rank);
    void finish_follower(Rank *rank);
    void fetch_report(Rank *rank);
    void deliver_report(Rank *rank);
    void refuse_report(const std::vector<uint8_t> &report);
    void poll(Rank *rank);
    void disturb_store(Rank *rank);
    void leave_or_come(uint32_t rank);
    void move(Rank *rank);
    void cancel_load();
    void check_all();

    void settle();
    void empty_step();
    void deliver_all();
    void read_cached(uint32_t tenant, uint32_t doc, uint32_t count);
    quire_seq add_sequence(uint32_t tenant, uint32_t doc);
    void try_prompt(uint32_t tenant, uint32_t doc, uint32_t count);
    uint32_t stored_run(uint32_t tenant, const std::vector<uint32_t> &tokens);
    void fill_device();

    const quire_api *q_;
    Rng rng_;
    RanksTally *tally_;
    RanksShape shape_;
    quire_cache_tier_desc desc_{};  // the leader's
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::vector<Tenant> tenants_;
    std::vector<RanksSeq> seqs_;
    uint32_t documents_ = 1;
    uint32_t turn_ = 0;  // where documents begin to differ
    quire_step step_ = 0;
    uint64_t begun_before_ = 0;  // loads of the leader, before the last begin
    uint32_t fillers_ = 0;
    bool is_calm_ = false;
};

}  // namespace sim
