// SPDX-License-Identifier: Apache-2.0
//
// Every view of a batch compared with step_blocks, while sequences move between rows.
//
// Rows are rewritten only where they changed, so the test makes them change owner, shrink, fork,
// lose their front and come back; a stale entry shows up as a difference.

#include <algorithm>
#include <map>
#include <random>

#include "manager.hpp"
#include "tests/effort.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kRows = 8, kBlocks = 24, kQuery = 64, kContext = 768;
constexpr uint32_t kCross = 80;
constexpr uint32_t kAllViews = (QUIRE_VIEW_SHARED_PREFIX << 1) - 1;

quire_batch_desc all_views(uint32_t flags) {
    auto desc = described<quire_batch_desc>();
    desc.flags = flags;
    desc.max_rows = kRows;
    desc.max_blocks_per_row = kBlocks;
    desc.max_query_tokens = kQuery;
    desc.max_context_tokens = kContext;
    desc.views = kAllViews;
    desc.max_cross_tokens = kCross;
    return desc;
}

template <typename T>
const T *at(uint64_t address) {
    return reinterpret_cast<const T *>(address);
}

struct Placed {
    quire_seq seq = 0;
    uint32_t first = 0, count = 0;
    uint32_t cross = 0, cross_written = 0;
};

// The expected content of each view, computed as plainly as possible.
struct Expected {
    std::vector<Blocks> tables;  // by row
    std::vector<Placed> rows;
    uint32_t block_tokens = 0;
    bool is_cross = false;

    uint32_t length(size_t row) const {
        if (row >= rows.size()) return 0;
        return is_cross ? rows[row].cross : rows[row].first + rows[row].count;
    }
    int64_t slot(size_t row, uint32_t position) const {
        return int64_t{tables[row][position / block_tokens]} * block_tokens +
               position % block_tokens;
    }
};

void expect_tables(const Expected &wanted, const quire_batch_views &views) {
    ASSERT_EQ(views.block_table_stride, kBlocks);
    for (uint32_t row = 0; row < kRows; ++row) {
        Blocks padded = row < wanted.rows.size() ? wanted.tables[row] : Blocks();
        padded.resize(kBlocks, 0);
        const int32_t *got = at<int32_t>(views.block_table) + row * kBlocks;
        ASSERT_EQ(Blocks(got, got + kBlocks), padded) << "row " << row;
    }
}

void expect_csr(const Expected &wanted, const quire_batch_views &views) {
    const auto *indptr = at<int32_t>(views.csr_indptr),
               *last = at<int32_t>(views.csr_last_page_len);
    int32_t end = 0;
    ASSERT_EQ(indptr[0], 0);
    for (uint32_t row = 0; row < kRows; ++row) {
        uint32_t length = wanted.length(row);
        uint32_t blocks = (length + wanted.block_tokens - 1) / wanted.block_tokens;
        for (uint32_t i = 0; i < blocks; ++i) {
            ASSERT_EQ(at<int32_t>(views.csr_indices)[end++], wanted.tables[row][i]);
        }
        ASSERT_EQ(indptr[row + 1], end) << "row " << row;
        uint32_t rest = length == 0 ? 0 : length - (blocks - 1) * wanted.block_tokens;
        ASSERT_EQ(last[row], static_cast<int32_t>(rest)) << "row " << row;
    }
}

void expect_tokens(const Expected &wanted, const quire_batch_views &views, int64_t pad_slot) {
    uint32_t token = 0, context = 0, longest = 0, written = 0;
    ASSERT_EQ(at<int32_t>(views.cu_q)[0], 0);
    for (uint32_t row = 0; row < kRows; ++row) {
        Placed placed = row < wanted.rows.size() ? wanted.rows[row] : Placed();
        longest = std::max(longest, wanted.length(row));
        ASSERT_EQ(at<int32_t>(views.lengths)[row], static_cast<int32_t>(wanted.length(row)));
        for (uint32_t p = placed.first; p < placed.first + placed.count; ++p, ++token) {
            ASSERT_EQ(at<int32_t>(views.positions)[token], static_cast<int32_t>(p));
            ASSERT_EQ(at<int32_t>(views.mask_rows)[token], -1);
            if (wanted.is_cross) continue;
            ASSERT_EQ(at<int64_t>(views.slots)[written++], wanted.slot(row, p));
        }
        for (uint32_t p = 0; wanted.is_cross && p < placed.cross_written; ++p) {
            ASSERT_EQ(at<int64_t>(views.slots)[written++], wanted.slot(row, p));
        }
        for (uint32_t p = 0; p < wanted.length(row); ++p, ++context) {
            ASSERT_EQ(at<int32_t>(views.context_slots)[context], wanted.slot(row, p));
        }
        ASSERT_EQ(at<int32_t>(views.cu_q)[row + 1], static_cast<int32_t>(token));
    }
    ASSERT_EQ(views.query_tokens, token);
    ASSERT_EQ(views.row_count, wanted.rows.size());
    ASSERT_EQ(views.max_length, longest);
    ASSERT_EQ(views.write_tokens, written);
    for (; token < kQuery; ++token) {
        ASSERT_EQ(at<int32_t>(views.positions)[token], 0);
        ASSERT_EQ(at<int32_t>(views.mask_rows)[token], -1);
    }
    for (; written < (wanted.is_cross ? kCross : kQuery); ++written) {
        ASSERT_EQ(at<int64_t>(views.slots)[written], pad_slot);
    }
}

