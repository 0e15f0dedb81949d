// SPDX-License-Identifier: Apache-2.0

#include "capacity.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "fleet.hpp"
#include "library.hpp"
#include "quantity.hpp"
#include "report.hpp"
#include "trace.hpp"

namespace quire::cli {

namespace {

constexpr uint32_t kMostEngines = 100'000;
constexpr uint64_t kMostArrivals = uint64_t{1} << 31;
constexpr double kGiB = 1 << 30;
// Beside each value: the key and the header on the network, and those and what the server keeps in
// its memory. tests/valkey/traffic.py measures both.
constexpr uint64_t kSentBytes = 250;
constexpr uint64_t kKeptBytes = 400;

struct Sizes {
    uint64_t token_bytes = 0;
    uint64_t value_bytes = 0;          // of a block of block_tokens
    uint64_t values_of_block = 0;      // of the trace's 512 tokens
    uint64_t cluster_block_bytes = 0;  // that those take in the cluster, replicas included
};

uint32_t as_count(const char *option, uint64_t blocks) {
    if (blocks > UINT32_MAX / 2)
        throw Failure(std::string(option) + " holds more than 2^31 blocks of 512 tokens", kUsage);
    return static_cast<uint32_t>(blocks);
}

Sizes sizes_of(const CapacityOptions &options) {
    Sizes sizes;
    sizes.token_bytes = parse_whole("--token-bytes", options.token_bytes);
    if (sizes.token_bytes == 0 || sizes.token_bytes > uint64_t{1} << 30)
        throw Failure("--token-bytes must be 1 to 1GiB", kUsage);
    const uint32_t tokens = options.block_tokens;
    if (tokens == 0 || kTokensPerHash % tokens != 0)
        throw Failure("--block-tokens must be a power of two up to 512", kUsage);
    sizes.values_of_block = kTokensPerHash / tokens;
    sizes.value_bytes = sizes.token_bytes * tokens;
    sizes.cluster_block_bytes =
        sizes.values_of_block * (sizes.value_bytes + kKeptBytes) * (uint64_t{options.replicas} + 1);
    return sizes;
}

void check_options(const CapacityOptions &options) {
    if (options.engines == 0 || options.engines > kMostEngines)
        throw Failure("--engines must be 1 to 100000", kUsage);
    if (!(options.affinity >= 0 && options.affinity <= 1))
        throw Failure("--affinity must be 0 to 1", kUsage);
    if (options.nodes == 0 || options.nodes > kMostEngines)
        throw Failure("--nodes must be 1 to 100000", kUsage);
    if (options.replicas > 16) throw Failure("--replicas must be at most 16", kUsage);
    for (double price : {options.engine_price, options.memory_price}) {
        if (!std::isfinite(price) || price < 0)
            throw Failure("a price must be a number of 0 or more", kUsage);
    }
    if (options.engine_price > 0 && options.prefill.empty())
        throw Failure("--engine-price needs --prefill, which says what a hit saves", kUsage);
}

double rate_of(const char *option, const std::string &text) {
    const double rate = parse_quantity(option, text);
    if (rate <= 0) throw Failure(std::string(option) + " must be above 0", kUsage);
    return rate;
}

double share(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void add_hits(const FleetCounts &counts, nlohmann::ordered_json *out) {
    (*out)["requests"] = counts.requests;
    (*out)["hours"] = static_cast<double>(counts.duration_ms) / 3.6e6;
    (*out)["input_tokens"] = counts.input_tokens;
    (*out)["engine_hit_rate"] = share(counts.local_tokens, counts.input_tokens);
    (*out)["cluster_hit_rate"] = share(counts.cluster_tokens, counts.input_tokens);
    (*out)["loads"] = counts.loads;
}

void add_memory(const Sizes &sizes, const FleetCounts &counts, nlohmann::ordered_json *out) {
    (*out)["cluster_blocks"] = counts.cluster_blocks * sizes.values_of_block;
    (*out)["cluster_evicted_blocks"] = counts.evicted_blocks * sizes.values_of_block;
    (*out)["cluster_used_bytes"] = counts.cluster_blocks * sizes.cluster_block_bytes;
}

// Bytes on the network for a block of the trace.
double bytes_of_load(const Sizes &sizes) {
    return static_cast<double>(sizes.values_of_block * (sizes.value_bytes + kSentBytes));
}

void add_network(const CapacityOptions &options, const Sizes &sizes, const FleetCounts &counts,
                 const FleetOptions &fleet, nlohmann::ordered_json *out) {
    const double seconds = static_cast<double>(counts.duration_ms) / 1000;
    const double window = static_cast<double>(fleet.window_ms) / 1000;
    const double block = bytes_of_load(sizes);
    auto rate = [block](uint64_t blocks, double over) {
        return static_cast<double>(blocks) * block / over;
    };
    const uint64_t commands =
        (counts.asked_blocks + counts.read_blocks + counts.written_blocks) * sizes.values_of_block;
    (*out)["read_bytes_per_second"] = rate(counts.read_blocks, seconds);
    (*out)["busiest_read"] = rate(counts.most_read_blocks, window);
    (*out)["written_bytes_per_second"] = rate(counts.written_blocks, seconds);
    (*out)["busiest_written"] = rate(counts.most_written_blocks, window);
    (*out)["known_share_of_written"] = share(counts.known_blocks, counts.written_blocks);
    (*out)["node_busiest_read"] = rate(counts.most_read_blocks, window) / options.nodes;
    (*out)["node_commands_per_second"] = static_cast<double>(commands) / seconds / options.nodes;
    if (options.link.empty() || counts.loads == 0) return;
    (*out)["seconds_per_load"] = static_cast<double>(counts.read_blocks) * block /
                                 static_cast<double>(counts.loads) /
                                 rate_of("--link", options.link);
}

void add_worth(const CapacityOptions &options, const Sizes &sizes, const FleetCounts &counts,
               nlohmann::ordered_json *out) {
    if (options.prefill.empty()) return;
    const double per_second = rate_of("--prefill", options.prefill);
    double saved = static_cast<double>(counts.cluster_tokens) / per_second;
    // A load that takes longer than computing is worth nothing.
    if (!options.link.empty() &&
        bytes_of_load(sizes) / rate_of("--link", options.link) > kTokensPerHash / per_second) {
        saved = 0;
    }
    const double engines = saved * 1000 / static_cast<double>(counts.duration_ms);
    if (counts.loads != 0)
        (*out)["seconds_saved_per_load"] = saved / static_cast<double>(counts.loads);
    (*out)["engines_saved"] = engines;
    if (options.engine_price == 0 && options.memory_price == 0) return;
    const double memory =
        static_cast<double>(parse_whole("--cluster-memory", options.cluster_memory)) / kGiB;
    (*out)["saved_per_hour"] = engines * options.engine_price;
    (*out)["cluster_cost_per_hour"] = memory * options.memory_price;
    (*out)["gain_per_hour"] = engines * options.engine_price - memory * options.memory_price;
}

}  // namespace

void capacity(const CapacityOptions &options) {
    check_options(options);
    const Sizes sizes = sizes_of(options);
    const uint64_t block_bytes = sizes.token_bytes * kTokensPerHash;
    FleetOptions fleet;
    fleet.engines = options.engines;
    fleet.copies = options.copies != 0 ? options.copies : options.engines;
    fleet.engine_blocks = as_count(
        "--engine-memory", parse_whole("--engine-memory", options.engine_memory) / block_bytes);
    if (!options.cluster_memory.empty()) {
        fleet.cluster_blocks =
            as_count("--cluster-memory", parse_whole("--cluster-memory", options.cluster_memory) /
                                             sizes.cluster_block_bytes);
    }
    fleet.affinity = options.affinity;
    fleet.seed = options.seed;
    const Trace trace = read_requests(options.trace, options.limit);
    for (const Request &request : trace.requests) {
        if (request.hash_ids.empty())
            throw Failure(options.trace + " says nothing of prefixes: give one of Mooncake's form",
                          kUsage);
    }
    if (fleet.copies > kMostArrivals / trace.requests.size())
        throw Failure("--copies: more than 2^31 requests", kUsage);
    const FleetCounts counts = run_fleet(fleet, trace);
    nlohmann::ordered_json out;
    out["engines"] = fleet.engines;
    out["copies"] = fleet.copies;
    out["affinity"] = fleet.affinity;
    add_hits(counts, &out);
    if (fleet.cluster_blocks != 0) {
        add_memory(sizes, counts, &out);
        add_network(options, sizes, counts, fleet, &out);
        add_worth(options, sizes, counts, &out);
    }
    print_report(out, options.json);
}

}  // namespace quire::cli
