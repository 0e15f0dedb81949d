// SPDX-License-Identifier: Apache-2.0

#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace engine {
namespace {

double ratio(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

double tokens_per_second(const Report &report) {
    return ratio(static_cast<double>(report.totals.generated_tokens), report.seconds);
}

double prefix_hit_rate(const Report &report) {
    return ratio(static_cast<double>(report.stats.prefix_cache_hits),
                 static_cast<double>(report.stats.prefix_cache_queries));
}

double waste_rate(const Report &report) {
    return ratio(static_cast<double>(report.totals.wasted_slots),
                 static_cast<double>(report.totals.table_slots));
}

[[gnu::format(printf, 1, 2)]] std::string format(const char *pattern, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

void line(std::ostream &out, const char *name, const std::string &value) {
    out << format("  %-22s", name) << value << '\n';
}

unsigned long long number(uint64_t value) { return value; }

std::string memory_line(const Report &report) {
    const double saved =
        100.0 * (1.0 - ratio(static_cast<double>(report.totals.peak_held_blocks),
                             static_cast<double>(report.totals.peak_contiguous_blocks)));
    return format("%zu of %zu; reserving %zu tokens for each text would take %zu (%.0f %% saved)",
                  report.totals.peak_held_blocks, report.pool_blocks - 1, report.max_text_tokens,
                  report.totals.peak_contiguous_blocks, saved);
}

std::string migration_line(const MigrationRecord &record) {
    const quire_migrate_info &info = record.moved.info;
    const double bytes = static_cast<double>(info.bytes_moved + info.host_bytes_copied);
    return format(
        "%s after step %zu: %llu blocks, %.2f MB in %.2f ms (%.2f GB/s), %.2f MB live; "
        "%llu dropped; host tier: %llu kept, %llu copied; 0 tokens recomputed",
        record.to.c_str(), record.step, number(info.blocks_moved), bytes / 1e6,
        1e3 * record.moved.seconds, ratio(bytes, record.moved.seconds) / 1e9,
        static_cast<double>(info.live_bytes) / 1e6, number(info.blocks_dropped),
        number(info.host_blocks_kept), number(info.host_blocks_copied));
}

std::string comparison_line(const Comparison &comparison) {
    return format("%zu of %zu texts equal; %zu ties in %zu tokens%s", comparison.equal_count(),
                  comparison.text_count(), comparison.tie_count(), comparison.compared_tokens(),
                  comparison.passed() ? "" : ": FAILED");
}

}  // namespace

double percentile(std::vector<double> values, double fraction) {
    if (values.empty()) {
        return 0.0;
    }
    std::ranges::sort(values);
    const auto rank = std::ceil(fraction * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

void print_table(std::ostream &out, const Report &report) {
    const Totals &totals = report.totals;
    const quire_cache_stats &stats = report.stats;
    const auto &first = totals.first_token_seconds;
    out << '\n';
    line(out, "requests",
         format("%zu, %zu texts; at most %zu at once", report.request_count, report.text_count,
                totals.peak_running));
    line(out, "speed",
         format("%.0f tokens/s: %zu tokens in %.2f s, %zu steps", tokens_per_second(report),
                totals.generated_tokens, report.seconds, totals.steps));
    line(out, "time to first token",
         format("p50 %.1f ms, p99 %.1f ms", 1e3 * percentile(first, 0.50),
                1e3 * percentile(first, 0.99)));
    line(out, "prefix hit rate",
         format("%.1f %% of %llu tokens looked up", 100.0 * prefix_hit_rate(report),
                number(stats.prefix_cache_queries)));
    line(out, "peak blocks", memory_line(report));
    line(out, "waste in last blocks",
         format("%.1f %% of all slots; at most %zu slots of a text (block: %zu)",
                100.0 * waste_rate(report), totals.worst_wasted_slots, report.block_tokens));
    line(out, "forks", format("%llu", number(stats.forks)));
    line(out, "copies on write", format("%llu", number(stats.copies_on_write)));
    line(out, "preemptions",
         format("%llu: %llu swapped, %llu recomputed (%llu tokens given up)",
                number(stats.num_preemptions), number(stats.preemptions_swap),
                number(stats.preemptions_recompute), number(stats.tokens_preempted)));
    line(out, "evictions", format("%llu", number(stats.evictions)));
    if (stats.blocks_demoted != 0) {
        line(out, "to the host tier",
             format("%llu blocks, and %llu found there", number(stats.blocks_demoted),
                    number(stats.blocks_promoted)));
    }
    for (const MigrationRecord &record : report.migrations) {
        line(out, "migrated to", migration_line(record));
    }
    line(out, "equal to a dense run",
         report.comparison == nullptr ? "not compared (--check)"
                                      : comparison_line(*report.comparison));
    if (report.comparison != nullptr) {
        for (const std::string &mismatch : report.comparison->mismatches()) {
            line(out, "", mismatch);
        }
    }
}

void print_json(std::ostream &out, const Report &report) {
    const Totals &totals = report.totals;
    const quire_cache_stats &stats = report.stats;
    nlohmann::ordered_json json = {
        {"requests", report.request_count},
        {"texts", report.text_count},
        {"peak_running", totals.peak_running},
        {"steps", totals.steps},
        {"seconds", report.seconds},
        {"generated_tokens", totals.generated_tokens},
        {"computed_tokens", totals.computed_tokens},
        {"tokens_per_second", tokens_per_second(report)},
        {"first_token_p50_seconds", percentile(totals.first_token_seconds, 0.50)},
        {"first_token_p99_seconds", percentile(totals.first_token_seconds, 0.99)},
        {"prefix_cache_queries", stats.prefix_cache_queries},
        {"prefix_cache_hits", stats.prefix_cache_hits},
        {"prefix_hit_rate", prefix_hit_rate(report)},
        {"pool_blocks", report.pool_blocks},
        {"block_tokens", report.block_tokens},
        {"peak_held_blocks", totals.peak_held_blocks},
        {"peak_contiguous_blocks", totals.peak_contiguous_blocks},
        {"waste_rate", waste_rate(report)},
        {"worst_wasted_slots", totals.worst_wasted_slots},
        {"forks", stats.forks},
        {"copies_on_write", stats.copies_on_write},
        {"num_preemptions", stats.num_preemptions},
        {"preemptions_swap", stats.preemptions_swap},
        {"preemptions_recompute", stats.preemptions_recompute},
        {"tokens_preempted", stats.tokens_preempted},
        {"evictions", stats.evictions},
        {"blocks_demoted", stats.blocks_demoted},
        {"blocks_promoted", stats.blocks_promoted},
        {"checked", report.comparison != nullptr},
    };
    json["repeated_tokens"] = totals.repeated_tokens;
    for (const MigrationRecord &record : report.migrations) {
        const quire_migrate_info &info = record.moved.info;
        json["migrations"].push_back({{"to", record.to},
                                      {"step", record.step},
                                      {"refused_steps", record.refused},
                                      {"seconds", record.moved.seconds},
                                      {"blocks_moved", info.blocks_moved},
                                      {"blocks_dropped", info.blocks_dropped},
                                      {"bytes_moved", info.bytes_moved},
                                      {"live_bytes", info.live_bytes},
                                      {"host_blocks_kept", info.host_blocks_kept},
                                      {"host_blocks_copied", info.host_blocks_copied},
                                      {"host_bytes_copied", info.host_bytes_copied}});
    }
    if (report.comparison != nullptr) {
        json["equal_texts"] = report.comparison->equal_count();
        json["compared_tokens"] = report.comparison->compared_tokens();
        json["ties"] = report.comparison->tie_count();
        json["mismatches"] = report.comparison->mismatches();
        json["passed"] = report.comparison->passed();
    }
    out << json.dump(2) << '\n';
}

}  // namespace engine