// The number of leading blocks that each row's table shares with the row before it.
void expect_shared(const Expected &wanted, const quire_batch_views &views) {
    auto blocks = [&](size_t row) {
        return (wanted.length(row) + wanted.block_tokens - 1) / wanted.block_tokens;
    };
    for (uint32_t row = 0; row < kRows; ++row) {
        int32_t shared = 0;
        uint32_t most = row != 0 ? std::min(blocks(row), blocks(row - 1)) : 0;
        for (uint32_t i = 0; i < most; ++i, ++shared) {
            if (wanted.tables[row][i] != wanted.tables[row - 1][i]) break;
        }
        ASSERT_EQ(at<int32_t>(views.shared_prefix)[row], shared) << "row " << row;
    }
}

class Wander {
 public:
    Wander(const CacheOptions &options, uint32_t flags) : options_(options), m_(options) {
        pad_slot_ = (flags & QUIRE_BATCH_PAD_NULL_SLOT) != 0 ? 0 : -1;
        quire_batch_desc desc = all_views(flags);
        for (quire_batch *&batch : batches_) {
            EXPECT_EQ(m_.api().batch_create(m_.cache(), &desc, &batch, m_.error()), QUIRE_OK)
                << m_.message();
            for (uint32_t g = 0; g < options_.groups.size(); ++g) expect_views(batch, g, {}, {});
        }
    }
    ~Wander() {
        for (quire_batch *batch : batches_) {
            EXPECT_EQ(m_.api().batch_destroy(batch, m_.error()), QUIRE_OK) << m_.message();
        }
    }
    Wander(const Wander &) = delete;
    Wander &operator=(const Wander &) = delete;

