// SPDX-License-Identifier: Apache-2.0
//
// A leader's log and its bookkeeping-only followers: tables, lengths and batches equal the leader's
// after every step; a damaged, repeated, missing or foreign log is refused and changes nothing.

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "core/replica/log.hpp"
#include "manager.hpp"
#include "tests/effort.hpp"

namespace {

using namespace quire::test;

using Log = std::vector<uint8_t>;

CacheOptions small_cache(uint32_t flags, uint32_t blocks = 20) {
    CacheOptions options;
    options.blocks = blocks;
    options.host_blocks = 9;
    options.max_sequences = 12;
    options.flags = flags;
    options.groups = {GroupOptions{}, GroupOptions{6, 0}};
    return options;
}

quire_batch *make_batch(Manager &m) {
    auto desc = described<quire_batch_desc>();
    desc.max_rows = 12;
    desc.max_blocks_per_row = 16;
    desc.max_query_tokens = 128;
    desc.views = QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_SLOTS | QUIRE_VIEW_LENGTHS |
                 QUIRE_VIEW_POSITIONS | QUIRE_VIEW_CU_Q;
    quire_batch *batch = nullptr;
    EXPECT_GE(m.api().batch_create(m.cache(), &desc, &batch, m.error()), 0) << m.message();
    return batch;
}

// The bytes of a batch's views, including padding.
std::string batch_bytes(Manager &m, quire_batch *batch) {
    std::string out;
    for (uint32_t g = 0; g < 2; ++g) {
        auto v = described<quire_batch_views>();
        EXPECT_GE(m.api().batch_get_views(batch, g, 0, &v, m.error()), 0) << m.message();
        auto add = [&](uint64_t at, uint64_t bytes) {
            out.append(reinterpret_cast<const char *>(at), bytes);
        };
        add(v.block_table, 4 * 12 * 16);
        add(v.slots, 8 * 128);
        add(v.lengths, 4 * 12);
        add(v.positions, 4 * 128);
        add(v.cu_q, 4 * 13);
    }
    return out;
}

class Follower {
 public:
    explicit Follower(const CacheOptions &options) : m(options), batch(make_batch(m)) {}
    ~Follower() { m.api().batch_destroy(batch, nullptr); }

    quire_status apply(const Log &log, uint64_t tag = 0) {
        auto desc = described<quire_step_desc>();
        desc.queue_tag = tag;
        return m.api().log_apply(m.cache(), log.data(), log.size(), &desc, batch, &step, m.error());
    }
    void finish() {
        EXPECT_EQ(m.api().step_finish(m.cache(), step, nullptr, QUIRE_STEP_OK, m.error()), QUIRE_OK)
            << m.message();
    }
    quire_status take(const Log &log) {
        quire_status status = apply(log);
        if (status >= 0) finish();
        return status;
    }
    std::string words() { return m.message(); }

    Manager m;
    quire_batch *batch;
    quire_step step = 0;
};

Log log_of(Manager &m, quire_step step) {
    uint64_t size = 0;
    EXPECT_EQ(m.api().step_log(m.cache(), step, nullptr, 0, &size, m.error()), QUIRE_S_INCOMPLETE);
    Log log(size);
    EXPECT_EQ(m.api().step_log(m.cache(), step, log.data(), size, &size, m.error()), QUIRE_OK)
        << m.message();
    EXPECT_EQ(size, log.size());
    return log;
}

// The infos and tables that a cache reports for sequences.
std::string describe(Manager &m, const std::vector<quire_seq> &seqs) {
    std::string out;
    for (quire_seq seq : seqs) {
        auto info = described<quire_seq_info>();
        if (m.api().seq_get_info(m.cache(), seq, &info, m.error()) < 0) {
            out += "gone; ";
            continue;
        }
        for (uint32_t value :
             {info.flags & ~uint32_t{QUIRE_SEQ_IN_STEP}, info.known_tokens, info.computed_tokens,
              info.draft_tokens, info.lookahead_tokens, info.blocks_held, info.preemptions}) {
            out += std::to_string(value) + " ";
        }
        for (uint32_t g = 0; g < 2; ++g) {
            int32_t ids[64] = {};
            uint32_t count = 0;
            m.api().step_blocks(m.cache(), 0, seq, g, 0, ids, 64, &count, m.error());
            for (uint32_t i = 0; i < count; ++i) out += std::to_string(ids[i]) + ",";
            out += " ";
        }
        out += "; ";
    }
    return out;
}

// A leader under random traffic, with the log of every step.
class Traffic {
 public:
    explicit Traffic(uint32_t seed, uint32_t blocks = 20)
        : m(small_cache(QUIRE_CACHE_LOG, blocks)), batch_(make_batch(m)), random_(seed) {}
    ~Traffic() { m.api().batch_destroy(batch_, nullptr); }

