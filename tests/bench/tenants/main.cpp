// SPDX-License-Identifier: Apache-2.0
//
// What a tenant learns from how long its calls take about a prompt that another tenant computed;
// README.md says how it is measured.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "tests/bench/exponents/engine.hpp"

namespace quire::bench {

namespace {

constexpr uint32_t kBlocks = 1 << 12;

struct Options {
    uint32_t trials = 4000;
    uint32_t tokens = 1024;
    bool json = false;
};

// Who computed the prompt, before the tenant that asks about it does.
struct Case {
    const char *name;
    bool same_namespace;
    const char *salt;  // of the tenant that computed it; NULL: none, as the one that asks
    bool computed;     // false: that one computed another prompt, of the same length
};
constexpr Case kCases[] = {
    {"no one", false, nullptr, false},
    {"no one, again", false, nullptr, false},
    {"another namespace", false, nullptr, true},
    {"the same namespace, another salt", true, "s", true},
    {"the same namespace", true, nullptr, true},
};
constexpr size_t kCaseCount = std::size(kCases);

struct Times {
    std::vector<double> nanoseconds;
    uint64_t found = 0;  // tokens
};

double share(size_t count, const std::vector<double> &of) {
    return static_cast<double>(count) / static_cast<double>(of.size());
}

// The greatest difference between the shares of two lists that lie below some bound.
double distance(std::vector<double> a, std::vector<double> b) {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    double greatest = 0;
    size_t i = 0, k = 0;
    while (i < a.size() && k < b.size()) {
        double bound = std::min(a[i], b[k]);
        while (i < a.size() && a[i] <= bound) ++i;
        while (k < b.size() && b[k] <= bound) ++k;
        greatest = std::max(greatest, std::fabs(share(i, a) - share(k, b)));
    }
    return greatest;
}

class Tenants {
 public:
    explicit Tenants(const Options &options)
        : options_(options),
          engine_(with(kBlocks)),
          asks_(engine_.name_space()),
          other_(engine_.name_space()) {}

    void run() {
        // Until the pool is full, so that all trials evict.
        uint32_t warm = 2 * kBlocks * kBlockTokens / options_.tokens;
        for (uint32_t i = 0; i < warm; ++i) trial(kCases[0], nullptr);
        std::vector<size_t> order(kCaseCount * options_.trials);
        for (size_t i = 0; i < order.size(); ++i) order[i] = i % kCaseCount;
        std::shuffle(order.begin(), order.end(), std::mt19937(1));
        for (size_t which : order) trial(kCases[which], &times_[which]);
    }

    void report() const {
        nlohmann::ordered_json all = {{"trials", options_.trials}, {"tokens", options_.tokens}};
        if (!options_.json) {
            std::printf("%-36s%12s%14s%12s\n", "the prompt was computed by", "found", "median us",
                        "distance");
        }
        for (size_t i = 0; i < kCaseCount; ++i) {
            std::vector<double> sorted = times_[i].nanoseconds;
            std::sort(sorted.begin(), sorted.end());
            double found = static_cast<double>(times_[i].found) / options_.trials;
            double median = sorted[sorted.size() / 2];
            double apart = distance(times_[i].nanoseconds, times_[0].nanoseconds);
            all["cases"].push_back({{"computed_by", kCases[i].name},
                                    {"found_tokens", found},
                                    {"median_ns", median},
                                    {"distance", apart}});
            if (!options_.json)
                std::printf("%-36s%12.0f%14.2f%12.3f\n", kCases[i].name, found, median / 1e3,
                            apart);
        }
        if (options_.json) std::printf("%s\n", all.dump(2).c_str());
    }

 private:
    void trial(const Case &of, Times *out) {
        std::vector<uint32_t> asked = prompt(++prompts_, options_.tokens);
        std::vector<uint32_t> unrelated = prompt(++prompts_, options_.tokens);
        quire_key salt{QUIRE_KEY_SALT, 1, of.salt, 0, 0};
        quire_seq_desc desc{};
        desc.ns = of.same_namespace ? asks_ : other_;
        desc.keys = of.salt != nullptr ? &salt : nullptr;
        desc.key_count = of.salt != nullptr ? 1 : 0;
        desc.key_stride = sizeof salt;
        engine_.end(engine_.computed(of.computed ? asked : unrelated, &desc));
        ask(asked, out);
    }

    // Times the begin of the asking tenant's request.
    void ask(const std::vector<uint32_t> &tokens, Times *out) {
        quire_seq_desc desc{};
        desc.ns = asks_;
        quire_seq seq = engine_.create(desc);
        auto step_desc = described<quire_step_desc>();
        quire_step_item item{};
        item.seq = seq;
        item.token_count = static_cast<uint32_t>(tokens.size());
        quire_step_result result{};
        quire_step step = 0;
        auto begin = std::chrono::steady_clock::now();
        engine_.must(engine_.api.step_begin(engine_.cache, &step_desc, &item, 1, sizeof item,
                                            tokens.data(), item.token_count, &result, sizeof result,
                                            &step, engine_.error()));
        auto end = std::chrono::steady_clock::now();
        engine_.abort(step);
        engine_.end(seq);
        if (out == nullptr) return;
        out->nanoseconds.push_back(std::chrono::duration<double, std::nano>(end - begin).count());
        out->found += result.hit_tokens;
    }

    const Options &options_;
    Engine engine_;
    quire_namespace asks_, other_;
    Times times_[kCaseCount];
    uint32_t prompts_ = 0;
};

std::optional<Options> parse(int argc, char **argv, int *status) {
    Options options;
    CLI::App app(
        "Measures what a tenant learns from the time of its own requests about a prompt that "
        "another tenant has computed.",
        "./dev bench tenants");
    app.footer("Example: ./dev bench tenants --trials 20000 --tokens 256 --json");
    app.add_option("--trials", options.trials, "of each case, in random order")
        ->check(CLI::Range(1u, 1000000u))
        ->capture_default_str();
    app.add_option("--tokens", options.tokens, "of a prompt")
        ->check(CLI::Range(17u, 16384u))
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
    int status = 0;
    std::optional<Options> options = parse(argc, argv, &status);
    if (!options) return status;
    Tenants tenants(*options);
    tenants.run();
    tenants.report();
    return 0;
}
