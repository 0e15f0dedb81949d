// SPDX-License-Identifier: Apache-2.0

#include "replay.hpp"

#include <nlohmann/json.hpp>

#include "bare_lru.hpp"
#include "quantity.hpp"
#include "replay_concurrent.hpp"
#include "replay_levels.hpp"
#include "replay_sequential.hpp"
#include "report.hpp"
#include "trace.hpp"

namespace quire::cli {

namespace {

constexpr uint32_t kMaxRunning = 65'536;

void check_options(const ReplayOptions &options) {
    if (options.policy != "lru")
        throw Failure("--policy " + options.policy + " is not known: this version has only lru",
                      kUsage);
    if (options.block_tokens == 0)
        throw Failure("--block-tokens 0: a block must hold at least one token", kUsage);
    bool concurrent = options.mode == "concurrent";
    if (!concurrent && options.mode != "sequential") {
        throw Failure("--mode " + options.mode + " is not known: sequential or concurrent", kUsage);
    }
    if (concurrent && (options.running == 0 || options.running > kMaxRunning)) {
        throw Failure("--mode concurrent needs --running, 1 to " + std::to_string(kMaxRunning),
                      kUsage);
    }
    if (!concurrent && options.running != 0)
        throw Failure("--running is for --mode concurrent", kUsage);
    if (concurrent && options.baseline)
        throw Failure("--baseline is for --mode sequential", kUsage);
    check_levels(options);
}

nlohmann::ordered_json summarise(const ReplayOptions &options, const Trace &trace,
                                 const ReplayCounts &counts) {
    const quire_cache_stats &stats = counts.stats;
    double rate = static_cast<double>(counts.hit_tokens) / static_cast<double>(trace.input_tokens);
    nlohmann::ordered_json out;
    out["requests"] = trace.requests.size();
    out["input_tokens"] = trace.input_tokens;
    out["output_tokens"] = trace.output_tokens;
    out["hit_tokens"] = counts.hit_tokens;
    out["hit_rate"] = rate;
    out["cached_blocks"] = stats.blocks_cached;
    out["preemptions"] = stats.num_preemptions;
    out["evictions"] = stats.evictions;
    out["steps"] = counts.steps;
    out["bytes_hashed"] = stats.bytes_hashed;
    out["bytes_compared"] = stats.bytes_compared;
    out["manager_seconds"] = counts.seconds;
    out["blocks"] = options.blocks;
    out["block_tokens"] = options.block_tokens;
    add_levels(options, counts, &out);
    out["policy"] = options.policy;
    out["mode"] = options.mode;
    if (options.mode == "concurrent") {
        out["running"] = options.running;
        out["resumed_hit_tokens"] = counts.resumed_hit_tokens;
    }
    return out;
}

}  // namespace

void replay(const ReplayOptions &options) {
    check_options(options);
    Trace trace = read_trace(options.trace, options.limit);
    bool concurrent = options.mode == "concurrent";
    ReplayCounts counts =
        concurrent ? replay_concurrent(options, trace) : replay_sequential(options, trace);
    nlohmann::ordered_json summary = summarise(options, trace, counts);
    if (options.baseline) {
        uint64_t bare_hits = 0;
        double bare = run_bare_lru(trace, options.blocks + options.host_blocks,
                                   options.block_tokens, &bare_hits);
        summary["bare_lru_hit_tokens"] = bare_hits;
        summary["bare_lru_seconds"] = bare;
        summary["times_bare_lru"] = counts.seconds / bare;
    }
    print_report(summary, options.json);
}

}  // namespace quire::cli
