// SPDX-License-Identifier: Apache-2.0
//
// A needle in a long context: formats of K and V must be accurate enough for it to be found.
// haystack.hpp states the margin by which each needle stands out.

#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "retrieval.hpp"

namespace {

using namespace quire::test;

// The limits of the weights' errors are at most twice the measured errors, so that a format that
// lost a bit is noticed.
constexpr Format kFormats[] = {
    {"f32", QUIRE_DTYPE_F32, QUIRE_SCALE_NONE, 0.0},
    {"f16", QUIRE_DTYPE_F16, QUIRE_SCALE_NONE, 0.0004},
    {"bf16", QUIRE_DTYPE_BF16, QUIRE_SCALE_NONE, 0.003},
    {"fp8", QUIRE_DTYPE_F8_E4M3FN, QUIRE_SCALE_TOKEN_HEAD, 0.035},
    {"fp8_e5m2", QUIRE_DTYPE_F8_E5M2, QUIRE_SCALE_TOKEN_HEAD, 0.12},
    {"int8", QUIRE_DTYPE_I8, QUIRE_SCALE_TOKEN_HEAD, 0.011},
};
constexpr Format kInt4 = {"int4", QUIRE_DTYPE_I4, QUIRE_SCALE_TOKEN_HEAD, 0.2};
constexpr uint32_t kQuestions = kNeedles * kQHeads;

// The vectors of a vocabulary take a moment to compute, and all formats read the same ones.
const Haystack &haystack(const HaystackShape &shape) {
    static std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<Haystack>> made;
    auto &one = made[{shape.positions, shape.head_dim}];
    if (one == nullptr) one = std::make_unique<Haystack>(shape);
    return *one;
}

using Answers = std::vector<std::optional<uint32_t>>;

bool is_found(const Haystack &text, const Answers &answers, uint32_t question) {
    uint32_t needle = Retrieval::needle_of(question / kQHeads, question % kQHeads);
    return answers[question] == text.value(needle);
}

// Expects that every question finds its needle, except those that `is_lost` names, which must not.
template <typename IsLost>
void expect_lost(const Haystack &text, const Answers &answers, IsLost is_lost) {
    for (uint32_t question = 0; question < kQuestions; ++question) {
        uint32_t row = question / kQHeads, head = question % kQHeads;
        uint32_t needle = Retrieval::needle_of(row, head);
        EXPECT_EQ(is_found(text, answers, question), !is_lost(row, head, needle))
            << "row " << row << ", head " << head << ", needle at " << text.position(needle);
    }
}

uint32_t count_found(const Haystack &text, const Answers &answers) {
    uint32_t found = 0;
    for (uint32_t question = 0; question < kQuestions; ++question) {
        found += is_found(text, answers, question) ? 1 : 0;
    }
    return found;
}

// The weights of the needles in the last answers.
std::vector<double> shares(const Haystack &text, const Retrieval &retrieval) {
    std::vector<double> list;
    for (uint32_t question = 0; question < kQuestions; ++question) {
        uint32_t head = question % kQHeads;
        const float *attended = retrieval.attended() + question * text.shape().head_dim;
        list.push_back(text.share(attended,
                                  text.value(Retrieval::needle_of(question / kQHeads, head)),
                                  head / (kQHeads / kKvHeads)));
    }
    return list;
}

void expect_found(const Haystack &text, const Format &format) {
    Retrieval retrieval(text, format);
    retrieval.read();
    expect_lost(text, retrieval.ask(), [](uint32_t, uint32_t, uint32_t) { return false; });
}

// A format and the number of positions.
class Needle : public testing::TestWithParam<std::tuple<Format, uint32_t>> {
 protected:
    const Format &format() const { return std::get<0>(GetParam()); }
    uint32_t positions() const { return std::get<1>(GetParam()); }
};

TEST_P(Needle, is_found_wherever_it_is) {
    expect_found(haystack({.positions = positions()}), format());
}

TEST_P(Needle, has_the_weight_that_f32_gives_it_but_for_rounding) {
    const Haystack &text = haystack({.positions = positions()});
    Retrieval exact(text, kFormats[0]), rounded(text, format());
    for (Retrieval *retrieval : {&exact, &rounded}) {
        retrieval->read();
        retrieval->ask();
    }
    std::vector<double> weights = shares(text, exact), near = shares(text, rounded);
    double mean = std::accumulate(weights.begin(), weights.end(), 0.0) / kQuestions;
    EXPECT_NEAR(mean, 1.0 / (1.0 + 2.0 * std::exp(-kMargin)), 0.005) << "the margin differs";
    double most = 0.0;
    for (uint32_t question = 0; question < kQuestions; ++question) {
        EXPECT_NEAR(weights[question], mean, 0.05);
        most = std::fmax(most, std::fabs(near[question] - weights[question]));
    }
    EXPECT_LE(most, format().weight_error);
    RecordProperty("most", std::to_string(most));
}

std::string name_of(const testing::TestParamInfo<std::tuple<Format, uint32_t>> &info) {
    return std::string(std::get<0>(info.param).name) + "_" +
           std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Long, Needle,
                         testing::Combine(testing::ValuesIn(kFormats),
                                          testing::Values(4096u, 8192u, 16'384u, 32'768u)),
                         name_of);

// Faults with which a needle must not be found, at the shortest length: each shows that a test
// above would fail.
class LostNeedle : public testing::TestWithParam<Format> {
 protected:
    LostNeedle() : text_(haystack({.positions = 4096})), retrieval_(text_, GetParam()) {}

