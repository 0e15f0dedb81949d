// SPDX-License-Identifier: Apache-2.0
//
// ranks_end: when faults have stopped, everything is delivered, a load brings what the stores of
// all ranks have, and all that was opened can be closed.
#include <algorithm>

#include "clock.hpp"
#include "ranks_game.hpp"

namespace sim {
namespace {

constexpr int kMostRounds = 400;

thread_local RanksGame *playing = nullptr;

}  // namespace

// Everything that is on its way arrives, and all that lies in queues runs.
void RanksGame::deliver_all() {
    for (int rounds = 0;; ++rounds) {
        bool is_moving = false;
        while (!leader().unfinished.empty()) finish(QUIRE_STEP_OK);
        for (auto &rank : ranks_) {
            rank->work(0, 0);
            if (rank->number != 0) {
                while (!rank->logs.empty()) apply_log(rank.get());
                while (!rank->unfinished.empty()) finish_follower(rank.get());
                rank->work(0, 0);
                fetch_report(rank.get());
                is_moving |= !rank->reports.empty();
                while (!rank->reports.empty()) deliver_report(rank.get());
            }
            if (rank->attached) {
                const quire_cache_tier_progress progress = rank->poll();
                is_moving |= progress.loads_running != 0 || progress.blocks_queued != 0;
            }
            rank->rethrow();
        }
        if (!is_moving) return;
        // A report that was lost before costs its load the deadline.
        if (rounds > kMostRounds / 4) clock_watch.now_ns += kMillisecond;
        if (rounds < kMostRounds) continue;
        for (auto &rank : ranks_) {
            if (!rank->attached) continue;
            const quire_cache_tier_progress progress = rank->poll();
            if (progress.loads_running + progress.blocks_queued != 0)
                fail("rank-live", "rank %u: %u loads run and %llu blocks are queued for ever",
                     rank->number, progress.loads_running,
                     static_cast<unsigned long long>(progress.blocks_queued));
        }
        fail("rank-live", "reports do not end, and nothing fails");
    }
}

void RanksGame::empty_step() {
    begin({});
    commit({}, {});
    deliver_all();
}

// How many tokens of the prompt every rank's store has, in whole blocks.
uint32_t RanksGame::stored_run(uint32_t tenant, const std::vector<uint32_t> &tokens) {
    const uint32_t size = shape_.block_tokens;
    Digest name = first_name(tenants_[tenant].digest);
    for (uint32_t p = 0;; p += size) {
        if (p + size >= tokens.size()) return p;
        name = next_name(name, &tokens[p]);
        for (auto &rank : ranks_) {
            for (uint32_t g = 0; g < shape_.groups.size(); ++g) {
                if (rank->has(g) && !rank->is_stored(g, name, tenants_[tenant].digest)) return p;
            }
        }
    }
}

quire_seq RanksGame::add_sequence(uint32_t tenant, uint32_t doc) {
    RanksSeq seq;
    seq.tenant = tenant;
    seq.doc = doc;
    quire_seq_desc desc{};
    desc.struct_size = sizeof desc;
    desc.ns = tenants_[tenant].handle;
    leader().need(q_->seq_create(leader().cache, &desc, &seq.handle, &leader().error),
                  "quire_seq_create");
    seqs_.push_back(seq);
    return seq.handle;
}

// What the caches have of a prompt is compared on every rank, by the row that finds it.
void RanksGame::read_cached(uint32_t tenant, uint32_t doc, uint32_t count) {
    RanksItem item;
    item.handle = add_sequence(tenant, doc);
    item.may_load = false;
    for (uint32_t i = 0; i < count; ++i) item.tokens.push_back(token(doc, i));
    const std::vector<quire_step_result> results = begin({item});
    if (results[0].outcome != QUIRE_ITEM_RUN)
        fail("rank-live", "an item alone in the cache does not run");
    commit({item}, results);
    tally_->cached += results[0].hit_tokens;
    deliver_all();
    end(seqs_.size() - 1);
}

// A sequence of other tokens takes every block of the device, and ends.
void RanksGame::fill_device() {
    RanksItem item;
    // The store does not keep what this tenant has.
    item.handle = add_sequence(static_cast<uint32_t>(tenants_.size()) - 1, 0);
    item.may_load = false;
    const uint32_t count = (shape_.blocks - 1) * shape_.block_tokens;
    ++fillers_;
    for (uint32_t i = 0; i < count; ++i) item.tokens.push_back(1000 + fillers_);
    const std::vector<quire_step_result> results = begin({item});
    if (results[0].outcome != QUIRE_ITEM_RUN)
        fail("rank-live", "an item that fits an empty cache does not run (outcome %u)",
             results[0].outcome);
    commit({item}, results);
    deliver_all();
    end(seqs_.size() - 1);
    empty_step();
}

void RanksGame::try_prompt(uint32_t tenant, uint32_t doc, uint32_t count) {
    fill_device();
    RanksItem item;
    for (uint32_t i = 0; i < count; ++i) item.tokens.push_back(token(doc, i));
    const uint32_t run = stored_run(tenant, item.tokens);
    item.handle = add_sequence(tenant, doc);
    // A load that continues what the caches have may lose that to its own room, and be a miss.
    uint32_t cached = 0;
    leader().need(q_->prefix_probe(leader().cache, item.handle, item.tokens.data(), count, &cached,
                                   &leader().error),
                  "quire_prefix_probe");
    const uint64_t shorts = leader().stats().loads_short;
    std::vector<quire_step_result> results;
    for (int tries = 0;; ++tries) {
        results = begin({item});
        const bool is_over = results[0].outcome != QUIRE_ITEM_LOADING;
        commit({item}, results);
        deliver_all();
        if (is_over) break;
        if (tries == 3) fail("rank-live", "an item still loads, and its load has ended");
    }
    if (results[0].outcome != QUIRE_ITEM_RUN)
        fail("rank-live", "an item alone in the cache does not run");
    const bool has_window = std::any_of(shape_.groups.begin(), shape_.groups.end(),
                                        [](const RankGroup &g) { return g.window != 0; });
    const bool is_wrong = std::any_of(ranks_.begin(), ranks_.end(),
                                      [](const auto &rank) { return rank->store->has_wrong; });
    const uint32_t least = std::max(desc_.min_load_tokens, shape_.block_tokens);
    const bool is_short = leader().stats().loads_short != shorts;
    if (!has_window && !is_wrong && !is_short && cached == 0 && run >= least) {
        ++tally_->brought;
        if (results[0].hit_tokens < run)
            fail("rank-lost", "%u tokens are found; the stores of all ranks have %u",
                 results[0].hit_tokens, run);
    }
    end(seqs_.size() - 1);
}

// Nothing is open any more, and every rank has its tier.
void RanksGame::settle() {
    for (auto &rank : ranks_) {
        rank->store->be_good();
        if (rank->leaving && !rank->detach(UINT64_MAX))
            fail("rank-live", "a tier cannot be detached though nothing fails");
        if (!rank->attached) attach(rank->number);
    }
    deliver_all();
    while (!seqs_.empty()) end(0);
    empty_step();
}

void RanksGame::conclude() {
    is_calm_ = true;
    settle();
    check_all();
    const uint32_t most = std::min((shape_.blocks - 1) * shape_.block_tokens * 2 / 3, 48u);
    for (uint32_t tenant = 0; tenant < tenants_.size(); ++tenant)
        for (uint32_t doc = 0; doc < documents_; ++doc) read_cached(tenant, doc, most);
    for (uint32_t tenant = 0; tenant < tenants_.size(); ++tenant) {
        if (!tenants_[tenant].is_named) continue;
        for (uint32_t doc = 0; doc < documents_; ++doc) try_prompt(tenant, doc, most);
    }
    empty_step();
    const quire_cache_tier_stats stats = leader().stats();
    tally_->loads_begun += stats.loads_begun;
    tally_->loads_used += stats.loads_used;
    tally_->loads_missed += stats.loads_missed;
    tally_->loads_late += stats.loads_late;
    tally_->loads_cancelled += stats.loads_cancelled;
    tally_->tokens_loaded += stats.tokens_loaded;
    if (!leader().detach(UINT64_MAX)) fail("rank-live", "the leader's tier cannot be detached");
    empty_step();
    for (auto &rank : ranks_) {
        if (rank->attached && !rank->detach(UINT64_MAX))
            fail("rank-live", "a follower's tier cannot be detached");
        rank->rethrow();
        tally_->values += rank->values;
        tally_->slots += rank->slots_compared;
        tally_->store_faults += rank->store->counts.faults;
    }
    for (size_t r = ranks_.size(); r-- > 0;) ranks_[r]->close();
}

void play_ranks(const quire_api *api, quire_instance *instance, uint64_t seed, uint32_t ops,
                RanksTally *tally) {
    clock_watch.simulated = true;
    clock_watch.now_ns = 1'000 * kMillisecond;
    clock_watch.waited = [] {
        if (playing != nullptr) playing->wait_passes();
    };
    // What a finding leaves half done is left alone.
    auto *game = new RanksGame(api, instance, seed, tally);
    playing = game;
    game->play(ops);
    game->conclude();
    playing = nullptr;
    delete game;
}

}  // namespace sim
