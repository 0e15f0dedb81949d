// SPDX-License-Identifier: Apache-2.0
//
// An engine that plans step n + 1 while step n still runs: the last token of each sequence is
// unknown when it is added, and set one step later. Also such an engine when one step fails.

#include <map>

#include "manager.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kSteps = 14;

// The token the model would sample for a sequence at a position; `who` keeps contents apart.
quire_token sampled(uint32_t who, uint32_t position) { return 1000 * (who + 1) + position; }

class Engine {
 public:
    enum : uint32_t { first, second, taker, forked, kPlayers };

    // Step `failing` (1 is the first) fails; 0: every step succeeds.
    explicit Engine(uint32_t failing, bool synchronous = false)
        : failing_(failing), synchronous_(synchronous) {
        for (uint32_t i = 0; i < 3; ++i) seqs_[i] = m.sequence();
    }

    void run() {
        for (uint32_t step = 1; step <= kSteps; ++step) {
            begin(step);
            if (synchronous_)
                finish_oldest();
            else if (step > 1)
                finish_oldest();
        }
        while (!unfinished_.empty()) finish_oldest();
        catch_up();
    }

    // All that is computed in the end, and the prefix that each sequence would hit.
    std::string result() {
        std::string out;
        for (uint32_t who = 0; who < kPlayers; ++who) {
            quire_seq_info info = m.info(seqs_[who]);
            out += std::to_string(info.known_tokens) + "/" + std::to_string(info.computed_tokens) +
                   "/" + std::to_string(info.flags) + "/" +
                   std::to_string(m.table(seqs_[who]).size()) + " hits " +
                   std::to_string(m.probe(joined(tokens_[who], {1}))) + "\n";
        }
        return out;
    }

    Manager m{{.blocks = 64, .groups = {{0, 64}, {12, 64}}}};

 private:
    struct Unfinished {
        quire_step step = 0;
        uint32_t number = 0;
        std::map<uint32_t, uint32_t> computed_before;  // by player that is in the step
    };
    // A token that is added as unknown and becomes known when the step that samples it finishes.
    struct Pending {
        uint32_t who, position, arrives_with;
    };

    void begin(uint32_t number) {
        Unfinished now;
        now.number = number;
        now.step = m.begin();
        if (number == 1) {
            prompt(&now, first, tokens_from(1, 19));
            prompt(&now, second, tokens_from(500, 10));
        } else {
            for (uint32_t who = 0; who < kPlayers; ++who) {
                if (!tokens_[who].empty()) decode(&now, who);
            }
            if (number == 4) prompt(&now, taker, joined(tokens_from(1, 19), {7, 8}));
        }
        m.commit();
        unfinished_.push_back(now);
        if (number == 7) fork();
    }

    // Forks at all computed tokens, two unfinished steps included; the last is still unknown.
    void fork() {
        seqs_[forked] = m.fork(seqs_[first], m.info(seqs_[first]).computed_tokens);
        tokens_[forked] = tokens_[first];
        std::vector<Pending> inherited;
        for (Pending pending : pending_) {
            if (pending.who == first)
                inherited.push_back({forked, pending.position, pending.arrives_with});
        }
        pending_.insert(pending_.end(), inherited.begin(), inherited.end());
    }

    void add(Unfinished *now, uint32_t who, const Tokens &tokens) {
        quire_step_result result = m.add(seqs_[who], tokens);
        EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
        now->computed_before[who] = result.first_position;  // hits of earlier steps stay
    }
    void prompt(Unfinished *now, uint32_t who, const Tokens &tokens) {
        add(now, who, tokens);
        tokens_[who] = tokens;
    }
    // Adds the token that the previous step samples; an asynchronous step reads it on the device.
    void decode(Unfinished *now, uint32_t who) {
        auto position = static_cast<uint32_t>(tokens_[who].size());
        quire_token token = sampled(who == forked ? first : who, position);
        add(now, who, {synchronous_ ? token : QUIRE_TOKEN_UNKNOWN});
        tokens_[who].push_back(token);
        if (!synchronous_) pending_.push_back({who, position, now->number - 1});
    }

