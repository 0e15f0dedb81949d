// SPDX-License-Identifier: Apache-2.0
//
// dense_run and its parts: the reference must be right before anything is compared with it.

#include "dense_run.hpp"

#include "comparison.hpp"
#include "fixtures.hpp"
#include "random.hpp"
#include "tokenizer.hpp"
#include "workload.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace engine {
namespace {

std::vector<float> random_floats(size_t count, uint64_t seed) {
    std::vector<float> floats;
    for (size_t i = 0; i < count; ++i) {
        floats.push_back(static_cast<float>(unit_interval(mix(seed, i)) - 0.5));
    }
    return floats;
}

TEST(Ops, a_row_of_matmul_is_bit_equal_whatever_else_is_in_the_batch) {
    for (const size_t inputs : {1, 7, 64, 172}) {
        for (const size_t outputs : {1, 2, 13}) {
            const auto x = random_floats(5 * inputs, 1);
            const auto weight = random_floats(outputs * inputs, 2);
            std::vector<float> all(5 * outputs);
            matmul(all, x, weight, inputs);
            for (size_t row = 0; row < 5; ++row) {
                std::vector<float> alone(outputs);
                matmul(alone, std::span(x).subspan(row * inputs, inputs), weight, inputs);
                EXPECT_TRUE(std::equal(alone.begin(), alone.end(), &all[row * outputs]));
            }
        }
    }
}

TEST(Ops, rope_turns_pairs_by_their_position) {
    const RopeTable rope(4, 8);
    std::vector<float> row = {1, 0, 0, 1};
    rope.rotate(row, 3);
    EXPECT_NEAR(row[0], std::cos(3.0), 1e-6);
    EXPECT_NEAR(row[1], std::sin(3.0), 1e-6);
    EXPECT_NEAR(row[2], -std::sin(0.03), 1e-6);  // second pair: 3 / 10000^(2/4)
    EXPECT_NEAR(row[3], std::cos(0.03), 1e-6);
}

TEST(Sampler, greedy_takes_the_first_best_and_sees_ties) {
    EXPECT_EQ(choose(std::vector<float>{1, 3, 3, 2}, 0, {}).token, 1U);
    EXPECT_TRUE(choose(std::vector<float>{1, 3, 3, 2}, 0, {}).tie);
    EXPECT_TRUE(choose(std::vector<float>{100000.0F, 99999.5F}, 0, {}).tie);
    EXPECT_FALSE(choose(std::vector<float>{1, 3, 2.99F, 2}, 0, {}).tie);
}

TEST(Sampler, draws_follow_the_softmax_and_their_key_alone) {
    const std::vector<float> logits = {std::log(0.7F), std::log(0.2F), std::log(0.1F)};
    std::map<uint32_t, int> counts;
    for (uint32_t position = 0; position < 20000; ++position) {
        const DrawKey key{.seed = 5, .request = 1, .sample = 2, .position = position};
        const uint32_t token = choose(logits, 1.0F, key).token;
        EXPECT_EQ(token, choose(logits, 1.0F, key).token);
        ++counts[token];
    }
    // Five standard deviations of a binomial with n = 20000 are below 0.017.
    EXPECT_NEAR(counts[0] / 20000.0, 0.7, 0.017);
    EXPECT_NEAR(counts[1] / 20000.0, 0.2, 0.017);
}

TEST(DenseRun, trained_model_tells_the_golden_story) {
    QUIRE_NEEDS_WEIGHTS();
    const auto folder = testing::weights_folder();
    const Model model = Model::load(folder / "stories260K.bin");
    const Tokenizer tokenizer = Tokenizer::load(folder / "tok512.bin", model.config().vocab_size);
    Request request;
    request.prompt = tokenizer.encode("");
    request.generate_limit = 256;
    const std::vector<Generated> texts = DenseRun(model).generate(request, 1);
    std::string text;
    uint32_t previous = kBosToken;
    for (const Choice &choice : texts.front()) {
        text += tokenizer.decode(previous, choice.token);
        previous = choice.token;
    }
    EXPECT_EQ(text + "\n", testing::read_bytes(folder / "stories260K_greedy_256.txt"));
}

TEST(DenseRun, samples_of_one_request_do_not_see_each_other) {
    const Model model = Model::seeded(Model::demo_config(), 3);
    Request request;
    request.prompt = Tokenizer::syllables(512).encode("One prompt");
    request.generate_limit = 12;
    request.sample_count = 3;
    request.temperature = 1.0F;
    const auto together = DenseRun(model).generate(request, 9);
    const auto same = [](const Generated &one, const Generated &other) {
        const auto token = [](const Choice &choice) { return choice.token; };
        return std::ranges::equal(one, other, {}, token, token);
    };
    EXPECT_FALSE(same(together[0], together[1]));
    request.sample_count = 1;
    EXPECT_TRUE(same(together[0], DenseRun(model).generate(request, 9).front()));
}

TEST(Workload, chats_fit_their_model_and_share_system_prompts) {
    const auto chats = chat_workload(Tokenizer::syllables(512), 512, 1);
    ASSERT_EQ(chats.size(), kChatCount);
    std::map<std::vector<uint32_t>, int> beginnings;
    for (const Request &chat : chats) {
        EXPECT_LE(chat.prompt.size() + chat.generate_limit, 512U);
        ++beginnings[{chat.prompt.begin(), chat.prompt.begin() + 40}];
    }
    EXPECT_LE(beginnings.size(), 5U);
}

Generated text_of(std::vector<Choice> choices) { return choices; }

TEST(Comparison, a_tie_goes_on_along_the_dense_token_and_is_counted) {
    std::vector<Choice> dense(2000, {.token = 4, .tie = false});
    dense[7].tie = true;
    Comparison comparison({{text_of(dense)}}, true);
    for (size_t i = 0; i < dense.size(); ++i) {
        EXPECT_EQ(comparison.settle(0, 0, i, {.token = i == 7 ? 5U : 4U}), 4U);
    }
    EXPECT_EQ(comparison.tie_count(), 1U);
    EXPECT_TRUE(comparison.passed());
}

TEST(Comparison, more_than_one_tie_in_a_thousand_fails) {
    std::vector<Choice> dense(1999, {.token = 4, .tie = false});
    dense[7].tie = dense[8].tie = true;
    Comparison comparison({{text_of(dense)}}, true);
    for (size_t i = 0; i < dense.size(); ++i) {
        comparison.settle(0, 0, i, {.token = 4});
    }
    EXPECT_EQ(comparison.equal_count(), 1U);
    EXPECT_FALSE(comparison.passed());
}

TEST(Comparison, a_trained_model_has_no_ties_to_hide_behind) {
    std::vector<Choice> dense(3, {.token = 4, .tie = true});
    Comparison comparison({{text_of(dense)}}, false);
    EXPECT_EQ(comparison.settle(0, 0, 0, {.token = 4}), 4U);
    EXPECT_EQ(comparison.settle(0, 0, 1, {.token = 6}), 6U);
    EXPECT_FALSE(comparison.passed());
    EXPECT_EQ(comparison.mismatches().size(), 1U);
}

}  // namespace
}  // namespace engine
