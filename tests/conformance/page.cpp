// SPDX-License-Identifier: Apache-2.0

#include "page.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>

#include "page_style.hpp"
#include "print.hpp"

namespace quire::conformance {

namespace {

std::string number(const char *format, double value) {
    char text[64];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

std::string chip(const char *kind, const std::string &word) {
    return std::string("<span class=\"chip ") + kind + "\">" + word + "</span>";
}

const char *kind_of(Outcome outcome) {
    if (outcome == Outcome::passed) return "yes";
    return outcome == Outcome::failed ? "no" : "skip";
}

std::string fact(const char *name, const std::string &value) {
    if (value.empty()) return {};
    return std::string("<div><dt>") + name + "</dt><dd>" + escape(value) + "</dd></div>\n";
}

std::string plural(uint64_t count, const char *one, const char *many) {
    return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string gib(uint64_t bytes) {
    return number("%.1f GiB", static_cast<double>(bytes) / (uint64_t{1} << 30));
}

std::string bar_of(const Verdict &verdict) {
    std::string out = "<div class=\"bar\">";
    auto part = [&](const char *kind, uint32_t count) {
        if (count == 0) return;
        out += std::string("<i class=\"") + kind + "\" style=\"flex:" + std::to_string(count) +
               "\"></i>";
    };
    part("yes", verdict.capabilities.passed);
    part("no", verdict.capabilities.failed);
    part("skip", verdict.capabilities.skipped);
    return out + "</div>\n";
}

std::string hero_of(const RunResult &result) {
    const Verdict &verdict = result.verdict;
    const Json &subject = result.subject;
    std::string name = subject.value("name", "The plugin");
    bool is_whole = !verdict.is_partial;
    const char *kind = !verdict.has_passed ? "no" : is_whole ? "yes" : "skip";
    const char *words = verdict.has_passed ? (is_whole ? " conforms" : " passed in part")
                                           : (is_whole ? " does not conform" : " failed in part");
    std::string out = std::string("<section class=\"card hero ") + kind + "\">\n";
    out += "<div class=\"kicker\">Quire backend conformance</div>\n<h1>" + escape(name) +
           "<span class=\"" + kind + "\">" + words + "</span></h1>\n";
    if (!verdict.has_passed || !is_whole)
        out += "<div>" + escape(sentence_of(verdict)) + "</div>\n";
    if (!result.cannot.empty()) out += "<pre>" + escape(result.cannot) + "</pre>\n";
    out += bar_of(verdict);
    out += "<div class=\"small\">capabilities: <b class=\"yes\">" +
           std::to_string(verdict.capabilities.passed) + " yes</b>, <b class=\"no\">" +
           std::to_string(verdict.capabilities.failed) + " no</b>, <b class=\"skip\">" +
           std::to_string(verdict.capabilities.skipped) +
           " skip</b> &ensp; cases: " + std::to_string(verdict.cases.passed) + " passed, " +
           std::to_string(verdict.cases.failed) + " failed, " +
           std::to_string(verdict.cases.skipped) + " skipped</div>\n<dl class=\"facts\">\n";
    Json device = subject.value("device", Json());
    out += fact("backend", subject.value("name", "") + " " + subject.value("version", ""));
    out += fact("plugin ABI", subject.value("abi", ""));
    out += fact("libquire", result.library);
    if (device.is_object()) {
        out += fact("device", device.value("name", ""));
        out += fact(
            "device memory",
            gib(device.value("memory_total_bytes", uint64_t{0})) +
                (device.value("host_visible", false) ? ", host-visible" : ", not host-visible"));
    }
    std::string day = result.started.substr(0, result.started.find('T'));
    out += fact("run", day + ", " + number("%.1f s", result.seconds));
    return out + "</dl>\n</section>\n";
}

std::string capability_table(const Verdict &verdict) {
    std::string out =
        "<h2>Capabilities</h2>\n<p class=\"lead\">Required and optional capabilities of a backend. "
        "<b>yes</b>: offered, and its cases passed; <b>skip</b>: not offered, or could not be "
        "tested here; <b>no</b>: failed.</p>\n<section class=\"card\"><table>\n<thead><tr>"
        "<th></th><th>capability</th><th>need</th><th>what it means</th><th class=\"n\">cases</th>"
        "</tr></thead>\n";
    for (const Finding &finding : verdict.findings) {
        if (finding.outcome == Outcome::not_run) continue;
        const Capability &one = *finding.capability;
        out += "<tr><td>" + chip(kind_of(finding.outcome), word_of(finding.outcome)) + "</td><td>" +
               escape(one.name) + "</td><td class=\"small\">" +
               (one.need == Need::must ? "must" : "may") + "</td><td>" + escape(one.sentence);
        if (!finding.reason.empty()) {
            out += "<div class=\"small\">" + escape(finding.reason) + "</div>";
        }
        out += "</td><td class=\"n\">" + std::to_string(finding.passed) + "</td></tr>\n";
    }
    return out + "</table></section>\n";
}

// One cell of the matrix: the answers for all block sizes.
struct Cell {
    std::vector<uint32_t> yes, slow;
    uint32_t asked = 0;
    size_t note = 0;  // 1-based; the note of the first no
    std::string reason;
};

class Matrix {
 public:
    explicit Matrix(const Json &answers);
    std::string html() const;

 private:
    struct Row {
        std::string types;
        std::map<std::pair<uint32_t, uint32_t>, Cell> cells;  // by K and V head dim
    };
    struct Table {
        std::string kind;
        std::vector<Row> rows;
    };
    Row *row_of(const std::string &kind, const std::string &types);
    size_t note_of(const std::string &reason);
    static std::string cell_html(const Cell &cell);

    std::vector<Table> tables_;
    std::vector<std::string> notes_;
    std::vector<std::pair<uint32_t, uint32_t>> dims_;
};

Matrix::Row *Matrix::row_of(const std::string &kind, const std::string &types) {
    if (tables_.empty() || tables_.back().kind != kind) tables_.push_back({kind, {}});
    std::vector<Row> &rows = tables_.back().rows;
    if (rows.empty() || rows.back().types != types) rows.push_back({types, {}});
    return &rows.back();
}

size_t Matrix::note_of(const std::string &reason) {
    auto found = std::find(notes_.begin(), notes_.end(), reason);
    if (found == notes_.end()) found = notes_.insert(notes_.end(), reason);
    return static_cast<size_t>(found - notes_.begin()) + 1;
}

// "f16 · int8 per head · int8 per head"
std::string types_of(const Json &answer) {
    std::string types = answer.value("q", "");
    for (const char *side : {"k", "v"}) {
        std::string scales = answer.value(std::string(side) + "_scales", "");
        types += (types.empty() ? "" : " · ") + answer.value(side, "");
        if (!scales.empty()) types += " " + scales;
    }
    return types;
}

Matrix::Matrix(const Json &answers) {
    for (const Json &answer : answers) {
        std::string types = types_of(answer);
        std::pair<uint32_t, uint32_t> dims = {answer.value("k_dim", 0u), answer.value("v_dim", 0u)};
        if (std::find(dims_.begin(), dims_.end(), dims) == dims_.end()) dims_.push_back(dims);
        Cell &cell = row_of(answer.value("kind", ""), types)->cells[dims];
        ++cell.asked;
        uint32_t block_tokens = answer.value("block_tokens", 0u);
        std::string support = answer.value("support", "");
        if (support == "no") {
            if (cell.note == 0) cell.note = note_of(answer.value("reason", ""));
            cell.reason = answer.value("reason", "");
        } else {
            (support == "slow" ? cell.slow : cell.yes).push_back(block_tokens);
        }
    }
}

std::string Matrix::cell_html(const Cell &cell) {
    size_t offered = cell.yes.size() + cell.slow.size();
    std::string note = cell.note == 0 ? "" : "<sup>" + std::to_string(cell.note) + "</sup>";
    std::string title = cell.reason.empty() ? "" : " title=\"" + escape(cell.reason) + "\"";
    if (offered == 0) return "<td class=\"no\"" + title + ">no" + note + "</td>";
    if (cell.yes.size() == cell.asked) return "<td class=\"yes\">yes</td>";
    if (cell.slow.size() == cell.asked) return "<td class=\"skip\">slow</td>";
    std::string sizes;
    for (uint32_t size : cell.yes) sizes += (sizes.empty() ? "" : " ") + std::to_string(size);
    for (uint32_t size : cell.slow) {
        sizes += (sizes.empty() ? "" : " ") + std::to_string(size) + " (slow)";
    }
    return "<td class=\"skip\"" + title + ">blocks of " + sizes + note + "</td>";
}

std::string Matrix::html() const {
    if (tables_.empty()) return {};
    std::string out =
        "<h2>Attention shapes</h2>\n<p class=\"lead\">What <code>query_attention</code> answers "
        "for shapes that engines use: types of q, K and V down, head dims across, over blocks of "
        "1, 8, 16, 32, 64 and 128 tokens (options: 16 only). The small numbers refer to the "
        "reasons below.</p>\n"
        "<section class=\"card\">\n";
    for (const Table &table : tables_) {
        out += "<table class=\"matrix\"><caption>" + escape(table.kind) +
               "</caption>\n<thead><tr><th></th>";
        for (auto [k, v] : dims_) {
            out += "<th>" + std::to_string(k) + (k == v ? "" : " / " + std::to_string(v)) + "</th>";
        }
        out += "</tr></thead>\n";
        for (const Row &row : table.rows) {
            out += "<tr><td>" + escape(row.types) + "</td>";
            for (auto dims : dims_) {
                auto cell = row.cells.find(dims);
                out += cell == row.cells.end() ? "<td></td>" : cell_html(cell->second);
            }
            out += "</tr>\n";
        }
        out += "</table>\n";
    }
    out += "<ol class=\"notes\">\n";
    for (const std::string &note : notes_) out += "<li>" + escape(note) + "</li>\n";
    return out + "</ol>\n</section>\n";
}

// The random shapes, by the kind of case, and the random schedules.
std::string errors_of(const RunResult &result) {
    std::string rows;
    uint64_t schedules = 0;
    for (const CaseResult &one : result.cases) {
        schedules += one.figures.value("schedules", uint64_t{0});
        if (!one.figures.contains("largest_error")) continue;
        double share = one.figures.value("largest_error", 0.0);
        rows += "<div class=\"share\"><span>" + escape(row_of(one.name)) +
                " <span class=\"small\">" +
                plural(one.figures.value("random_shapes", uint64_t{0}), "shape", "shapes") +
                "</span></span><div><i style=\"width:" +
                number("%.1f", std::clamp(share, 0.0, 1.0) * 100) +
                "%\"></i></div><b class=\"n\">" + number("%.2f", share) + "</b></div>\n";
    }
    if (rows.empty()) return {};
    return "<h2>Accuracy</h2>\n<p class=\"lead\">" +
           plural(result.random_shapes, "random shape", "random shapes") +
           " against an oracle in double precision. The bar is the largest error as a share of the "
           "bound that f32 arithmetic allows: at 1.00 the case fails." +
           (schedules == 0 ? ""
                           : " " + plural(schedules, "random schedule", "random schedules") +
                                 " of the same contents gave the same bits.") +
           "</p>\n<section class=\"card\">\n" + rows + "</section>\n";
}

// The cost of codes: output over codes against output over the values that they encode.
std::string codes_of(const RunResult &result) {
    std::string rows;
    for (const CaseResult &one : result.cases) {
        for (const char *scales : {"per_tensor", "per_head", "per_token_and_head"}) {
            std::string nmse = std::string("nmse_") + scales;
            if (!one.figures.contains(nmse)) continue;
            std::string largest = std::string("largest_difference_") + scales;
            std::string words = scales;
            std::replace(words.begin(), words.end(), '_', ' ');
            rows += "<tr><td>" + escape(row_of(one.name)) + "</td><td>" + words +
                    "</td><td class=\"n\">" + number("%.2e", one.figures.value(nmse, 0.0)) +
                    "</td><td class=\"n\">" + number("%.2e", one.figures.value(largest, 0.0)) +
                    "</td></tr>\n";
        }
    }
    if (rows.empty()) return {};
    return "<h2>Cost of quantisation</h2>\n<p class=\"lead\">The output over quantised K and V "
           "against exact attention over the values that were given, uniform in [-1, 1): the "
           "sum of squared differences over the sum of squares, and the largest difference.</p>\n"
           "<section class=\"card\">\n<table><tr><th>K and V</th><th>scales</th>"
           "<th>NMSE</th><th>largest</th></tr>\n" +
           rows + "</table>\n</section>\n";
}

std::string words_of(const std::string &name) {
    std::string words = name.substr(name.find('.') + 1);
    std::replace(words.begin(), words.end(), '_', ' ');
    return words;
}

std::string area_html(const std::string &area, const std::vector<const CaseResult *> &cases) {
    Count count;
    double seconds = 0.0;
    std::string rows;
    for (const CaseResult *one : cases) {
        seconds += one->seconds;
        if (one->outcome == Outcome::passed) ++count.passed;
        if (one->outcome == Outcome::failed) ++count.failed;
        if (one->outcome == Outcome::skipped) ++count.skipped;
        const char *word = one->outcome == Outcome::passed   ? "passed"
                           : one->outcome == Outcome::failed ? "failed"
                                                             : "skipped";
        rows += "<tr><td>" + chip(kind_of(one->outcome), word) + "</td><td>" +
                escape(words_of(one->name));
        if (!one->text.empty()) rows += "<pre>" + escape(one->text) + "</pre>";
        rows += "</td><td class=\"n\">" + number("%.0f ms", one->seconds * 1000) + "</td></tr>\n";
    }
    std::string name = area;
    if (name.ends_with("Test")) name.resize(name.size() - 4);
    std::string out = count.failed != 0 ? "<details open>" : "<details>";
    out += "<summary><b>" + escape(name) + "</b>";
    if (count.failed != 0) out += chip("no", plural(count.failed, "failed", "failed"));
    if (count.skipped != 0) out += chip("skip", plural(count.skipped, "skipped", "skipped"));
    if (count.passed != 0) out += chip("yes", plural(count.passed, "passed", "passed"));
    out += "<span class=\"small\">" + number("%.2f s", seconds) + "</span></summary>\n";
    return out + "<table>" + rows + "</table></details>\n";
}

std::string cases_of(const RunResult &result) {
    std::vector<std::pair<std::string, std::vector<const CaseResult *>>> areas;
    for (const CaseResult &one : result.cases) {
        std::string area = one.name.substr(0, one.name.find('.'));
        if (areas.empty() || areas.back().first != area) areas.push_back({area, {}});
        areas.back().second.push_back(&one);
    }
    if (areas.empty()) return {};
    std::string out =
        "<h2>Cases</h2>\n<p class=\"lead\">Each name is a claim. Click an area to open it.</p>\n"
        "<section class=\"card\">\n";
    for (const auto &[area, cases] : areas) out += area_html(area, cases);
    return out + "</section>\n";
}

// Length of the UTF-8 sequence at `at`; 0 if it is not well formed.
size_t sequence_length(const std::string &text, size_t at) {
    auto byte = [&](size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
    };
    unsigned lead = byte(at);
    if (lead < 0x80) return 1;
    size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    for (size_t i = 1; i < length; ++i) {
        if ((byte(at + i) & 0xC0) != 0x80) return 0;
    }
    bool is_overlong =
        (lead == 0xE0 && byte(at + 1) < 0xA0) || (lead == 0xF0 && byte(at + 1) < 0x90);
    bool is_beyond =
        (lead == 0xED && byte(at + 1) >= 0xA0) || (lead == 0xF4 && byte(at + 1) >= 0x90);
    return is_overlong || is_beyond ? 0 : length;
}

}  // namespace

std::string escape(const std::string &text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        size_t length = sequence_length(text, at);
        auto byte = static_cast<unsigned char>(text[at]);
        bool is_control = length == 1 && byte < 0x20 && byte != '\n' && byte != '\t';
        if (length == 0 || is_control || byte == 0x7F) {
            out += "\xEF\xBF\xBD";
        } else if (byte == '&') {
            out += "&amp;";
        } else if (byte == '<') {
            out += "&lt;";
        } else if (byte == '>') {
            out += "&gt;";
        } else if (byte == '"') {
            out += "&quot;";
        } else if (byte == '\'') {
            out += "&#39;";
        } else {
            out.append(text, at, length);
        }
        at += std::max<size_t>(length, 1);
    }
    return out;
}

std::string page_of(const RunResult &result) {
    std::string name = escape(result.subject.value("name", "a plugin"));
    std::string out =
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<title>Quire conformance: " +
        name + "</title>\n<style>";
    out += kPageStyle;
    out += "</style>\n</head>\n<body>\n<main>\n";
    out += hero_of(result);
    out += capability_table(result.verdict);
    out += errors_of(result);
    out += codes_of(result);
    out += Matrix(result.subject.value("matrix", Json::array())).html();
    out += cases_of(result);
    out +=
        "<footer>Made by <code>quire conform</code>. This page loads nothing from "
        "elsewhere.</footer>\n</main>\n</body>\n</html>\n";
    return out;
}

}  // namespace quire::conformance
