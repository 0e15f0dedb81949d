// SPDX-License-Identifier: Apache-2.0
//
// report: what the formats cost, as a table for a person or as JSON for a program.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace accuracy {

// Where a greedy text departs from f32's. Gaps are differences of two logits.
struct Difference {
    size_t index = 0;       // of the token; the first one after the prompt is 0
    std::string f32_piece;  // f32's choice there
    std::string piece;      // the format's choice
    double gap = 0.0;       // by which f32 prefers its own
    double own_gap = 0.0;   // by which the format prefers its own
};

struct TextCost {
    double perplexity = 0.0;             // fed in chunks
    double perplexity_one_by_one = 0.0;  // fed token by token
    size_t other_choices = 0;            // places where the likeliest token is not f32's
};

struct FormatCost {
    std::string kv_dtype;
    std::optional<Difference> difference;  // none: its greedy text is f32's
    double perplexity = 0.0;               // over all texts, fed in chunks
    std::vector<TextCost> texts;           // as in Report
};

struct ReportText {
    std::string name;
    size_t place_count = 0;  // tokens predicted
    std::string text;
};

struct Report {
    std::string model;  // a description for a person
    bool is_trained = false;
    std::string backend;
    size_t block_tokens = 0;
    size_t chunk_tokens = 0;
    std::vector<ReportText> texts;    // the greedy one first
    std::vector<FormatCost> formats;  // f32 first
};

void print_table(std::ostream &out, const Report &report);
void print_json(std::ostream &out, const Report &report);

}  // namespace accuracy