    void finish_oldest() {
        Unfinished old = unfinished_.front();
        unfinished_.erase(unfinished_.begin());
        bool fails = old.number == failing_;
        m.finish(old.step, fails ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
        if (fails) expect_taken_back(old);
        for (const Pending &pending : pending_) {
            if (pending.arrives_with != old.number) continue;
            m.set_tokens(seqs_[pending.who], pending.position,
                         {tokens_[pending.who][pending.position]});
        }
        std::erase_if(pending_, [&](const Pending &p) { return p.arrives_with == old.number; });
    }

    void expect_taken_back(const Unfinished &failed) {
        for (auto [who, before] : failed.computed_before) {
            quire_seq_info info = m.info(seqs_[who]);
            EXPECT_LE(info.computed_tokens, before) << "player " << who;
            EXPECT_NE(info.flags & QUIRE_SEQ_LOST, 0u) << "player " << who;
            EXPECT_EQ(info.known_tokens, tokens_[who].size()) << "known tokens stay known";
        }
        if (failed.number == 1) {
            EXPECT_EQ(m.probe(tokens_from(1, 20)), 0u) << "withdrawn";
        }
    }

    // Sequences that lost tokens compute them again, without new tokens.
    void catch_up() {
        for (quire_seq seq : seqs_) {
            if (m.info(seq).computed_tokens < m.info(seq).known_tokens) m.compute(seq, {});
        }
    }

    uint32_t failing_;
    bool synchronous_;
    quire_seq seqs_[kPlayers] = {};
    Tokens tokens_[kPlayers];
    std::vector<Unfinished> unfinished_;
    std::vector<Pending> pending_;
};

std::string result_of(uint32_t failing, bool synchronous = false) {
    Engine engine(failing, synchronous);
    engine.run();
    return engine.result();
}

TEST(Async, engine_one_step_ahead_ends_where_a_synchronous_one_does) {
    std::string ahead = result_of(0);
    EXPECT_EQ(ahead, result_of(0, true));
    EXPECT_NE(ahead.find("32/32/0/8 hits 32"), std::string::npos) << ahead;
}

TEST(Async, step_that_fails_is_taken_back_and_computed_again_wherever_it_stands) {
    const std::string without = result_of(0);
    for (uint32_t failing = 1; failing <= kSteps; ++failing) {
        SCOPED_TRACE("step " + std::to_string(failing));
        EXPECT_EQ(result_of(failing), without);
        EXPECT_EQ(result_of(failing, true), without);
    }
}

TEST(Async, taker_of_what_a_failed_step_computed_is_lost) {
    Manager m;
    quire_seq writer = m.sequence(), reader = m.sequence(), stranger = m.sequence();
    m.begin();
    m.add(writer, tokens_from(1, 9));
    m.add(stranger, tokens_from(100, 9));
    quire_step failing = m.commit();
    m.begin();
    EXPECT_EQ(m.add(reader, tokens_from(1, 10)).hit_tokens, 8u);
    quire_step next = m.commit();
    m.finish(failing, QUIRE_STEP_FAILED);
    m.finish(next);
    EXPECT_NE(m.info(reader).flags & QUIRE_SEQ_LOST, 0u);
    EXPECT_EQ(m.info(reader).computed_tokens, 0u);
    EXPECT_EQ(m.info(reader).known_tokens, 10u);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 0u) << "published blocks are withdrawn";
    EXPECT_EQ(m.stats().sequences_lost, 1u) << "in addition to those of the step itself";
}

TEST(Async, drafts_are_judged_while_the_next_step_runs) {
    Manager m;
    quire_seq drafting = m.sequence(), other = m.sequence();
    m.compute(drafting, tokens_from(1, 6));
    m.begin();
    m.add(drafting, {7, 8, 90, 91}, {.drafts = 3});
    quire_step judging = m.commit();
    m.begin();
    m.add(other, tokens_from(200, 5));
    quire_step next = m.commit();
    ASSERT_EQ(m.api().seq_accept(m.cache(), drafting, 1, m.error()), QUIRE_OK) << m.message();
    m.finish(judging);
    EXPECT_EQ(m.info(drafting).known_tokens, 8u);
    EXPECT_EQ(m.info(drafting).computed_tokens, 8u);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u) << "the accepted one fills a block";
    m.finish(next);
    m.compute(drafting, {9});
    EXPECT_EQ(m.table(drafting).size(), 3u);
}

TEST(Async, drafts_of_a_failed_step_are_forgotten_whether_judged_or_not) {
    for (bool judged : {false, true}) {
        Manager m;
        quire_seq seq = m.sequence();
        m.compute(seq, tokens_from(1, 6));
        m.begin();
        m.add(seq, {7, 8, 90, 91}, {.drafts = 3});
        quire_step failing = m.commit();
        if (judged) {
            ASSERT_EQ(m.api().seq_accept(m.cache(), seq, 2, m.error()), QUIRE_OK);
        }
        m.finish(failing, QUIRE_STEP_FAILED);
        EXPECT_EQ(m.info(seq).computed_tokens, 6u);
        EXPECT_EQ(m.info(seq).draft_tokens, 0u);
        EXPECT_EQ(m.info(seq).known_tokens, judged ? 9u : 7u) << "accepted tokens are known";
        m.compute(seq, {});
    }
}

}  // namespace
