// SPDX-License-Identifier: Apache-2.0
//
// quire-accuracy: what each format of K and V costs a model. Start here, then read forced_text (how
// a format is measured) and report (what is shown).
//
// Exit status: 0 all went well, 1 a failure, 2 a mistake in the command line.

#include "failure.hpp"
#include "forced_text.hpp"
#include "library.hpp"
#include "model.hpp"
#include "options.hpp"
#include "report.hpp"
#include "tokenizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>

namespace accuracy {
namespace {

constexpr uint32_t kSampleCount = 2;

engine::Model make_model(const Options &options) {
    return options.weights.empty()
               ? engine::Model::seeded(engine::Model::demo_config(), options.seed)
               : engine::Model::load(options.weights);
}

engine::Tokenizer make_tokenizer(const Options &options, size_t vocab_size) {
    return options.tokenizer.empty() ? engine::Tokenizer::syllables(vocab_size)
                                     : engine::Tokenizer::load(options.tokenizer, vocab_size);
}

// The text as llama2.c prints it; a token that ends it prints nothing.
std::string printed(const engine::Tokenizer &tokenizer, std::span<const uint32_t> tokens) {
    std::string text;
    for (size_t i = 1; i < tokens.size(); ++i) {
        text += tokenizer.decode(tokens[i - 1], tokens[i]);
    }
    return text;
}

decoding::DecoderOptions decoder_options(const Options &options, size_t steps,
                                         const std::string &kv_dtype) {
    decoding::DecoderOptions decoder;
    decoder.backend = options.backend;
    decoder.block_tokens = options.block_tokens;
    // One text at a time, plus the null block and one block for each of the two roundings.
    decoder.pool_blocks = static_cast<uint32_t>(steps / options.block_tokens) + 3;
    decoder.kv_dtype = kv_dtype;
    decoder.cache_flags = QUIRE_CACHE_NO_PREFIX;
    return decoder;
}

using Texts = std::vector<std::vector<uint32_t>>;

// The greedy text, then the samples.
Texts told_texts(const Options &options, const engine::Model &model, size_t steps) {
    decoding::Decoder decoder(engine::load_library(), model,
                              decoder_options(options, steps, "f32"));
    Texts texts = {told_text(decoder, engine::kBosToken, steps, 0.0F, {})};
    for (uint32_t sample = 1; sample <= kSampleCount; ++sample) {
        const engine::DrawKey key{.seed = options.seed, .sample = sample};
        texts.push_back(told_text(decoder, engine::kBosToken, steps, 1.0F, key));
    }
    return texts;
}

std::optional<Difference> first_difference(const engine::Tokenizer &tokenizer,
                                           std::span<const uint32_t> tokens, const ForcedText &f32,
                                           const ForcedText &other) {
    for (size_t place = 0; place < f32.place_count(); ++place) {
        const uint32_t theirs = f32.choice(place), own = other.choice(place);
        if (theirs == own) continue;
        return Difference{
            .index = place,
            .f32_piece = tokenizer.decode(tokens[place], theirs),
            .piece = tokenizer.decode(tokens[place], own),
            .gap = double{f32.logits(place)[theirs]} - f32.logits(place)[own],
            .own_gap = double{other.logits(place)[own]} - other.logits(place)[theirs]};
    }
    return std::nullopt;
}

double perplexity(double surprise, size_t place_count) {
    return std::exp(surprise / static_cast<double>(place_count));
}

TextCost text_cost(const ForcedText &f32, const ForcedText &in_chunks,
                   const ForcedText &one_by_one) {
    const size_t count = f32.place_count();
    TextCost cost{.perplexity = perplexity(in_chunks.surprise(), count),
                  .perplexity_one_by_one = perplexity(one_by_one.surprise(), count)};
    for (size_t place = 0; place < count; ++place) {
        cost.other_choices += f32.choice(place) == in_chunks.choice(place) ? 0 : 1;
    }
    return cost;
}

std::string model_words(const Options &options, const engine::ModelConfig &config) {
    const std::string name =
        options.weights.empty()
            ? "a model made from seed " + std::to_string(options.seed) + " (no --weights)"
            : std::filesystem::path(options.weights).filename().string();
    return name + ": " + std::to_string(config.layer_count) + " layers, " +
           std::to_string(config.head_count) + " query heads on " +
           std::to_string(config.kv_head_count) + " KV heads of " +
           std::to_string(config.head_dim());
}

// A format's cost over the texts. f32: the texts in f32; this format comes first and fills it.
FormatCost format_cost(decoding::Decoder &decoder, const std::string &kv_dtype, const Texts &texts,
                       size_t chunk_tokens, const engine::Tokenizer &tokenizer,
                       std::vector<ForcedText> &f32) {
    FormatCost cost;
    cost.kv_dtype = kv_dtype;
    double surprise = 0.0;
    size_t place_count = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
        const ForcedText in_chunks(decoder, texts[i], chunk_tokens);
        const ForcedText one_by_one(decoder, texts[i], 1);
        if (i == f32.size()) {
            f32.push_back(in_chunks);
        }
        cost.texts.push_back(text_cost(f32[i], in_chunks, one_by_one));
        surprise += in_chunks.surprise();
        place_count += in_chunks.place_count();
        if (i == 0) {
            cost.difference = first_difference(tokenizer, texts[i], f32[i], one_by_one);
        }
    }
    cost.perplexity = perplexity(surprise, place_count);
    return cost;
}

Report measured(const Options &options) {
    const engine::Model model = make_model(options);
    const engine::Tokenizer tokenizer = make_tokenizer(options, model.config().vocab_size);
    const size_t steps = std::min<size_t>(options.steps, model.config().seq_len);
    const size_t chunk_tokens = std::min<size_t>(options.chunk_tokens, steps);
    const Texts texts = told_texts(options, model, steps);

    Report report{.model = model_words(options, model.config()),
                  .is_trained = !options.weights.empty(),
                  .backend = options.backend,
                  .block_tokens = options.block_tokens,
                  .chunk_tokens = chunk_tokens,
                  .texts = {},
                  .formats = {}};
    for (size_t i = 0; i < texts.size(); ++i) {
        report.texts.push_back({.name = i == 0 ? "greedy" : "sample " + std::to_string(i),
                                .place_count = texts[i].size() - 1,
                                .text = printed(tokenizer, texts[i])});
    }
    std::vector<ForcedText> f32;
    for (const std::string &kv_dtype : engine::kv_dtype_names()) {
        decoding::Decoder decoder(engine::load_library(), model,
                                  decoder_options(options, steps, kv_dtype));
        report.formats.push_back(
            format_cost(decoder, kv_dtype, texts, chunk_tokens, tokenizer, f32));
        decoder.check();
    }
    return report;
}

}  // namespace
}  // namespace accuracy

int main(int argc, char **argv) {
    int exit_code = 0;
    const auto options = accuracy::parse_options(argc, argv, exit_code);
    if (!options) {
        return exit_code;
    }
    try {
        const accuracy::Report report = accuracy::measured(*options);
        options->json ? accuracy::print_json(std::cout, report)
                      : accuracy::print_table(std::cout, report);
        return 0;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "quire-accuracy: %s\n", failure.what());
        return 1;
    }
}
