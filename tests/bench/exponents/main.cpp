// SPDX-License-Identifier: Apache-2.0
//
// How the time of calls grows with the quantities stated in the headers; README.md says how it is
// measured.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "case.hpp"

namespace quire::bench {

namespace {

constexpr double kTolerance = 0.25;  // for an exponent: outgrown caches and noise
constexpr int kLeastRuns = 3, kMostRuns = 25;
constexpr int kAttempts = 3;  // a case found too steep is measured again

struct Options {
    std::vector<std::string> names;
    double seconds = 0.2;
    uint32_t scale = 1;
    bool json = false;
};

struct Measured {
    uint32_t sizes[kSizes];
    double seconds[kSizes];
    double exponent;
    bool holds;
};

// Runs only by name: its time grows with the square of its size, but it states that it is linear.
double planted(uint32_t size) {
    volatile uint32_t sum = 0;
    return seconds_of([&] {
        for (uint32_t i = 0; i < size; ++i) {
            for (uint32_t k = 0; k < size; ++k) sum = sum + k;
        }
    });
}

std::vector<Case> all_cases() {
    std::vector<Case> all;
    for (auto part : {sequence_cases, step_cases, prefix_cases}) {
        for (Case &one : part()) all.push_back(one);
    }
    return all;
}

const Case kPlanted = {"planted_square", "", "nothing", 1, 512, planted};

// The slope of the least-squares line through the logarithms.
double fit(const Measured &of) {
    double mean_x = 0, mean_y = 0, xy = 0, xx = 0;
    for (uint32_t i = 0; i < kSizes; ++i) {
        mean_x += std::log(of.sizes[i]) / kSizes;
        mean_y += std::log(of.seconds[i]) / kSizes;
    }
    for (uint32_t i = 0; i < kSizes; ++i) {
        double x = std::log(of.sizes[i]) - mean_x;
        xy += x * (std::log(of.seconds[i]) - mean_y);
        xx += x * x;
    }
    return xy / xx;
}

// The least time of several runs, cycling through the sizes, so that a change of the machine's
// speed affects all of them.
void measure(const Case &one, const Options &options, Measured *out) {
    double spent = 0;
    for (double &seconds : out->seconds) seconds = 1e9;
    for (int run = 0; run < kLeastRuns || (spent < options.seconds && run < kMostRuns); ++run) {
        for (uint32_t i = 0; i < kSizes; ++i) {
            spent += seconds_of(
                [&] { out->seconds[i] = std::min(out->seconds[i], one.measure(out->sizes[i])); });
        }
    }
    out->exponent = fit(*out);
    out->holds = out->exponent <= one.stated + kTolerance;
}

Measured measure_until_it_holds(const Case &one, const Options &options) {
    Measured best{};
    for (uint32_t i = 0; i < kSizes; ++i) {
        best.sizes[i] = std::max(one.smallest / options.scale, 1u) << i;
    }
    measure(one, options, &best);
    for (int i = 1; i < kAttempts && !best.holds && options.scale == 1; ++i) {
        Measured again = best;
        measure(one, options, &again);
        if (again.exponent < best.exponent) best = again;
    }
    return best;
}

class Report {
 public:
    explicit Report(const Options &options) : options_(options) {
        object_["scale"] = options.scale;
        object_["tolerance"] = kTolerance;
        object_["cases"] = nlohmann::ordered_json::array();
        if (options.json) return;
        if (options.scale != 1)
            std::printf("sizes are divided by %u: bounds are not checked\n", options.scale);
        std::printf("%-32s%-24s%10s%40s%10s%8s\n", "call", "grows with", "smallest",
                    "microseconds, sizes doubled", "exponent", "stated");
    }

    void add(const Case &one, const Measured &measured) {
        bool is_held = options_.scale == 1;
        has_failed_ = has_failed_ || (is_held && !measured.holds);
        nlohmann::ordered_json result = {
            {"case", one.name},     {"function", one.function},      {"grows_with", one.grows_with},
            {"stated", one.stated}, {"exponent", measured.exponent}, {"holds", measured.holds}};
        for (uint32_t i = 0; i < kSizes; ++i) {
            result["sizes"].push_back(measured.sizes[i]);
            result["microseconds"].push_back(measured.seconds[i] * 1e6);
        }
        object_["cases"].push_back(result);
        if (options_.json) return;
        std::printf("%-32s%-24s%10u", one.name.c_str(), one.grows_with.c_str(), measured.sizes[0]);
        for (double seconds : measured.seconds)
            std::printf("%10.*f", seconds < 1e-4 ? 2 : 0, seconds * 1e6);
        std::printf("%10.2f%8.0f%s\n", measured.exponent, one.stated,
                    is_held && !measured.holds ? "  TOO STEEP" : "");
        std::fflush(stdout);
    }

    // False if a call grows faster than its header says.
    bool finish() const {
        if (options_.json) std::printf("%s\n", object_.dump(2).c_str());
        return !has_failed_;
    }

 private:
    const Options &options_;
    nlohmann::ordered_json object_;
    bool has_failed_ = false;
};

std::optional<Options> parse(int argc, char **argv, const std::vector<Case> &all, int *status) {
    Options options;
    std::vector<std::string> names;
    for (const Case &one : all) names.push_back(one.name);
    options.names = names;
    names.push_back(kPlanted.name);
    CLI::App app(
        "Fits the exponent with which the time of calls grows, and compares it with what the "
        "headers state. Exits with 1 if one is more than 0.25 above the stated one.",
        "./dev bench exponents");
    app.footer("Example: ./dev bench exponents --case fork failed_step --json");
    app.add_option("--case", options.names, "only these; default: all")
        ->check(CLI::IsMember(names));
    app.add_option("--seconds", options.seconds,
                   "measure each case for this long; at least 3 times, at most 25")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    app.add_option("--scale", options.scale,
                   "divide sizes, for a quick look: the exponents are then meaningless")
        ->check(CLI::Range(1u, 1u << 20))
        ->capture_default_str();
    app.add_flag("--json", options.json, "one JSON object on standard output");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        *status = app.exit(error);
        return std::nullopt;
    }
    return options;
}

}  // namespace

}  // namespace quire::bench

int main(int argc, char **argv) {
    using namespace quire::bench;
    std::vector<Case> all = all_cases();
    int status = 0;
    std::optional<Options> options = parse(argc, argv, all, &status);
    if (!options) return status;
    all.push_back(kPlanted);
    Report report(*options);
    for (const Case &one : all) {
        const std::vector<std::string> &names = options->names;
        if (std::find(names.begin(), names.end(), one.name) == names.end()) continue;
        report.add(one, measure_until_it_holds(one, *options));
    }
    return report.finish() ? 0 : 1;
}
