// SPDX-License-Identifier: Apache-2.0

#include "print.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace quire::conformance {

namespace {

[[gnu::format(printf, 2, 3)]] void put(std::string *out, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    *out += line;
}

void put_head(std::string *out, const RunResult &result) {
    const Json &subject = result.subject;
    Json device = subject.value("device", Json());
    std::string name = subject.value("name", "(no name)");
    put(out, "%s %s, backend ABI %s\n", harmless(name).c_str(),
        harmless(subject.value("version", "")).c_str(), subject.value("abi", "?").c_str());
    if (device.is_object()) {
        put(out, "device: %s\n", harmless(device.value("name", "")).c_str());
    }
    *out += "\n";
}

// One line per case, or one for adjacent cases of a suite that share a reason.
void put_skips(std::string *out, const RunResult &result) {
    auto suite_of = [](const CaseResult &one) { return one.name.substr(0, one.name.find('.')); };
    for (size_t i = 0; i < result.cases.size();) {
        const CaseResult &first = result.cases[i];
        size_t end = i + 1;
        if (first.outcome != Outcome::skipped) {
            i = end;
            continue;
        }
        while (end < result.cases.size() && result.cases[end].outcome == Outcome::skipped &&
               suite_of(result.cases[end]) == suite_of(first) &&
               result.cases[end].text == first.text) {
            ++end;
        }
        std::string what = first.name;
        if (end - i > 1) what = std::to_string(end - i) + " cases of " + suite_of(first);
        std::string reason = harmless(first.text.substr(0, first.text.find('\n')));
        put(out, "skipped: %s: %s\n", what.c_str(), reason.c_str());
        i = end;
    }
}

// The random shapes and schedules that ran, one line per case.
void put_random(std::string *out, const RunResult &result) {
    if (result.random_shapes == 0) return;
    put(out, "\n%llu random attention shapes; the largest error is %.2f of the bound\n",
        static_cast<unsigned long long>(result.random_shapes), result.largest_error);
    for (const CaseResult &one : result.cases) {
        uint64_t shapes = one.figures.value("random_shapes", uint64_t{0});
        uint64_t schedules = one.figures.value("schedules", uint64_t{0});
        if (shapes != 0) {
            put(out, "  %-28s %5llu shapes     %.2f\n", row_of(one.name).c_str(),
                static_cast<unsigned long long>(shapes), one.figures.value("largest_error", 0.0));
        }
        if (schedules != 0) {
            put(out, "  %-28s %5llu schedules  the same bits\n", "batches, chunks, pages",
                static_cast<unsigned long long>(schedules));
        }
    }
}

// The cost of codes, one line per type and kind of scales.
void put_codes(std::string *out, const RunResult &result) {
    bool is_first = true;
    for (const CaseResult &one : result.cases) {
        for (const char *scales : {"per_tensor", "per_head", "per_token_and_head"}) {
            std::string nmse = std::string("nmse_") + scales;
            if (!one.figures.contains(nmse)) continue;
            if (is_first)
                *out += "\noutput over codes compared with output over the original values\n";
            is_first = false;
            std::string words = scales;
            std::replace(words.begin(), words.end(), '_', ' ');
            put(out, "  %-10s %-18s  NMSE %.2e  largest difference %.2e\n",
                row_of(one.name).c_str(), words.c_str(), one.figures.value(nmse, 0.0),
                one.figures.value(std::string("largest_difference_") + scales, 0.0));
        }
    }
}

void put_failures(std::string *out, const RunResult &result) {
    for (const CaseResult &one : result.cases) {
        if (one.outcome != Outcome::failed) continue;
        put(out, "\nFAILED: %s\n", one.name.c_str());
        std::string text = harmless(one.text);
        for (size_t at = 0; at < text.size();) {
            size_t end = text.find('\n', at);
            if (end == std::string::npos) end = text.size();
            put(out, "    %.600s\n", text.substr(at, end - at).c_str());
            at = end + 1;
        }
        *out += "    rerun: " + harmless(result.again + one.name) + "\n";
    }
}

Json json_of(const Finding &finding) {
    Json out;
    out["name"] = finding.capability->name;
    out["need"] = finding.capability->need == Need::must ? "must" : "may";
    out["outcome"] = word_of(finding.outcome);
    out["reason"] = finding.reason;
    out["cases"] = {
        {"passed", finding.passed}, {"failed", finding.failed}, {"skipped", finding.skipped}};
    return out;
}

Json json_of(const Count &count) {
    return {{"passed", count.passed}, {"failed", count.failed}, {"skipped", count.skipped}};
}

}  // namespace