    uint64_t shared() const { return shared_; }
    bool has_cross() const { return options_.groups.back().kind == QUIRE_GROUP_CROSS; }
    void go(uint64_t seed, int steps) {
        dice_.seed(seed);
        for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
            change();
            step(batches_[below(2)]);
        }
    }

 private:
    uint32_t below(uint32_t limit) { return static_cast<uint32_t>(dice_() % limit); }

    void change() {
        if (seqs_.size() < 6) {
            uint32_t cross = has_cross() ? below(10) : 0;
            seqs_.push_back(m_.sequence({.cross_tokens = cross}));
            cross_of_[seqs_.back()] = cross;
        }
        uint32_t who = below(static_cast<uint32_t>(seqs_.size()));
        quire_seq_info info = m_.info(seqs_[who]);
        bool swapped = (info.flags & QUIRE_SEQ_SWAPPED) != 0;
        uint32_t what = below(10);
        if (what == 0 || info.known_tokens > 50) {
            m_.end(seqs_[who]);
            seqs_.erase(seqs_.begin() + who);
        } else if (what == 1 && !swapped && seqs_.size() < 10) {
            seqs_.push_back(m_.fork(seqs_[who], below(info.known_tokens + 1)));
            cross_of_[seqs_.back()] = cross_of_[seqs_[who]];
        } else if (what == 2) {
            ASSERT_EQ(m_.api().seq_truncate(m_.cache(), seqs_[who], info.known_tokens / 2, nullptr),
                      QUIRE_OK);
        }
        if (below(3) == 0) std::shuffle(seqs_.begin(), seqs_.end(), dice_);
    }

    void step(quire_batch *batch) {
        std::vector<Placed> rows;
        m_.begin({.may_preempt = true, .preempt = below(3)});
        for (quire_seq seq : seqs_) {
            uint32_t known = m_.info(seq).known_tokens;
            if (rows.size() == kRows || below(4) == 0 || known > 70) continue;
            ItemOptions item{.max_compute = 7, .lookahead = below(5) == 0 ? below(6) : 0};
            quire_step_result result =
                m_.add(seq, tokens_from(known + 100 * below(2), below(4) == 0 ? 9 : 1), item);
            if (result.outcome != QUIRE_ITEM_RUN) continue;
            EXPECT_EQ(result.row, rows.size());
            rows.push_back(Placed{seq, result.first_position, result.compute_count, cross_of_[seq],
                                  result.cross_tokens});
        }
        if (!rows.empty() && below(5) == 0) drop_one(&rows);
        quire_step committed = m_.commit(batch);
        for (uint32_t g = 0; g < options_.groups.size(); ++g) {
            std::vector<Blocks> tables;
            for (const Placed &placed : rows) tables.push_back(m_.table(placed.seq, g));
            expect_views(batch, g, rows, tables);
        }
        m_.finish(committed);
    }

    void drop_one(std::vector<Placed> *rows) {
        quire_seq gone = (*rows)[below(static_cast<uint32_t>(rows->size()))].seq;
        for (quire_seq dropped : m_.drop(gone)) {
            auto is_it = [&](const Placed &placed) { return placed.seq == dropped; };
            rows->erase(std::find_if(rows->begin(), rows->end(), is_it));
        }
    }

    void expect_views(quire_batch *batch, uint32_t group, const std::vector<Placed> &rows,
                      const std::vector<Blocks> &tables) {
        auto views = described<quire_batch_views>();
        ASSERT_EQ(m_.api().batch_get_views(batch, group, 0, &views, m_.error()), QUIRE_OK);
        bool is_cross = options_.groups[group].kind == QUIRE_GROUP_CROSS;
        Expected wanted{tables, rows, options_.block_tokens, is_cross};
        expect_tables(wanted, views);
        expect_csr(wanted, views);
        expect_tokens(wanted, views, pad_slot_);
        if (views.shared_prefix != 0) expect_shared(wanted, views);
        for (uint32_t row = 0; row < rows.size(); ++row) {
            shared_ += static_cast<uint64_t>(at<int32_t>(views.shared_prefix)[row]);
        }
    }

    CacheOptions options_;
    Manager m_;
    quire_batch *batches_[2] = {};
    int64_t pad_slot_ = 0;
    std::vector<quire_seq> seqs_;
    std::map<quire_seq, uint32_t> cross_of_;
    std::mt19937_64 dice_;
    uint64_t shared_ = 0;
};

TEST(Views, every_view_says_what_step_blocks_says) {
    for (uint64_t seed : quire::tests::seeds(1, {.all = 10, .usual = 10, .few = 2})) {
        if (HasFailure()) break;
        Wander({.blocks = 60, .host_blocks = 40}, 0).go(seed, 120);
        Wander({.blocks = 40, .groups = {{}, {.window = 6}}}, QUIRE_BATCH_PAD_NULL_SLOT)
            .go(seed, 120);
        Wander({.blocks = 50, .groups = {{.window = 9, .sinks = 5}}}, 0).go(seed, 120);
        Wander({.blocks = 60, .host_blocks = 40, .groups = {{}, {.kind = QUIRE_GROUP_CROSS}}}, 0)
            .go(seed, 120);
        Wander sharing({.blocks = 60,
                        .host_blocks = 40,
                        .groups = {{}, {.window = 8, .kind = QUIRE_GROUP_CHUNKED}}},
                       QUIRE_BATCH_SHARED_PREFIX);
        sharing.go(seed, 120);
        EXPECT_GT(sharing.shared(), 0u);
    }
}

TEST(Views, addresses_stay_and_views_that_are_not_kept_have_none) {
    Manager m;
    quire_batch_desc desc = all_views(0);
    desc.views = QUIRE_VIEW_LENGTHS | QUIRE_VIEW_SLOTS;
    quire_batch *batch = nullptr;
    ASSERT_EQ(m.api().batch_create(m.cache(), &desc, &batch, m.error()), QUIRE_OK);
    auto before = described<quire_batch_views>(), after = described<quire_batch_views>();
    ASSERT_EQ(m.api().batch_get_views(batch, 0, 0, &before, m.error()), QUIRE_OK);
    m.begin();
    m.add(m.sequence(), tokens_from(1, 9));
    m.finish(m.commit(batch));
    ASSERT_EQ(m.api().batch_get_views(batch, 0, 0, &after, m.error()), QUIRE_OK);
    EXPECT_NE(after.lengths, 0u);
    EXPECT_EQ(after.lengths, before.lengths);
    EXPECT_EQ(after.slots, before.slots);
    EXPECT_EQ(after.block_table, 0u);
    EXPECT_EQ(after.csr_indptr, 0u);
    EXPECT_EQ(after.cu_q, 0u);
    EXPECT_EQ(m.api().batch_destroy(batch, m.error()), QUIRE_OK);
}

