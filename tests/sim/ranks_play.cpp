// SPDX-License-Identifier: Apache-2.0
//
// ranks_play: what happens between the leader's steps: logs and reports arrive, stores answer or
// fail, ranks move, and tiers come and go.
#include <algorithm>

#include "clock.hpp"
#include "ranks_game.hpp"

namespace sim {

void RanksGame::play(uint32_t ops) {
    for (uint32_t i = 0; i < ops; ++i) {
        play_one();
        if (i % 12 == 0) check_all();
        for (auto &rank : ranks_) rank->rethrow();
    }
}

void RanksGame::play_one() {
    const auto count = static_cast<uint32_t>(ranks_.size());
    const uint32_t any = rng_.below(count);
    Rank &follower = *ranks_[1 + rng_.below(count - 1)];
    const uint32_t what = rng_.below(100);
    if (what < 6) return create();
    if (what < 10 && !seqs_.empty()) return end(rng_.below(seqs_.size()));
    if (what < 36) return play_step();
    if (what < 40) return finish(rng_.percent(6) ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
    if (what < 54) return apply_log(&follower);
    if (what < 58) return finish_follower(&follower);
    if (what < 64) return fetch_report(&follower);
    if (what < 70) return deliver_report(&follower);
    if (what < 78)
        return ranks_[any]->work(rng_.percent(40) ? 0 : 1 + rng_.below(12), rng_.below(1000));
    if (what < 86) return poll(ranks_[any].get());
    if (what < 93) return disturb_store(ranks_[any].get());
    if (what < 95) {
        clock_watch.now_ns += rng_.range(1, 150) * kMillisecond;
    } else if (what < 96) {
        leave_or_come(any);
    } else if (what < 98) {
        move(rng_.percent(25) ? &leader() : &follower);
    } else {
        cancel_load();
    }
}

// A log that is damaged or comes too early is refused, and the right one is still accepted.
void RanksGame::refuse_log(Rank *rank) {
    RankLog wrong = *rank->logs.front();
    if (rank->logs.size() > 1 && rng_.percent(50)) {
        wrong = *rank->logs[1];
    } else {
        wrong.bytes[rng_.below(wrong.bytes.size())] ^= static_cast<uint8_t>(1u << rng_.below(8));
    }
    quire_step step = 0;
    const quire_status status = rank->apply(wrong, &step);
    ++tally_->refused;
    if (status != QUIRE_E_ARG && status != QUIRE_E_INCOMPATIBLE)
        fail("rank-refuses", "rank %u answers a wrong log with %d", rank->number, status);
}

void RanksGame::finish_follower(Rank *rank) {
    if (rank->unfinished.empty()) return;
    rank->need(q_->step_finish(rank->cache, rank->unfinished.front(), nullptr, QUIRE_STEP_OK,
                               &rank->error),
               "quire_step_finish");
    rank->unfinished.erase(rank->unfinished.begin());
}

void RanksGame::apply_log(Rank *rank) {
    if (rank->logs.empty()) return;
    if (!is_calm_ && rng_.percent(5)) refuse_log(rank);
    const std::shared_ptr<RankLog> log = rank->logs.front();
    quire_step step = 0;
    quire_status status = rank->apply(*log, &step);
    if (status == QUIRE_E_BUSY || status == QUIRE_E_LIMIT) {
        while (!rank->unfinished.empty()) finish_follower(rank);
        rank->work(0, 0);
        status = rank->apply(*log, &step);
    }
    rank->need(status, "quire_log_apply");
    rank->logs.pop_front();
    ++tally_->logs;
    for (const RankState &wanted : log->states) {
        const RankState own = rank->look(wanted.seq);
        if (own.words == wanted.words) continue;
        size_t at = 0;
        while (at < own.words.size() && at < wanted.words.size() &&
               own.words[at] == wanted.words[at])
            ++at;
        fail("rank-tables", "word %zu of a sequence differs on rank %u after log %u", at,
             rank->number, log->step);
    }
    check_copies(rank, *log, step);
    tally_->partial_followed += log->partial_hits;
    rank->compute(log->step, log->rows);
    rank->unfinished.push_back(step);
    if (is_calm_ || rng_.percent(70)) finish_follower(rank);
}

void RanksGame::fetch_report(Rank *rank) {
    std::vector<uint8_t> report(4096);
    uint64_t size = 0;
    if (rng_.percent(10)) {
        const quire_status status =
            q_->cache_report_loads(rank->cache, nullptr, 0, &size, &rank->error);
        rank->need(status, "quire_cache_report_loads", size != 0 ? QUIRE_S_INCOMPLETE : QUIRE_OK);
    }
    rank->need(
        q_->cache_report_loads(rank->cache, report.data(), report.size(), &size, &rank->error),
        "quire_cache_report_loads");
    if (size == 0) return;
    report.resize(size);
    rank->reports.push_back(std::move(report));
}

void RanksGame::refuse_report(const std::vector<uint8_t> &report) {
    const quire_status status =
        q_->cache_take_report(leader().cache, report.data(), report.size(), &leader().error);
    ++tally_->refused;
    if (status != QUIRE_E_ARG && status != QUIRE_E_INCOMPATIBLE)
        fail("rank-refuses", "the leader answers a wrong report with %d", status);
}

void RanksGame::deliver_report(Rank *rank) {
    if (rank->reports.empty()) return;
    const std::vector<uint8_t> report = std::move(rank->reports.front());
    rank->reports.pop_front();
    if (!is_calm_ && rng_.percent(8)) {
        ++tally_->reports_lost;
        return;
    }
    if (rng_.percent(5)) {
        std::vector<uint8_t> wrong = report;
        wrong[rng_.below(wrong.size())] ^= static_cast<uint8_t>(1u << rng_.below(8));
        refuse_report(wrong);
    }
    leader().need(
        q_->cache_take_report(leader().cache, report.data(), report.size(), &leader().error),
        "quire_cache_take_report");
    ++tally_->reports;
    if (rng_.percent(10)) refuse_report(report);
}

void RanksGame::poll(Rank *rank) {
    if (!rank->attached) return;
    const quire_cache_tier_progress progress = rank->poll();
    const quire_cache_tier_stats stats = rank->stats();
    if (stats.loads_begun != progress.loads_running + progress.loads_ended)
        fail("rank-progress", "rank %u: %llu loads begun; %u run and %llu have ended", rank->number,
             static_cast<unsigned long long>(stats.loads_begun), progress.loads_running,
             static_cast<unsigned long long>(progress.loads_ended));
    const uint64_t ended = stats.loads_missed + stats.loads_failed + stats.loads_late;
    if (rank->number == 0 &&
        stats.loads_used + stats.loads_expired + stats.loads_cancelled + ended > stats.loads_begun)
        fail("rank-progress", "more loads of the leader ended than began");
}

void RanksGame::disturb_store(Rank *rank) {
    const uint32_t hows[] = {kStoreServe, kStoreServe,   kStoreMiss, kStoreDamaged, kStoreFlip,
                             kStoreOther, kStoreForeign, kStoreFull, kStoreFailed,  kStoreCrash,
                             kStoreWipe,  kStoreEvict,   kStoreAuto, kStoreMute,    kStoreSize,
                             kStoreAuto,  kStoreUnknown, kStoreBusy, kStoreRefuse,  kStoreServe};
    const uint32_t how = hows[rng_.below(std::size(hows))];
    const bool is_switch = how == kStoreAuto || how == kStoreMute || how == kStoreUnknown ||
                           how == kStoreBusy || how == kStoreRefuse;
    // Most often the store works.
    uint32_t count = rng_.range(1, 4);
    if (is_switch) count = (how == kStoreAuto) == rng_.percent(60) ? 1 : 0;
    if (how == kStoreWipe && !rng_.percent(20)) return;
    rank->store->act(how, count, rng_.below(1000));
}

// A tier is taken away, or put below the cache again.
void RanksGame::leave_or_come(uint32_t number) {
    Rank &rank = *ranks_[number];
    if (!rank.attached) return attach(number);
    const bool waits = rng_.percent(60);
    if (waits) rank.store->be_good();
    rank.detach(waits ? UINT64_MAX : rng_.below(2) * kMillisecond);
    ++tally_->detaches;
    if (number == 0)
        for (RanksSeq &seq : seqs_) seq.load = {};
    if (!rank.attached && rng_.percent(70)) attach(number);
}

void RanksGame::move(Rank *rank) {
    if (rank->number == 0) {
        while (!rank->unfinished.empty()) finish(QUIRE_STEP_OK);
        for (RanksSeq &seq : seqs_) seq.load = {};
    } else {
        while (!rank->unfinished.empty()) finish_follower(rank);
    }
    rank->work(0, 0);
    rank->rethrow();
    rank->migrate(rng_.percent(50));
    ++(rank->number == 0 ? tally_->leader_moves : tally_->follower_moves);
}

void RanksGame::cancel_load() {
    if (seqs_.empty() || !leader().attached) return;
    RanksSeq &seq = seqs_[rng_.below(seqs_.size())];
    leader().need(q_->cache_cancel_load(leader().cache, seq.handle, &leader().error),
                  "quire_cache_cancel_load");
    seq.load = {};
}

void RanksGame::check_all() {
    for (auto &rank : ranks_) rank->check();
}

void RanksGame::wait_passes() {
    for (auto &rank : ranks_) {
        rank->store->waited();
        rank->work(0, 0);
    }
}

}  // namespace sim
