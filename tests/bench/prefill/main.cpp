// SPDX-License-Identifier: Apache-2.0
//
// Attention of a long prompt beside the f32 multiply-and-add rate; see README.md.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/bench/machine/failure.hpp"
#include "tests/bench/machine/fma_rate.hpp"
#include "tests/bench/machine/median.hpp"
#include "tests/bench/machine/rounds.hpp"
#include "tests/bench/scene/heading.hpp"
#include "tests/bench/scene/options.hpp"
#include "tests/bench/scene/scene.hpp"
#include "tests/bench/scene/session.hpp"

namespace quire::bench {

namespace {

constexpr uint32_t kPrompts[] = {512, 2048, 8192};
constexpr uint32_t kChunk = 2048;
constexpr uint32_t kLayers = 2;

struct Measured {
    double seconds;     // of one layer
    double operations;  // of one layer
    const char *q_dtype;
    const char *clock;
    double plan_seconds;  // the host's, for all steps
    double call_seconds;  // the host's, to enqueue one layer of all steps
};

Measured measure(uint32_t tokens, const Dtype &dtype, uint32_t threads, const Options &options) {
    tokens = std::max(tokens / options.scale, 2u);
    uint32_t chunk = std::max(std::min(kChunk / options.scale, tokens), 1u);
    Shape shape = {1, tokens, 32, 8, 128};
    Scene scene({shape, dtype, kLayers, threads, chunk, options.device, options.device_flags()});
    Measured measured = {};
    measured.q_dtype = name_of_dtype(scene.q_dtype());
    measured.clock = scene.clock_name();
    for (uint32_t past = 0; past < tokens; past += chunk) {
        uint32_t count = std::min(chunk, tokens - past);
        scene.open_step(count);
        measured.plan_seconds += scene.plan_seconds();
        std::vector<double> seconds, calls;
        double time = options.seconds * count / tokens;
        for (Rounds rounds(time); rounds.next();) {
            Attended attended = scene.attend();
            seconds.push_back(attended.seconds);
            calls.push_back(attended.call_seconds);
        }
        scene.close_step();
        measured.seconds += median(seconds);
        measured.call_seconds += median(calls);
        measured.operations += attention_operations(shape, past, count);
    }
    return measured;
}

class Report {
 public:
    explicit Report(bool is_json) : is_json_(is_json) {
        object_["machine"]["fma_gflops"] = nlohmann::ordered_json::object();
        object_["cases"] = nlohmann::ordered_json::array();
    }

    void add_device(const std::string &name, uint32_t scale) {
        add_heading(name, scale, is_json_, &object_);
    }

    void add_machine(uint32_t threads) {
        floors_[threads] = fma_gflops(threads);
        object_["machine"]["fma_gflops"][std::to_string(threads)] = floors_[threads];
        if (is_json_) return;
        std::printf("%u threads: multiply-and-add %.1f GFLOP/s\n", threads, floors_[threads]);
    }

    void add(nlohmann::ordered_json result, const Measured &measured) {
        double gflops = measured.operations / measured.seconds / 1e9;
        auto floor = floors_.find(result["threads"]);
        result["q_dtype"] = measured.q_dtype;
        result["clock"] = measured.clock;
        result["milliseconds"] = measured.seconds * 1e3;
        result["gflops"] = gflops;
        result["share_of_fma"] = nullptr;
        if (floor != floors_.end()) result["share_of_fma"] = gflops / floor->second;
        result["plan_us"] = measured.plan_seconds * 1e6;
        result["call_us"] = measured.call_seconds * 1e6;
        if (!is_json_) print(result);
        add_case(result, is_json_, &object_["cases"]);
    }

    // outcome: "unsupported" or "failed".
    void add_without_figures(nlohmann::ordered_json result, const char *outcome, const char *why) {
        has_failed_ = has_failed_ || std::string(outcome) == "failed";
        for (const char *key : {"milliseconds", "gflops", "share_of_fma"}) result[key] = nullptr;
        result[outcome] = why;
        add_case(result, is_json_, &object_["cases"]);
        if (is_json_) return;
        std::printf("%s %s: %s\n", result["dtype"].dump().c_str(), outcome, why);
    }

