// SPDX-License-Identifier: Apache-2.0
//
// token_pages by itself: forks share pages, and none sees what another writes.

#include "core/blocks/token_pages.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "host.hpp"

namespace {

using namespace quire;

using Words = std::vector<uint32_t>;

struct Pages {
    test::Host host;
    BufferPool buffers{&host.allocator};
    TokenPages pages{&host.allocator, &buffers};

    Words read(const KnownTokens &t, uint32_t count) {
        Words out;
        for (uint32_t i = 0; i < count; ++i) out.push_back(*pages.at(t, i));
        return out;
    }
    void append(KnownTokens *t, uint32_t at, const Words &words) {
        auto count = static_cast<uint32_t>(words.size());
        ASSERT_TRUE(pages.prepare(t, at, at + count));
        pages.write(t, at, words.data(), count);
    }
};

Words counted(uint32_t first, uint32_t count) {
    Words out(count);
    for (uint32_t i = 0; i < count; ++i) out[i] = first + i;
    return out;
}

TEST(TokenPages, a_fork_of_a_long_sequence_allocates_its_page_numbers_alone) {
    constexpr uint32_t kTokens = 1 << 20;
    Pages p;
    KnownTokens parent, child;
    p.append(&parent, 0, counted(0, kTokens));
    uint64_t calls = p.host.calls;
    ASSERT_TRUE(p.pages.share(&parent, kTokens - 5, &child));
    EXPECT_EQ(p.host.calls, calls + 1);
    p.append(&child, kTokens - 5, {7});
    EXPECT_LE(p.host.calls, calls + 4) << "one page, and the records grew";
    EXPECT_EQ(*p.pages.at(child, kTokens - 5), 7u);
    EXPECT_EQ(*p.pages.at(parent, kTokens - 5), kTokens - 5);
    EXPECT_EQ(p.pages.at(child, 0), p.pages.at(parent, 0)) << "the others are still one";
    p.pages.release(&parent);
    EXPECT_EQ(p.read(child, 3000), counted(0, 3000));
    p.pages.release(&child);
}

TEST(TokenPages, whoever_goes_on_first_copies_and_the_other_writes_in_place) {
    Pages p;
    KnownTokens parent, child;
    p.append(&parent, 0, counted(0, 100));
    ASSERT_TRUE(p.pages.share(&parent, 50, &child));
    const uint32_t *page = p.pages.at(parent, 0);
    p.append(&parent, 100, {1});
    EXPECT_NE(p.pages.at(parent, 0), page);
    p.append(&child, 50, {2});
    EXPECT_EQ(p.pages.at(child, 0), page);
    p.pages.release(&parent);
    p.pages.release(&child);
}

TEST(TokenPages, an_unnamed_token_is_found_in_whichever_page_it_is) {
    Pages p;
    KnownTokens t;
    p.append(&t, 0, counted(0, 5000));
    EXPECT_EQ(p.pages.find_unknown_in(t, 0, 5000), 5000u);
    for (uint32_t at : {0u, 1023u, 1024u, 3000u, 4999u}) {
        p.append(&t, 0, counted(0, 5000));
        p.pages.fill_unknown(&t, at, at + 1);
        EXPECT_EQ(p.pages.find_unknown_in(t, 0, 5000), at);
        EXPECT_EQ(p.pages.find_unknown_in(t, at, 5000), at);
        EXPECT_EQ(p.pages.find_unknown_in(t, at + 1, 5000), 5000u);
        EXPECT_EQ(p.pages.find_unknown_in(t, 0, at), at);
    }
    p.pages.release(&t);
}

TEST(TokenPages, without_memory_all_tokens_stay) {
    Pages p;
    KnownTokens parent;
    p.append(&parent, 0, counted(0, 3000));
    for (uint32_t n = 1; n < 12; ++n) {
        KnownTokens child;
        p.host.fail_at = p.host.calls + n;
        bool shared = p.pages.share(&parent, 2500, &child);
        bool prepared = shared && p.pages.prepare(&child, 2500, 9000);
        p.host.fail_at = UINT64_MAX;
        EXPECT_EQ(p.read(parent, 3000), counted(0, 3000));
        EXPECT_EQ(p.read(child, shared ? 2500 : 0), counted(0, shared ? 2500 : 0));
        if (prepared) p.append(&child, 2500, counted(0, 6500));
        EXPECT_EQ(p.read(parent, 3000), counted(0, 3000));
        p.pages.release(&child);
    }
    p.pages.release(&parent);
}

TEST(TokenPages, a_span_of_tokens_is_contiguous) {
    for (uint32_t span : {1u, 3u, 12u, 528u, 768u, 1056u, 4096u}) {
        Pages p;
        p.pages.set_span(BlockSize(span));
        KnownTokens t;
        p.append(&t, 0, counted(0, 9000));
        for (uint32_t begin = 0; begin + span <= 9000; begin += span) {
            const uint32_t *tokens = p.pages.at(t, begin);
            for (uint32_t i = 0; i < span; ++i) ASSERT_EQ(tokens[i], begin + i);
        }
        p.pages.release(&t);
    }
}

// Sequences are written at any position, forked at any length and ended, and compared with plain
// vectors.
void play_against_vectors(uint32_t span) {
    Pages p;
    p.pages.set_span(BlockSize(span));
    std::mt19937 generator(1);
    auto below = [&](size_t end) { return static_cast<uint32_t>(generator() % end); };
    auto any = [&] { return static_cast<uint32_t>(generator()); };
    struct Sequence {
        KnownTokens tokens;
        Words words;
    };
    std::vector<Sequence> all(1);
    for (uint32_t i = 0; i < 4000; ++i) {
        Sequence &s = all[below(all.size())];
        auto length = static_cast<uint32_t>(s.words.size());
        switch (below(6)) {
            case 0: {  // truncated, then continued
                s.words.resize(below(length + 1));
                break;
            }
            case 1: {
                if (all.size() == 8) break;
                Sequence child;
                uint32_t count = below(length + 1);
                ASSERT_TRUE(p.pages.share(&s.tokens, count, &child.tokens));
                child.words.assign(s.words.begin(), s.words.begin() + count);
                all.push_back(child);
                break;
            }
            case 2: {
                if (all.size() == 1) break;
                p.pages.release(&s.tokens);
                s = all.back();
                all.pop_back();
                break;
            }
            case 3: {
                if (length == 0) break;
                uint32_t at = below(length), count = 1 + below(length - at);
                Words fresh = counted(any(), count);
                p.append(&s.tokens, at, fresh);
                std::copy(fresh.begin(), fresh.end(), s.words.begin() + at);
                break;
            }
            default: {
                Words fresh = counted(any(), below(2) == 0 ? 1 : below(3000));
                p.append(&s.tokens, length, fresh);
                s.words.insert(s.words.end(), fresh.begin(), fresh.end());
            }
        }
        for (const Sequence &each : all) {
            auto count = static_cast<uint32_t>(each.words.size());
            ASSERT_TRUE(p.pages.equal(each.tokens, 0, each.words.data(), count)) << "after " << i;
        }
    }
    for (Sequence &s : all) p.pages.release(&s.tokens);
}

TEST(TokenPages, any_order_of_writes_and_forks_gives_what_plain_vectors_give) {
    play_against_vectors(16);
}

TEST(TokenPages, and_so_it_does_where_spans_do_not_divide_a_page) {
    play_against_vectors(12);
    play_against_vectors(1500);
}

}  // namespace