    Log step() {
        change();
        auto desc = described<quire_step_desc>();
        desc.flags = QUIRE_STEP_MAY_PREEMPT;
        desc.preempt = below(2) != 0 ? QUIRE_PREEMPT_SWAP : QUIRE_PREEMPT_RECOMPUTE;
        std::vector<quire_step_item> items;
        Tokens tokens;
        for (const Live &one : live_) {
            if (below(3) == 0) continue;
            quire_step_item item{};
            item.seq = one.seq;
            item.token_offset = static_cast<uint32_t>(tokens.size());
            item.token_count = 1 + below(6);
            if (below(4) == 0) item.draft_count = 1 + below(item.token_count);
            if (below(4) == 0) item.lookahead = below(4);
            for (uint32_t k = 0; k < item.token_count; ++k) tokens.push_back(below(3));
            items.push_back(item);
        }
        accept(items);
        std::vector<quire_step_result> results(items.size());
        quire_step step = 0;
        EXPECT_GE(m.api().step_begin(m.cache(), &desc, items.data(),
                                     static_cast<uint32_t>(items.size()), sizeof(quire_step_item),
                                     tokens.data(), static_cast<uint32_t>(tokens.size()),
                                     results.data(), sizeof(quire_step_result), &step, m.error()),
                  0)
            << m.message();
        if (!items.empty() && below(5) == 0) drop(step, items);
        EXPECT_GE(m.api().step_commit(m.cache(), step, batch_, m.error()), 0) << m.message();
        Log log = log_of(m, step);
        at_commit = describe(m, seqs()) + batch_bytes(m, batch_);
        uint32_t outcome = below(10) == 0 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK;
        m.finish(step, outcome);
        return log;
    }
    std::vector<quire_seq> seqs() const {
        std::vector<quire_seq> out = ended_;
        for (const Live &one : live_) out.push_back(one.seq);
        return out;
    }

    Manager m;
    std::string at_commit;  // of the last step: sequences and batch

 private:
    struct Live {
        quire_seq seq;
    };

    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
    uint32_t size() const { return static_cast<uint32_t>(live_.size()); }

    void change() {
        if (size() < 8 && below(3) != 0) live_.push_back({m.sequence()});
        if (size() > 0 && size() < 10 && below(4) == 0) {
            quire_seq child = 0, parent = live_[below(size())].seq;
            uint32_t known = m.info(parent).known_tokens;
            if (m.api().seq_fork(m.cache(), parent, below(known + 1), &child, m.error()) >= 0) {
                m.adopt(child);
                live_.push_back({child});
            }
        }
        if (size() > 2 && below(5) == 0) end(below(size()));
        if (size() > 0 && below(6) == 0) {
            quire_seq seq = live_[below(size())].seq;
            m.api().seq_truncate(m.cache(), seq, below(m.info(seq).known_tokens + 1), m.error());
        }
        for (uint32_t i = 0; i < size();) {
            m.info(live_[i].seq).known_tokens > 45 ? end(i) : void(++i);
        }
        if (below(40) == 0) {
            EXPECT_GE(m.api().cache_reset(m.cache(), m.error()), 0);
        }
    }
    void end(uint32_t i) {
        m.end(live_[i].seq);
        if (ended_.size() == 3) ended_.erase(ended_.begin());
        ended_.push_back(live_[i].seq);
        live_.erase(live_.begin() + i);
    }
    void accept(const std::vector<quire_step_item> &items) {
        for (const quire_step_item &item : items) {
            quire_seq_info info = m.info(item.seq);
            if (info.draft_tokens == 0) continue;
            EXPECT_GE(
                m.api().seq_accept(m.cache(), item.seq, below(info.draft_tokens + 1), m.error()), 0)
                << m.message();
        }
    }
    void drop(quire_step step, const std::vector<quire_step_item> &items) {
        quire_seq dropped[16];
        uint32_t count = 0;
        m.api().step_drop(m.cache(), step, items[below(static_cast<uint32_t>(items.size()))].seq,
                          dropped, 16, &count, m.error());
    }

