// SPDX-License-Identifier: Apache-2.0

#include "report.hpp"

#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace accuracy {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char *pattern, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

double ratio(const Report &report, const FormatCost &cost) {
    return cost.perplexity / report.formats.front().perplexity;
}

double ratio(const Report &report, const FormatCost &cost, size_t text) {
    return cost.texts[text].perplexity / report.formats.front().texts[text].perplexity;
}

// A perplexity and how far it is above f32's, padded to the width of its column.
std::string beside(double perplexity, double ratio, bool is_f32) {
    const std::string above = is_f32 ? "" : format("%+.2f %%", 100.0 * (ratio - 1.0));
    return format("%-8.4f%-12s", perplexity, above.c_str());
}

size_t other_choices(const FormatCost &cost) {
    size_t count = 0;
    for (const TextCost &text : cost.texts) {
        count += text.other_choices;
    }
    return count;
}

// A text may end within a character, but JSON needs whole ones. JSON also adds the quotes.
std::string dumped(const nlohmann::ordered_json &json, int indent) {
    return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string difference_words(const std::optional<Difference> &difference) {
    if (!difference) {
        return "none";
    }
    return format("%zu: %s, not %s, %.3f below it", difference->index,
                  dumped(difference->piece, -1).c_str(), dumped(difference->f32_piece, -1).c_str(),
                  difference->gap);
}

nlohmann::ordered_json difference_json(const std::optional<Difference> &difference) {
    if (!difference) {
        return nullptr;
    }
    return {{"index", difference->index},
            {"f32_piece", difference->f32_piece},
            {"piece", difference->piece},
            {"gap", difference->gap},
            {"own_gap", difference->own_gap}};
}

bool same_one_by_one(const Report &report) {
    for (const FormatCost &cost : report.formats) {
        for (const TextCost &text : cost.texts) {
            if (text.perplexity != text.perplexity_one_by_one) return false;
        }
    }
    return true;
}

}  // namespace

void print_table(std::ostream &out, const Report &report) {
    out << report.model << "; " << report.backend
        << format(", blocks of %zu tokens\n\n%-10s", report.block_tokens, "K and V");
    size_t place_count = 0;
    for (const ReportText &text : report.texts) {
        out << format("%-20s", format("%s (%zu)", text.name.c_str(), text.place_count).c_str());
        place_count += text.place_count;
    }
    out << format("%-20s", format("together (%zu)", place_count).c_str())
        << "other choices  first other token\n";
    for (const FormatCost &cost : report.formats) {
        const bool is_f32 = &cost == &report.formats.front();
        out << format("%-10s", cost.kv_dtype.c_str());
        for (size_t i = 0; i < cost.texts.size(); ++i) {
            out << beside(cost.texts[i].perplexity, ratio(report, cost, i), is_f32);
        }
        out << beside(cost.perplexity, ratio(report, cost), is_f32)
            << format("%-15zu", other_choices(cost)) << difference_words(cost.difference) << '\n';
    }
    out << "\nPerplexity over each text (tokens in parentheses), teacher-forced in chunks of "
        << report.chunk_tokens << ", and its excess\nover f32's. Fed one by one: "
        << (same_one_by_one(report) ? "bit-identical" : "NOT THE SAME")
        << ". Other choices: places where the likeliest token\nis not f32's. First other token: in "
           "the greedy text; \"below\" is by f32's logits.\n";
}

void print_json(std::ostream &out, const Report &report) {
    nlohmann::ordered_json json = {{"model", report.model},
                                   {"trained", report.is_trained},
                                   {"backend", report.backend},
                                   {"block_tokens", report.block_tokens},
                                   {"chunk_tokens", report.chunk_tokens}};
    for (const ReportText &text : report.texts) {
        json["texts"].push_back(
            {{"name", text.name}, {"places", text.place_count}, {"text", text.text}});
    }
    for (const FormatCost &cost : report.formats) {
        nlohmann::ordered_json texts;
        for (size_t i = 0; i < cost.texts.size(); ++i) {
            const TextCost &text = cost.texts[i];
            texts.push_back({{"name", report.texts[i].name},
                             {"perplexity", text.perplexity},
                             {"perplexity_one_by_one", text.perplexity_one_by_one},
                             {"ratio", ratio(report, cost, i)},
                             {"other_choices", text.other_choices}});
        }
        json["formats"].push_back({{"kv_dtype", cost.kv_dtype},
                                   {"perplexity", cost.perplexity},
                                   {"ratio", ratio(report, cost)},
                                   {"other_choices", other_choices(cost)},
                                   {"first_difference", difference_json(cost.difference)},
                                   {"texts", texts}});
    }
    out << dumped(json, 2) << '\n';
}

}  // namespace accuracy