TEST(Views, a_common_prefix_is_found_without_other_views) {
    for (bool as_view : {false, true}) {
        Manager m;
        quire_batch_desc desc = all_views(as_view ? 0 : QUIRE_BATCH_SHARED_PREFIX);
        desc.views = as_view ? QUIRE_VIEW_SHARED_PREFIX : 0;
        quire_batch *batch = nullptr;
        ASSERT_EQ(m.api().batch_create(m.cache(), &desc, &batch, m.error()), QUIRE_OK);
        quire_seq parent = m.sequence();
        m.compute(parent, tokens_from(1, 9));
        quire_seq child = m.fork(parent, 8);
        m.begin();
        m.add(parent, tokens_from(10, 1));
        m.add(child, tokens_from(20, 1));
        m.finish(m.commit(batch));
        auto views = described<quire_batch_views>();
        ASSERT_EQ(m.api().batch_get_views(batch, 0, 0, &views, m.error()), QUIRE_OK);
        EXPECT_NE(views.block_table, 0u);
        EXPECT_NE(views.lengths, 0u);
        ASSERT_NE(views.shared_prefix, 0u);
        EXPECT_NE(at<int32_t>(views.shared_prefix)[1], 0);
        EXPECT_EQ(m.api().batch_destroy(batch, m.error()), QUIRE_OK);
    }
}

TEST(Views, a_step_that_does_not_fit_stays_open) {
    Manager m;
    quire_batch_desc desc = all_views(0);
    desc.max_rows = 1, desc.max_blocks_per_row = 2, desc.max_query_tokens = 6;
    quire_batch *batch = nullptr;
    ASSERT_EQ(m.api().batch_create(m.cache(), &desc, &batch, m.error()), QUIRE_OK);
    quire_seq a = m.sequence(), b = m.sequence();
    auto refuse = [&] {
        std::string before = m.books();
        EXPECT_EQ(m.api().step_commit(m.cache(), m.open(), batch, m.error()), QUIRE_E_LIMIT);
        EXPECT_EQ(m.books(), before);
        m.abort();
    };
    m.begin();
    m.add(a, {1}), m.add(b, {1});
    refuse();  // too many rows
    m.begin();
    m.add(a, tokens_from(1, 7));
    refuse();  // too many tokens
    m.begin();
    m.add(a, tokens_from(1, 5), {.lookahead = 4});
    refuse();  // too many blocks
    m.begin();
    m.add(a, tokens_from(1, 5));
    m.finish(m.commit(batch));
    EXPECT_EQ(m.api().batch_destroy(batch, m.error()), QUIRE_OK);
}

TEST(Views, wrong_descriptions_are_refused) {
    Manager m, other;
    quire_batch *batch = nullptr;
    auto refuse = [&](auto change, quire_status expected) {
        quire_batch_desc desc = all_views(0);
        change(&desc);
        EXPECT_EQ(m.api().batch_create(m.cache(), &desc, &batch, m.error()), expected);
        EXPECT_EQ(batch, nullptr);
    };
    using D = quire_batch_desc *;
    refuse([](D d) { d->max_rows = 0; }, QUIRE_E_ARG);
    refuse([](D d) { d->max_blocks_per_row = 0; }, QUIRE_E_ARG);
    refuse([](D d) { d->max_query_tokens = 0; }, QUIRE_E_ARG);
    refuse([](D d) { d->max_context_tokens = 0; }, QUIRE_E_ARG);
    refuse([](D d) { d->views = 1 << 9; }, QUIRE_E_UNSUPPORTED);
    refuse([](D d) { d->attention_count = 17; }, QUIRE_E_ARG);
    refuse([](D d) { d->max_rows = d->max_blocks_per_row = 0xFFFFFFFF; }, QUIRE_E_LIMIT);
    quire_batch_desc desc = all_views(0);
    ASSERT_EQ(other.api().batch_create(other.cache(), &desc, &batch, nullptr), QUIRE_OK);
    EXPECT_EQ(other.api().cache_destroy(other.cache(), nullptr), QUIRE_E_BUSY);
    m.begin();
    EXPECT_EQ(m.api().step_commit(m.cache(), m.open(), batch, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(other.api().batch_destroy(batch, nullptr), QUIRE_OK);
}

}  // namespace