    quire_batch *batch_;
    std::mt19937 random_;
    std::vector<Live> live_;
    std::vector<quire_seq> ended_;
};

TEST(Log, followers_have_the_leaders_tables_lengths_and_batches_after_every_step) {
    quire_cache_stats total{};
    for (uint32_t seed = 1; seed <= 30; ++seed) {
        Traffic leader(seed);
        Follower first(small_cache(QUIRE_CACHE_FOLLOWER)),
            second(small_cache(QUIRE_CACHE_FOLLOWER));
        for (int i = 0; i < 120; ++i) {
            Log log = leader.step();
            for (Follower *follower : {&first, &second}) {
                ASSERT_EQ(follower->apply(log), QUIRE_OK) << follower->words();
                ASSERT_EQ(describe(follower->m, leader.seqs()) +
                              batch_bytes(follower->m, follower->batch),
                          leader.at_commit)
                    << "seed " << seed << " step " << i;
                follower->finish();
                follower->m.check();
            }
            quire_cache_stats of_follower = first.m.stats();
            EXPECT_EQ(of_follower.steps, leader.m.stats().steps);
        }
        quire_cache_stats stats = leader.m.stats();
        total.copies_on_write += stats.copies_on_write;
        total.blocks_swapped_in += stats.blocks_swapped_in;
        total.preemptions_recompute += stats.preemptions_recompute;
        total.forks += stats.forks;
        total.prefix_cache_hits += stats.prefix_cache_hits;
        total.evictions += stats.evictions;
    }
    EXPECT_GT(total.copies_on_write, 100u);
    EXPECT_GT(total.blocks_swapped_in, 100u);
    EXPECT_GT(total.preemptions_recompute, 100u);
    EXPECT_GT(total.forks, 100u);
    EXPECT_GT(total.prefix_cache_hits, 100u);
    EXPECT_GT(total.evictions, 100u);
}

TEST(Log, copies_are_the_leaders) {
    Manager leader(small_cache(QUIRE_CACHE_LOG));
    Follower follower(small_cache(QUIRE_CACHE_FOLLOWER));
    quire_seq parent = leader.sequence();
    leader.begin();
    leader.add(parent, tokens_from(1, 6));
    quire_step step = leader.commit();
    ASSERT_EQ(follower.take(log_of(leader, step)), QUIRE_OK) << follower.words();
    leader.finish(step);
    quire_seq child = leader.fork(parent, 6);
    leader.begin();
    leader.add(child, {9});
    step = leader.commit();
    ASSERT_EQ(follower.apply(log_of(leader, step)), QUIRE_OK) << follower.words();
    auto copies = follower.m.copies(follower.step), expected = leader.copies(step);
    ASSERT_EQ(copies.size(), 2u);  // one per group
    EXPECT_EQ(std::memcmp(copies.data(), expected.data(), 2 * sizeof copies[0]), 0);
    follower.finish();
    leader.finish(step);
}

TEST(Log, a_flipped_byte_is_refused_and_changes_nothing) {
    Traffic leader(3);
    Follower follower(small_cache(QUIRE_CACHE_FOLLOWER));
    std::mt19937 random(5);
    for (int i = 0; i < 40; ++i) {
        Log log = leader.step();
        std::string before = describe(follower.m, leader.seqs());
        bool exhaustive = i < 4;
        size_t tries = exhaustive ? log.size() : 40;
        for (size_t k = 0; k < tries; ++k) {
            size_t at = exhaustive ? k : random() % log.size();
            Log damaged = log;
            damaged[at] ^= static_cast<uint8_t>(1u << random() % 8);
            ASSERT_EQ(follower.take(damaged), QUIRE_E_ARG) << "byte " << at;
            ASSERT_NE(follower.words().find("damaged log"), std::string::npos) << follower.words();
        }
        for (size_t size : {size_t{0}, size_t{79}, log.size() / 2, log.size() - 1}) {
            ASSERT_EQ(follower.take(Log(log.begin(), log.begin() + static_cast<long>(size))),
                      QUIRE_E_ARG);
        }
        Log longer = log;
        longer.push_back(0);
        ASSERT_EQ(follower.take(longer), QUIRE_E_ARG);
        ASSERT_EQ(describe(follower.m, leader.seqs()), before);
        follower.m.check();
        ASSERT_EQ(follower.take(log), QUIRE_OK) << follower.words();
    }
}

// A forged log with a correct checksum is also refused, or leads to another digest; it never causes
// an access out of bounds.
TEST(Log, forged_numbers_are_refused) {
    uint32_t refused = 0, stopped = 0;
    const auto all = quire::tests::seeds(1, {.all = 200, .usual = 40, .few = 8});
    std::mt19937 random(static_cast<uint32_t>(all.front()));
    for (uint64_t seed : all) {
        Traffic leader(static_cast<uint32_t>(seed));
        std::vector<Log> logs;
        for (int i = 0; i < 12; ++i) logs.push_back(leader.step());
        for (int attempt = 0; attempt < 25; ++attempt) {
            Follower follower(small_cache(QUIRE_CACHE_FOLLOWER));
            size_t forged_at = 1 + random() % (logs.size() - 1);
            for (size_t i = 0; i < forged_at; ++i) ASSERT_EQ(follower.take(logs[i]), QUIRE_OK);
            Log forged = logs[forged_at];
            size_t word = 14 + random() % (forged.size() / 4 - 14);  // from `order` on
            const uint32_t any = static_cast<uint32_t>(random() % 64);
            const uint32_t values[] = {0, 1, 2, 20, 21, 0x7FFFFFFF, 0xFFFFFFFF, any};
            uint32_t value = values[random() % 8];
            if (std::memcmp(&forged[word * 4], &value, 4) == 0 || word == 14) continue;
            std::memcpy(&forged[word * 4], &value, 4);
            quire::seal(forged.data(), forged.size());
            std::string before = describe(follower.m, leader.seqs());
            quire_status status = follower.take(forged);
            if (status == QUIRE_OK) continue;  // a row, a copy or a mask, which are not state
            EXPECT_TRUE(status == QUIRE_E_ARG || status == QUIRE_E_INTERNAL ||
                        status == QUIRE_E_LIMIT)
                << follower.words();
            ++(status == QUIRE_E_INTERNAL ? stopped : refused);
            EXPECT_EQ(describe(follower.m, leader.seqs()), before);
            follower.m.check();
            if (status != QUIRE_E_INTERNAL) {
                EXPECT_EQ(follower.take(logs[forged_at]), QUIRE_OK) << follower.words();
            }
        }
    }
    EXPECT_GT(4 * refused, 5 * all.size());
    EXPECT_GT(4 * stopped, 5 * all.size());
}

TEST(Log, repeated_missing_and_reordered_logs_are_told_apart) {
    Traffic leader(7);
    Follower follower(small_cache(QUIRE_CACHE_FOLLOWER));
    std::vector<Log> logs;
    for (int i = 0; i < 6; ++i) logs.push_back(leader.step());
    auto refuses = [&](size_t log, const char *words) {
        EXPECT_EQ(follower.take(logs[log]), QUIRE_E_ARG);
        EXPECT_NE(follower.words().find(words), std::string::npos) << follower.words();
    };
    refuses(1, "missing log: number 1 is next, but this is 2");
    ASSERT_EQ(follower.take(logs[0]), QUIRE_OK);
    refuses(0, "repeated log: number 1");
    refuses(3, "missing log: number 2 is next, but this is 4");
    ASSERT_EQ(follower.take(logs[1]), QUIRE_OK);
    ASSERT_EQ(follower.take(logs[2]), QUIRE_OK);
    refuses(1, "repeated log: number 2 was already applied, the last one was 3");
    for (size_t i = 3; i < 6; ++i) EXPECT_EQ(follower.take(logs[i]), QUIRE_OK) << follower.words();
    EXPECT_EQ(describe(follower.m, {}), "");
}

TEST(Log, logs_of_another_leader_or_geometry_are_foreign) {
    Traffic leader(7), other(8);
    Follower follower(small_cache(QUIRE_CACHE_FOLLOWER));
    ASSERT_EQ(follower.take(leader.step()), QUIRE_OK);
    other.step();
    EXPECT_EQ(follower.take(other.step()), QUIRE_E_ARG);
    EXPECT_NE(follower.words().find("foreign log: it comes from another leader"),
              std::string::npos);
    EXPECT_EQ(follower.take(leader.step()), QUIRE_OK);

    Traffic again(7);
    Log log = again.step();
    CacheOptions shapes[4];
    for (CacheOptions &shape : shapes) shape = small_cache(QUIRE_CACHE_FOLLOWER);
    shapes[0].blocks = 21;
    shapes[1].host_blocks = 10;
    shapes[2].max_sequences = 13;
    shapes[3].groups[1].window = 7;
    for (const CacheOptions &shape : shapes) {
        Follower unlike(shape);
        EXPECT_EQ(unlike.take(log), QUIRE_E_ARG);
        EXPECT_NE(unlike.words().find("foreign log: its leader has other groups"),
                  std::string::npos);
    }
}

TEST(Log, a_wrong_digest_is_found_before_anything_is_applied_and_stops_the_follower) {
    Traffic leader(9);
    Follower follower(small_cache(QUIRE_CACHE_FOLLOWER));
    for (int i = 0; i < 8; ++i) ASSERT_EQ(follower.take(leader.step()), QUIRE_OK);
    Log right = leader.step(), wrong = right;
    std::string before = describe(follower.m, leader.seqs());
    wrong[offsetof(quire::LogHeader, digest)] ^= 1;
    quire::seal(wrong.data(), wrong.size());
    EXPECT_EQ(follower.take(wrong), QUIRE_E_INTERNAL);
    EXPECT_NE(follower.words().find("log number 9 leads to a state that differs"),
              std::string::npos);
    EXPECT_EQ(describe(follower.m, leader.seqs()), before);
    follower.m.check();
    EXPECT_EQ(follower.take(right), QUIRE_E_INTERNAL);
    EXPECT_NE(follower.words().find("this follower stopped"), std::string::npos);
}

TEST(Log, a_decoding_sequence_costs_what_is_new_of_it) {
    CacheOptions options;
    options.blocks = 3000;
    options.flags = QUIRE_CACHE_LOG;
    Manager m(options);
    quire_seq seq = m.sequence();
    size_t sizes[2] = {};
    for (size_t &size : sizes) {
        m.begin();
        m.add(seq, tokens_from(0, 4000));
        m.finish(m.commit());
        m.begin();
        m.add(seq, {1});
        quire_step step = m.commit();
        size = log_of(m, step).size();
        m.finish(step);
    }
    EXPECT_EQ(sizes[0], sizeof(quire::LogHeader) + sizeof(quire::LogRow) +
                            sizeof(quire::LogSequence) + sizeof(quire::LogTable) + 4);
    EXPECT_EQ(sizes[1], sizes[0] - 4);  // no new block
}

TEST(Log, a_follower_refuses_to_decide) {
    Traffic leader(1);
    Follower follower(small_cache(QUIRE_CACHE_FOLLOWER));
    ASSERT_EQ(follower.take(leader.step()), QUIRE_OK);
    const quire_api &api = follower.m.api();
    quire_cache *cache = follower.m.cache();
    quire_error *error = follower.m.error();
    auto seq_desc = described<quire_seq_desc>();
    auto ns_desc = described<quire_namespace_desc>();
    auto step_desc = described<quire_step_desc>();
    auto ns_info = described<quire_namespace_info>();
    uint64_t handle = 0;
    uint32_t count = 0;
    auto refused = [&](quire_status status) {
        EXPECT_EQ(status, QUIRE_E_UNSUPPORTED);
        EXPECT_NE(follower.words().find("follows a leader"), std::string::npos) << follower.words();
    };
    refused(api.seq_create(cache, &seq_desc, &handle, error));
    refused(api.seq_end(cache, 1, 0, error));
    refused(api.seq_fork(cache, 1, 0, &handle, error));
    refused(api.seq_truncate(cache, 1, 0, error));
    refused(api.seq_accept(cache, 1, 0, error));
    refused(api.seq_accept_path(cache, 1, nullptr, 0, error));
    refused(api.seq_set_tokens(cache, nullptr, 0, sizeof(quire_token_span), nullptr, 0, error));
    refused(api.prefix_probe(cache, 1, nullptr, 0, &count, error));
    refused(api.namespace_create(cache, &ns_desc, &handle, error));
    refused(api.namespace_destroy(cache, 1, error));
    refused(api.namespace_get_info(cache, 0, &ns_info, error));
    refused(api.cache_reset(cache, error));
    refused(api.step_begin(cache, &step_desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0,
                           nullptr, 0, &handle, error));
    refused(
        api.step_add(cache, 1, nullptr, 0, sizeof(quire_step_item), nullptr, 0, nullptr, 0, error));
    refused(api.step_drop(cache, 1, 1, nullptr, 0, &count, error));
    refused(api.step_preempt(cache, 1, 1, 0, &count, error));
    refused(api.step_preempted(cache, 1, nullptr, 0, sizeof(quire_preemption), &count, error));
    refused(api.step_abort(cache, 1, error));
    refused(api.step_commit(cache, 1, nullptr, error));
    refused(api.step_log(cache, 1, nullptr, 0, &handle, error));
    ASSERT_EQ(follower.apply(leader.step()), QUIRE_OK);
    EXPECT_EQ(api.step_finish(cache, follower.step, nullptr, QUIRE_STEP_FAILED, error),
              QUIRE_E_UNSUPPORTED);
    follower.finish();
}

TEST(Log, only_leaders_write_logs_and_only_followers_apply_them) {
    Manager plain(small_cache(0));
    plain.begin();
    quire_step step = plain.commit();
    uint64_t size = 0;
    EXPECT_EQ(plain.api().step_log(plain.cache(), step, nullptr, 0, &size, plain.error()),
              QUIRE_E_UNSUPPORTED);
    auto desc = described<quire_step_desc>();
    quire_step out = 0;
    EXPECT_EQ(plain.api().log_apply(plain.cache(), "x", 1, &desc, nullptr, &out, plain.error()),
              QUIRE_E_UNSUPPORTED);
    plain.finish(step);
    Manager leader(small_cache(QUIRE_CACHE_LOG));
    step = leader.begin();
    EXPECT_EQ(leader.api().step_log(leader.cache(), step, nullptr, 0, &size, leader.error()),
              QUIRE_E_BUSY);
    leader.abort();
}

// A slot that is named for another sequence, and a handle that belongs to another slot.
TEST(Log, a_follower_takes_exactly_the_leaders_handles) {
    Manager leader(small_cache(QUIRE_CACHE_LOG)), stranger(small_cache(0));
    Follower follower(small_cache(QUIRE_CACHE_FOLLOWER));
    std::vector<quire_seq> seqs;
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 3; ++i) seqs.push_back(leader.sequence());
        leader.begin();
        for (size_t i = seqs.size() - 3; i < seqs.size(); ++i) leader.add(seqs[i], {1, 2});
        quire_step step = leader.commit();
        Log log = log_of(leader, step), forged = log;
        size_t last = log.size() - sizeof(quire::LogSequence);
        for (; std::memcmp(&log[last], &seqs.back(), 8) != 0; --last) continue;
        std::memcpy(&forged[last], &seqs[seqs.size() - 3], 8);
        if (round == 1) std::memcpy(&forged[last], &seqs[2], 8);
        if (round != 0) {
            quire::seal(forged.data(), forged.size());
            quire_status status = follower.take(forged);
            EXPECT_EQ(status, round == 1 ? QUIRE_E_ARG : QUIRE_E_INTERNAL) << follower.words();
            if (round == 2) break;
        }
        ASSERT_EQ(follower.take(log), QUIRE_OK) << follower.words();
        leader.finish(step);
        if (round == 0) leader.end(seqs[1]);
        EXPECT_EQ(describe(follower.m, {stranger.sequence(), seqs[0] + 1000}), "gone; gone; ");
        EXPECT_EQ(describe(follower.m, {seqs[1]}) == "gone; ", round == 1);
        EXPECT_NE(describe(follower.m, {seqs[0]}), "gone; ");
        EXPECT_NE(describe(follower.m, {seqs.back()}), "gone; ");
    }
}

TEST(Log, a_step_that_another_queue_orders_is_finished_first) {
    Manager leader(small_cache(QUIRE_CACHE_LOG));
    Follower follower(small_cache(QUIRE_CACHE_FOLLOWER));
    std::vector<Log> logs;
    for (uint64_t queue : {1u, 2u}) {
        leader.begin({.queue = queue});
        leader.add(leader.sequence(), tokens_from(1, 6));
        quire_step step = leader.commit();
        logs.push_back(log_of(leader, step));
        leader.finish(step);  // done: the second step may take its blocks
    }
    ASSERT_EQ(follower.apply(logs[0], 1), QUIRE_OK);
    quire_step first = follower.step;
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(follower.apply(logs[1], 2), QUIRE_E_BUSY);
        EXPECT_NE(follower.words().find("finish that step first"), std::string::npos);
    }
    follower.step = first;
    follower.finish();
    EXPECT_EQ(follower.apply(logs[1], 2), QUIRE_OK) << follower.words();
    EXPECT_EQ(follower.step, first + 1) << "a refused log used up a handle";
    follower.finish();
}

}  // namespace