    // False if something failed.
    bool finish() const {
        if (is_json_) std::printf("%s\n", object_.dump(2).c_str());
        return !has_failed_;
    }

 private:
    void print(const nlohmann::ordered_json &result) const {
        bool has_device_clock = result["clock"] == "device";
        if (object_["cases"].empty()) {
            std::printf("\ntokens  dtype    threads         ms   GFLOP/s |  of FMA%s\n",
                        has_device_clock ? " |  plan us  call us" : "");
        }
        const nlohmann::ordered_json &share = result["share_of_fma"];
        std::printf("%6s  %-8s %7u %10.2f %9.2f |", result["case"].get<std::string>().c_str(),
                    result["dtype"].get<std::string>().c_str(), result["threads"].get<uint32_t>(),
                    result["milliseconds"].get<double>(), result["gflops"].get<double>());
        if (share.is_null()) {
            std::printf("       -");
        } else {
            std::printf(" %5.1f %%", 100 * share.get<double>());
        }
        if (has_device_clock) {
            std::printf(" | %8.1f %8.1f", result["plan_us"].get<double>(),
                        result["call_us"].get<double>());
        }
        std::printf("\n");
        std::fflush(stdout);
    }

    bool is_json_;
    bool has_failed_ = false;
    std::map<uint32_t, double> floors_;
    nlohmann::ordered_json object_;
};

Offer offer() {
    Offer offer;
    offer.command = "./dev bench prefill";
    offer.description =
        "Causal attention of one sequence's new tokens, 32 query heads over 8 of K and V, 128\n"
        "elements, in steps of at most 2,048 tokens, beside the rate of f32 multiply-and-adds of\n"
        "as many threads in the same run. Half of the products among new tokens are counted. A\n"
        "device whose memory the host cannot access is not compared with such a rate.";
    offer.example =
        "Example: 2,048 tokens, bf16, two threads\n"
        "  ./dev bench prefill --case 2048 --dtype bf16 --threads 2 --json";
    for (uint32_t tokens : kPrompts) offer.cases.push_back(std::to_string(tokens));
    offer.dtypes = {"f16"};
    offer.has_device = true;
    offer.has_fast_16bit = true;
    return offer;
}

bool run(const Options &options) {
    Report report(options.json);
    Session session(options.threads.front(), options.device, options.device_flags());
    report.add_device(session.device_name(), options.scale);
    if (session.is_host_visible()) {
        for (uint32_t threads : options.threads) report.add_machine(threads);
    }
    for (uint32_t tokens : kPrompts) {
        std::string name = std::to_string(tokens);
        if (!options.wants(name)) continue;
        for (const std::string &dtype : options.dtypes) {
            for (uint32_t threads : options.threads) {
                std::fprintf(stderr, "%s tokens, %s, %u threads ...\n", name.c_str(), dtype.c_str(),
                             threads);
                nlohmann::ordered_json head = {
                    {"case", name}, {"dtype", dtype}, {"threads", threads}};
                try {
                    report.add(head, measure(tokens, find_dtype(dtype), threads, options));
                } catch (const Unsupported &why) {
                    report.add_without_figures(head, "unsupported", why.what());
                } catch (const std::exception &why) {
                    report.add_without_figures(head, "failed", why.what());
                }
            }
        }
    }
    return report.finish();
}

}  // namespace

}  // namespace quire::bench

int main(int argc, char **argv) {
    int exit_status = 0;
    auto options = quire::bench::parse_options(argc, argv, quire::bench::offer(), &exit_status);
    if (!options) return exit_status;
    try {
        return quire::bench::run(*options) ? EXIT_SUCCESS : EXIT_FAILURE;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return EXIT_FAILURE;
    }
}