std::string harmless(const std::string &text) {
    std::string out = text;
    for (char &c : out) {
        auto byte = static_cast<unsigned char>(c);
        if ((byte < 0x20 && c != '\n') || byte == 0x7F) c = '?';
    }
    return out;
}

std::string row_of(const std::string &case_name) {
    std::string row = case_name.substr(case_name.find('.') + 1);
    size_t over = row.find("_over_");
    if (over != std::string::npos) row = row.substr(over + 6, row.find("_agree") - over - 6);
    std::replace(row.begin(), row.end(), '_', ' ');
    return row;
}

std::string table_of(const RunResult &result) {
    std::string out;
    put_head(&out, result);
    if (!result.cannot.empty()) put(&out, "%s\n\n", harmless(result.cannot).c_str());
    put(&out, "%-26s %-5s %-8s %s\n", "capability", "need", "outcome", "cases passed, or reason");
    for (const Finding &finding : result.verdict.findings) {
        if (finding.outcome == Outcome::not_run) continue;
        std::string last = std::to_string(finding.passed);
        if (finding.outcome != Outcome::passed) last = harmless(finding.reason);
        put(&out, "%-26s %-5s %-8s %s\n", finding.capability->name,
            finding.capability->need == Need::must ? "must" : "may", word_of(finding.outcome),
            last.c_str());
    }
    put_skips(&out, result);
    put_failures(&out, result);
    const Verdict &verdict = result.verdict;
    put_random(&out, result);
    put_codes(&out, result);
    put(&out, "\ncapabilities: %u yes, %u no, %u skip\n", verdict.capabilities.passed,
        verdict.capabilities.failed, verdict.capabilities.skipped);
    put(&out, "cases: %u passed, %u failed, %u skipped, %.1f s\n", verdict.cases.passed,
        verdict.cases.failed, verdict.cases.skipped, result.seconds);
    put(&out, "%s\n", sentence_of(verdict).c_str());
    return out;
}

Json json_of(const RunResult &result) {
    Json out;
    out["passed"] = result.verdict.has_passed;
    out["partial"] = result.verdict.is_partial;
    out["verdict"] = sentence_of(result.verdict);
    out["missing"] = result.verdict.missing;
    out["started"] = result.started;
    out["seconds"] = result.seconds;
    out["random_shapes"] = result.random_shapes;
    out["largest_error"] = result.largest_error;
    out["cannot"] = result.cannot;
    out["counts"] = {{"capabilities",
                      {{"yes", result.verdict.capabilities.passed},
                       {"no", result.verdict.capabilities.failed},
                       {"skip", result.verdict.capabilities.skipped}}},
                     {"cases", json_of(result.verdict.cases)}};
    out["capabilities"] = Json::array();
    for (const Finding &finding : result.verdict.findings) {
        out["capabilities"].push_back(json_of(finding));
    }
    out["cases"] = Json::array();
    for (const CaseResult &one : result.cases) {
        const char *outcome = one.outcome == Outcome::passed   ? "passed"
                              : one.outcome == Outcome::failed ? "failed"
                                                               : "skipped";
        out["cases"].push_back({{"name", one.name},
                                {"outcome", outcome},
                                {"seconds", one.seconds},
                                {"text", one.text},
                                {"figures", one.figures}});
    }
    out["subject"] = result.subject;
    return out;
}

}  // namespace quire::conformance