    const Haystack &text_;
    Retrieval retrieval_;
};

TEST_P(LostNeedle, absent_marker_finds_nothing) {
    retrieval_.read();
    for (const auto &answer : retrieval_.ask(Haystack::absent_marker)) {
        EXPECT_EQ(answer, std::nullopt);
    }
}

TEST_P(LostNeedle, nothing_is_found_where_v_is_zero) {
    retrieval_.read(false);
    for (const auto &answer : retrieval_.ask()) EXPECT_EQ(answer, std::nullopt);
}

TEST_P(LostNeedle, wrong_block_loses_the_needles_in_it) {
    retrieval_.read();
    for (uint32_t needle = 0; needle < kNeedles; ++needle) {
        uint32_t index = text_.position(needle) / text_.shape().block_tokens;
        Answers answers = retrieval_.ask(Haystack::marker, [&](int32_t *blocks) {
            blocks[index] = blocks[index == 7 ? 8 : 7];  // one without needles
        });
        expect_lost(text_, answers, [&](uint32_t row, uint32_t, uint32_t asked) {
            return row == 0 && text_.position(asked) / text_.shape().block_tokens == index;
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Format, LostNeedle, testing::ValuesIn(kFormats),
                         [](const auto &info) { return std::string(info.param.name); });

class LostScale : public LostNeedle {};

TEST_P(LostScale, half_the_scale_of_its_k_loses_a_needle) {
    retrieval_.read();
    for (uint32_t needle = 0; needle < kNeedles; ++needle) {
        float &scale = retrieval_.scale(text_.position(needle), needle % kKvHeads, false);
        scale /= 2.0f;
        expect_lost(text_, retrieval_.ask(), [&](uint32_t, uint32_t head, uint32_t asked) {
            return asked == needle && head / (kQHeads / kKvHeads) == needle % kKvHeads;
        });
        scale *= 2.0f;
    }
}

TEST_P(LostScale, twice_the_scale_of_its_v_makes_a_needle_another) {
    retrieval_.read();
    for (uint32_t needle = 0; needle < kNeedles; ++needle) {
        float &scale = retrieval_.scale(text_.position(needle), needle % kKvHeads, true);
        scale *= 2.0f;
        expect_lost(text_, retrieval_.ask(), [&](uint32_t, uint32_t head, uint32_t asked) {
            return asked == needle && head / (kQHeads / kKvHeads) == needle % kKvHeads;
        });
        scale /= 2.0f;
    }
}

// Every token has the scale of the token before it, as from a kernel that is off by one.
TEST_P(LostScale, scales_of_neighbours_lose_most_needles) {
    retrieval_.read();
    auto length = static_cast<uint32_t>(text_.words().size());
    for (uint32_t head = 0; head < kKvHeads; ++head) {
        for (uint32_t p = length - 1; p > 0; --p) {
            retrieval_.scale(p, head, false) = retrieval_.scale(p - 1, head, false);
        }
    }
    Answers answers = retrieval_.ask();
    uint32_t found = count_found(text_, answers);
    EXPECT_LT(found, kQuestions / 2);
    RecordProperty("found", static_cast<int>(found));
}

INSTANTIATE_TEST_SUITE_P(Format, LostScale, testing::Values(kFormats[3], kFormats[4], kFormats[5]),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(NeedleShape, is_found_whatever_the_heads_and_blocks) {
    for (const HaystackShape &shape :
         {HaystackShape{4096, 128, 16}, HaystackShape{4096, 64, 4}, HaystackShape{8192, 64, 128}}) {
        Haystack text(shape);
        for (const Format &format : kFormats) expect_found(text, format);
    }
}

// Reported, not required.
TEST(NeedleShape, four_bits_find_some) {
    for (uint32_t positions : {4096u, 8192u, 16'384u, 32'768u}) {
        const Haystack &text = haystack({.positions = positions});
        Retrieval retrieval(text, kInt4);
        retrieval.read();
        Answers answers = retrieval.ask();
        uint32_t found = count_found(text, answers);
        std::printf("int4 at %u positions: %u of %u found\n", positions, found, kQuestions);
        RecordProperty("found_at_" + std::to_string(positions), static_cast<int>(found));
        EXPECT_GT(found, 0u);
    }
}

}  // namespace
