// SPDX-License-Identifier: Apache-2.0

#include "replay_levels.hpp"

#include "quantity.hpp"

namespace quire::cli {

namespace {

constexpr uint64_t kMostBlockBytes = uint64_t{1} << 32;  // times 2^31 blocks is below 2^64

// The value of an option that is given, which must be above 0.
double parse_rate(const char *option, const std::string &text) {
    double rate = parse_quantity(option, text);
    if (rate <= 0) throw Failure(std::string(option) + " must be above 0", kUsage);
    return rate;
}

// Refuses an option that is given without another one.
void check_pair(const char *option, bool is_given, const char *needed, bool is_there) {
    if (is_given && !is_there) throw Failure(std::string(option) + " needs " + needed, kUsage);
}

void check_disk(const ReplayOptions &options) {
    const bool has_disk = options.disk_blocks != 0;
    const std::string &write = options.disk_write;
    check_pair("--disk-write", !write.empty(), "--disk-blocks or --tier", options.has_store());
    check_pair("--tier-option", !options.tier_options.empty(), "--tier", !options.tier.empty());
    if (has_disk && !options.tier.empty())
        throw Failure("--disk-blocks does not go with --tier: a cache has one store", kUsage);
    check_pair("--disk-read-bandwidth", !options.disk_read_bandwidth.empty(), "--disk-blocks",
               has_disk);
    check_pair("--disk-write-bandwidth", !options.disk_write_bandwidth.empty(), "--disk-blocks",
               has_disk);
    check_pair("--disk-latency", !options.disk_latency.empty(), "--disk-read-bandwidth",
               !options.disk_read_bandwidth.empty());
    if (!write.empty() && write != "through" && write != "selective" && write != "back") {
        throw Failure("--disk-write " + write + " is not known: through, selective or back",
                      kUsage);
    }
    if (options.has_store() && options.baseline)
        throw Failure("--baseline does not go with a store: a bare LRU keeps no store", kUsage);
}

void check_costs(const ReplayOptions &options) {
    struct Rate {
        const char *option;
        const std::string &text;
    };
    for (const Rate &rate : {Rate{"--host-bandwidth", options.host_bandwidth},
                             Rate{"--disk-read-bandwidth", options.disk_read_bandwidth},
                             Rate{"--disk-write-bandwidth", options.disk_write_bandwidth}}) {
        if (rate.text.empty()) continue;
        check_pair(rate.option, true, "--block-bytes", !options.block_bytes.empty());
        parse_rate(rate.option, rate.text);
    }
    if (!options.disk_latency.empty()) parse_seconds("--disk-latency", options.disk_latency);
    if (options.block_bytes.empty()) return;
    check_pair("--block-bytes", true, "--host-bandwidth, --disk-blocks or --tier",
               !options.host_bandwidth.empty() || options.has_store());
    const uint64_t bytes = parse_whole("--block-bytes", options.block_bytes);
    if (bytes == 0 || bytes > kMostBlockBytes)
        throw Failure("--block-bytes must be 1 to 4GiB", kUsage);
}

uint64_t bytes_of(const ReplayOptions &options, uint64_t blocks) {
    return parse_whole("--block-bytes", options.block_bytes) * blocks;
}

double seconds_of(const ReplayOptions &options, uint64_t blocks, double per_second) {
    return static_cast<double>(bytes_of(options, blocks)) / per_second;
}

// A figure of the store.
std::string name_of(const char *figure, const ReplayCounts &counts) {
    return std::string(counts.is_remote ? "remote_" : "disk_") + figure;
}

// Tokens that admitted requests found, by where their blocks lay.
void add_hits(const ReplayOptions &options, const ReplayCounts &counts,
              nlohmann::ordered_json *out) {
    const quire_cache_stats &stats = counts.stats;
    const uint64_t host = stats.blocks_promoted * options.block_tokens;
    // Nothing is swapped here, so all other copies to the device are of loads.
    const uint64_t disk = stats.blocks_swapped_in * options.block_tokens - host;
    (*out)["device_hit_tokens"] = stats.prefix_cache_hits - host - disk;
    if (options.host_blocks != 0) (*out)["host_hit_tokens"] = host;
    if (options.has_store()) (*out)[name_of("hit_tokens", counts)] = disk;
}

// The blocks that lie in the host tier, and those that went there and back. The two directions are
// copied at once.
void add_host(const ReplayOptions &options, const quire_cache_stats &stats,
              nlohmann::ordered_json *out) {
    (*out)["host_blocks"] = options.host_blocks;
    (*out)["host_cached_blocks"] = stats.host_blocks_cached;
    (*out)["demoted_blocks"] = stats.blocks_demoted;
    (*out)["promoted_blocks"] = stats.blocks_promoted;
    if (options.host_bandwidth.empty()) return;
    const double per_second = parse_rate("--host-bandwidth", options.host_bandwidth);
    (*out)["demoting_seconds"] = seconds_of(options, stats.blocks_demoted, per_second);
    (*out)["promoting_seconds"] = seconds_of(options, stats.blocks_promoted, per_second);
}

// How long a disk with these bandwidths would have been busy.
void add_disk_seconds(const ReplayOptions &options, const ReplayCounts &counts,
                      nlohmann::ordered_json *out) {
    const quire_cache_tier_stats &tier = counts.tier;
    if (!options.disk_write_bandwidth.empty()) {
        (*out)["disk_writing_seconds"] =
            seconds_of(options, tier.blocks_written,
                       parse_rate("--disk-write-bandwidth", options.disk_write_bandwidth));
    }
    if (options.disk_read_bandwidth.empty()) return;
    double seconds = seconds_of(options, counts.blocks_read,
                                parse_rate("--disk-read-bandwidth", options.disk_read_bandwidth));
    if (!options.disk_latency.empty()) {
        seconds += parse_seconds("--disk-latency", options.disk_latency) *
                   static_cast<double>(tier.loads_begun);
    }
    (*out)["disk_reading_seconds"] = seconds;
}

void add_store(const ReplayOptions &options, const ReplayCounts &counts,
               nlohmann::ordered_json *out) {
    const quire_cache_tier_stats &tier = counts.tier;
    auto add = [&](const char *figure, auto value) { (*out)[name_of(figure, counts)] = value; };
    if (options.tier.empty()) add("blocks", options.disk_blocks);
    add("write", options.disk_write.empty() ? "through" : options.disk_write);
    add("cached_blocks", counts.store.records);
    add("evicted_blocks", counts.store.evicted);
    add("written_blocks", tier.blocks_written);
    add("unwritten_blocks", tier.blocks_refused + tier.blocks_dropped + tier.blocks_evicted);
    add("loads", tier.loads_begun);
    add("loads_short", tier.loads_short);
    add("read_blocks", counts.blocks_read);
    if (!options.tier.empty()) {
        add("loads_missed", tier.loads_missed);
        add("load_seconds", counts.load_seconds);
        add("writing_seconds", counts.writing_seconds);
    }
    if (options.block_bytes.empty()) return;
    add("written_bytes", bytes_of(options, tier.blocks_written));
    add("read_bytes", bytes_of(options, counts.blocks_read));
    if (options.tier.empty()) add_disk_seconds(options, counts, out);
}

}  // namespace

void check_levels(const ReplayOptions &options) {
    if (options.host_blocks == UINT32_MAX)
        throw Failure("--host-blocks must be below 2^32 - 1", kUsage);
    if (!options.host_bandwidth.empty() && options.host_blocks == 0)
        throw Failure("--host-bandwidth needs a host tier: give --host-blocks", kUsage);
    check_disk(options);
    check_costs(options);
}

void add_levels(const ReplayOptions &options, const ReplayCounts &counts,
                nlohmann::ordered_json *out) {
    if (options.host_blocks == 0 && !options.has_store()) return;
    add_hits(options, counts, out);
    if (options.host_blocks != 0) add_host(options, counts.stats, out);
    if (options.has_store()) add_store(options, counts, out);
}

}  // namespace quire::cli
