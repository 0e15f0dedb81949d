// SPDX-License-Identifier: Apache-2.0

#include "report.hpp"

#include <algorithm>
#include <cstdio>

#include "tests/bench/scene/heading.hpp"

namespace quire::bench {

namespace {

// The plain read must keep up with streaming, or it would flatter the figures beside it.
constexpr double kTableReadTarget = 0.9;
constexpr uint32_t kTargetDim = 128;

constexpr const char *kHeading =
    "case                    dtype    threads        ms     GB/s   table    stream "
    "| of stream  of table  of roofline";
// The host's part, if the other columns do not include it.
constexpr const char *kHostHeading = " |  plan us  call us";

// 0 means not measured.
nlohmann::ordered_json number_or_null(double value) {
    return value != 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

std::string shown(const nlohmann::ordered_json &number, double times, int digits) {
    if (number.is_null()) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", digits, times * number.get<double>());
    return text;
}

nlohmann::ordered_json head_of(const Subject &subject) {
    return {{"case", subject.name}, {"dtype", subject.dtype.name}, {"threads", subject.threads}};
}

}  // namespace

Report::Report(bool is_json, uint32_t scale) : is_json_(is_json), scale_(scale) {
    object_["machine"] = {{"stream_gbps", nlohmann::ordered_json::object()},
                          {"fma_gflops", nlohmann::ordered_json::object()}};
    object_["cases"] = nlohmann::ordered_json::array();
}

void Report::add_device(const std::string &name, const char *clock) {
    clock_ = clock;
    add_heading(name, scale_, is_json_, &object_);
}

void Report::add_machine(uint32_t threads, const Streaming &streaming, double fma_gflops) {
    floors_[threads] = {streaming.gbps, fma_gflops};
    object_["machine"]["stream_gbps"][std::to_string(threads)] = streaming.gbps;
    object_["machine"]["stream_pattern"][std::to_string(threads)] = streaming.pattern;
    object_["machine"]["fma_gflops"][std::to_string(threads)] = number_or_null(fma_gflops);
    if (is_json_) return;
    std::printf("%u threads: streaming %.2f GB/s (%s)", threads, streaming.gbps, streaming.pattern);
    if (fma_gflops != 0) std::printf(", multiply-and-add %.1f GFLOP/s", fma_gflops);
    std::printf("\n");
    std::fflush(stdout);
}

void Report::add(const Subject &subject, const Measured &measured) {
    const Floor &floor = floors_.at(subject.threads);
    double bytes = static_cast<double>(measured.unique_bytes);
    double gbps = bytes / measured.seconds / 1e9;
    bool has_table = measured.table_seconds != 0;
    double table_gbps = has_table ? bytes / measured.table_seconds / 1e9 : 0.0;
    double roofline_seconds = bytes / (floor.stream_gbps * 1e9);
    if (floor.fma_gflops != 0) {
        roofline_seconds =
            std::max(roofline_seconds, measured.operations / (floor.fma_gflops * 1e9));
    }
    nlohmann::ordered_json result = head_of(subject);
    result["q_dtype"] = measured.q_dtype;
    result["clock"] = clock_;
    result["milliseconds"] = measured.seconds * 1e3;
    result["gbps"] = gbps;
    result["table_read_gbps"] = number_or_null(table_gbps);
    result["share_of_stream"] = gbps / floor.stream_gbps;
    result["share_of_table_read"] = number_or_null(has_table ? gbps / table_gbps : 0.0);
    result["share_of_roofline"] = roofline_seconds / measured.seconds;
    // The best of each: a disturbance of one of them is not the read's fault.
    result["table_read_share_of_stream"] = number_or_null(
        has_table ? bytes / measured.best_table_seconds / 1e9 / floor.stream_gbps : 0.0);
    result["plan_us"] = measured.plan_seconds * 1e6;
    result["call_us"] = measured.call_seconds * 1e6;
    result["gflops"] = measured.operations / measured.seconds / 1e9;
    result["unique_bytes"] = measured.unique_bytes;
    result["layers"] = measured.layers;
    result["rounds"] = measured.rounds;
    print(result, subject);
    add_case(result, is_json_, &object_["cases"]);
}

void Report::add_without_figures(const Subject &subject, const char *outcome,
                                 const std::string &why) {
    has_failed_ = has_failed_ || std::string(outcome) == "failed";
    nlohmann::ordered_json result = head_of(subject);
    for (const char *key : {"milliseconds", "gbps", "table_read_gbps", "share_of_stream",
                            "share_of_table_read", "share_of_roofline"}) {
        result[key] = nullptr;
    }
    result[outcome] = why;
    print_heading();
    add_case(result, is_json_, &object_["cases"]);
    if (is_json_) return;
    std::printf("%-23s %-8s %7u  %s: %s\n", subject.name.c_str(), subject.dtype.name,
                subject.threads, outcome, why.c_str());
}

// Printed before the first case.
void Report::print_heading() const {
    if (is_json_ || !object_["cases"].empty()) return;
    std::printf("\n%s%s\n", kHeading, has_device_clock() ? kHostHeading : "");
}

void Report::print(const nlohmann::ordered_json &result, const Subject &subject) const {
    const nlohmann::ordered_json &share = result["table_read_share_of_stream"];
    bool has_table = !share.is_null();
    double table_share = has_table ? share.get<double>() : 0.0;
    if (has_table && scale_ == 1 && subject.dim == kTargetDim && table_share < kTableReadTarget) {
        std::fprintf(stderr,
                     "the table read reaches %.0f %% of streaming, and should reach %.0f %%: the "
                     "read is slow, or other programs are running\n",
                     100 * table_share, 100 * kTableReadTarget);
    }
    print_heading();
    if (is_json_) return;
    std::printf(
        "%-23s %-8s %7u %9.3f %8.2f %7s %9.2f | %7.1f %% %7s %% %10.1f %%", subject.name.c_str(),
        subject.dtype.name, subject.threads, result["milliseconds"].get<double>(),
        result["gbps"].get<double>(), shown(result["table_read_gbps"], 1, 2).c_str(),
        floors_.at(subject.threads).stream_gbps, 100 * result["share_of_stream"].get<double>(),
        shown(result["share_of_table_read"], 100, 1).c_str(),
        100 * result["share_of_roofline"].get<double>());
    if (has_device_clock()) {
        std::printf(" | %8.1f %8.1f", result["plan_us"].get<double>(),
                    result["call_us"].get<double>());
    }
    std::printf("\n");
    std::fflush(stdout);
}

bool Report::finish() const {
    if (is_json_) std::printf("%s\n", object_.dump(2).c_str());
    return !has_failed_ && !object_["cases"].empty();
}

}  // namespace quire::bench
