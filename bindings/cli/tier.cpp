// SPDX-License-Identifier: Apache-2.0

#include "tier.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "library.hpp"
#include "open_tier.hpp"
#include "progress.hpp"
#include "quantity.hpp"

namespace quire::cli {

namespace {

// An open tier, for the length of a scope.
class Tier {
 public:
    Tier(const TierOptions &options, uint32_t flags) {
        Settings settings = parse_settings("--option", options.options);
        if (!options.directory.empty()) settings.emplace_back("directory", options.directory);
        handle_ = open_tier(instance_.get(), options.store, settings, flags);
    }
    ~Tier() { library().tier_close_wait(handle_, UINT64_MAX, nullptr); }
    Tier(const Tier &) = delete;
    Tier &operator=(const Tier &) = delete;

    quire_tier *get() const { return handle_; }
    quire_store_info info() const {
        auto info = described<quire_store_info>();
        Error error;
        check(library().tier_get_info(handle_, &info, &error), error);
        return info;
    }
    quire_store_stats stats() const {
        auto stats = described<quire_store_stats>();
        Error error;
        check(library().tier_get_stats(handle_, &stats, &error), error);
        return stats;
    }
    std::vector<quire_store_record> records() const {
        std::vector<quire_store_record> all, page(1024);
        uint64_t cursor = 0;
        for (uint32_t count = 0;;) {
            Error error;
            check(library().tier_list(handle_, &cursor, page.data(),
                                      static_cast<uint32_t>(page.size()), sizeof page[0], &count,
                                      &error),
                  error);
            if (count == 0) return all;
            all.insert(all.end(), page.begin(), page.begin() + count);
        }
    }
    quire_store_answer ask(const quire_store_request &request) const {
        quire_store_answer answer{};
        Error error;
        check(library().tier_request_wait(handle_, &request, &answer, UINT64_MAX, &error), error);
        return answer;
    }

 private:
    Instance instance_;
    quire_tier *handle_ = nullptr;
};

std::string hex(const uint8_t *bytes, size_t count) {
    std::string text;
    char digits[3];
    for (size_t i = 0; i < count; ++i) {
        std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
        text += digits;
    }
    return text;
}

// Records of one model and one tenant.
struct Share {
    uint64_t records = 0;
    uint64_t value_bytes = 0;
};
using Shares = std::map<std::pair<std::string, std::string>, Share>;

Shares shares_of(const std::vector<quire_store_record> &records) {
    Shares shares;
    for (const quire_store_record &record : records) {
        Share &share =
            shares[{hex(record.label.fingerprint, 32), hex(record.label.name_space, 32)}];
        share.records += 1;
        share.value_bytes += record.value_bytes;
    }
    return shares;
}

nlohmann::ordered_json figures_of(const Tier &tier) {
    const quire_store_info info = tier.info();
    const quire_store_stats stats = tier.stats();
    nlohmann::ordered_json out;
    out["place"] = info.place;
    out["capacity_bytes"] = info.capacity_bytes;
    out["used_bytes"] = stats.used_bytes;
    out["records"] = stats.records;
    out["value_bytes"] = stats.value_bytes;
    out["damaged"] = stats.damaged;
    out["skipped_bytes"] = stats.skipped_bytes;
    return out;
}

void print_figures(const Tier &tier) {
    const quire_store_info info = tier.info();
    const quire_store_stats stats = tier.stats();
    std::printf("%s\n", info.place);
    std::printf("%s records, %s of values, %s of %s used\n", with_commas(stats.records).c_str(),
                readable_bytes(stats.value_bytes).c_str(), readable_bytes(stats.used_bytes).c_str(),
                readable_bytes(info.capacity_bytes).c_str());
    if (stats.damaged != 0 || stats.skipped_bytes != 0) {
        std::printf("%s damaged records, %s bytes that are no record\n",
                    with_commas(stats.damaged).c_str(), with_commas(stats.skipped_bytes).c_str());
    }
}

void print_records(const std::vector<quire_store_record> &records) {
    std::printf("\n%-64s %14s %10s\n", "key", "bytes", "sequence");
    for (const quire_store_record &record : records) {
        std::printf("%s %14s %10llu\n", hex(record.label.key, 32).c_str(),
                    with_commas(record.value_bytes).c_str(),
                    static_cast<unsigned long long>(record.sequence));
    }
}

void print_shares(const Shares &shares) {
    std::printf("\n%-16s  %-16s %12s %14s\n", "fingerprint", "name space", "records", "bytes");
    for (const auto &[whose, share] : shares) {
        std::printf("%.16s  %.16s %12s %14s\n", whose.first.c_str(), whose.second.c_str(),
                    with_commas(share.records).c_str(), with_commas(share.value_bytes).c_str());
    }
}

nlohmann::ordered_json json_of(const quire_store_record &record) {
    nlohmann::ordered_json out;
    out["key"] = hex(record.label.key, 32);
    out["fingerprint"] = hex(record.label.fingerprint, 32);
    out["name_space"] = hex(record.label.name_space, 32);
    out["value_bytes"] = record.value_bytes;
    out["sequence"] = record.sequence;
    return out;
}

// True if the record's value can be read.
bool is_whole(const Tier &tier, const quire_store_record &record, std::vector<char> *buffer) {
    buffer->resize(record.value_bytes);
    quire_store_piece piece{buffer->data(), record.value_bytes};
    quire_store_request request{};
    request.kind = QUIRE_STORE_GET;
    request.label = record.label;
    request.pieces = &piece;
    request.piece_count = 1;
    return tier.ask(request).outcome == QUIRE_STORE_DONE;
}

// A smaller capacity than the store was made with would evict records, so that without one room for
// several times what is there is given.
TierOptions with_room(TierOptions options) {
    if (options.store != "disk") return options;
    for (const std::string &option : options.options) {
        if (option.starts_with("capacity=")) return options;
    }
    constexpr uint64_t kLeast = uint64_t{1} << 20, kTimes = 4;
    const uint64_t used =
        Tier(options, QUIRE_STORE_OPEN_EXISTING | QUIRE_STORE_OPEN_READ_ONLY).stats().used_bytes;
    options.options.push_back("capacity=" + std::to_string(std::max(kLeast, kTimes * used)));
    return options;
}

}  // namespace

void tier_ls(const TierOptions &options) {
    Tier tier(options, QUIRE_STORE_OPEN_EXISTING | QUIRE_STORE_OPEN_READ_ONLY);
    const std::vector<quire_store_record> records = tier.records();
    const Shares shares = shares_of(records);
    if (!options.json) {
        print_figures(tier);
        print_shares(shares);
        if (options.records) print_records(records);
        return;
    }
    nlohmann::ordered_json out = figures_of(tier);
    out["shares"] = nlohmann::ordered_json::array();
    for (const auto &[whose, share] : shares) {
        out["shares"].push_back({{"fingerprint", whose.first},
                                 {"name_space", whose.second},
                                 {"records", share.records},
                                 {"value_bytes", share.value_bytes}});
    }
    if (options.records) {
        out["list"] = nlohmann::ordered_json::array();
        for (const quire_store_record &record : records) out["list"].push_back(json_of(record));
    }
    std::printf("%s\n", out.dump(2).c_str());
}

void tier_check(const TierOptions &options) {
    Tier tier(options, QUIRE_STORE_OPEN_EXISTING | QUIRE_STORE_OPEN_READ_ONLY);
    const std::vector<quire_store_record> records = tier.records();
    std::vector<quire_store_record> damaged;
    std::vector<char> buffer;
    {
        Progress progress("reading record", records.size());
        for (size_t i = 0; i < records.size(); ++i) {
            progress.at(i);
            if (!is_whole(tier, records[i], &buffer)) damaged.push_back(records[i]);
        }
    }
    const quire_store_stats stats = tier.stats();
    if (options.json) {
        nlohmann::ordered_json out;
        out["records"] = records.size();
        out["unreadable"] = nlohmann::ordered_json::array();
        for (const quire_store_record &record : damaged)
            out["unreadable"].push_back(json_of(record));
        out["skipped_bytes"] = stats.skipped_bytes;
        std::printf("%s\n", out.dump(2).c_str());
    } else {
        std::printf("%s records read, %s of them damaged; %s bytes are no record\n",
                    with_commas(records.size()).c_str(), with_commas(damaged.size()).c_str(),
                    with_commas(stats.skipped_bytes).c_str());
        if (!damaged.empty()) print_records(damaged);
    }
    if (!damaged.empty())
        throw Failure("a damaged record is a miss; quire tier gc gives back its room", kFailed);
}

void tier_gc(const TierOptions &given) {
    const TierOptions options = with_room(given);
    Tier tier(options, QUIRE_STORE_OPEN_EXISTING);
    std::vector<char> buffer;
    uint64_t damaged = 0;
    {
        // A value that cannot be read leaves the store's index when it is asked for.
        const std::vector<quire_store_record> records = tier.records();
        Progress progress("reading record", records.size());
        for (size_t i = 0; i < records.size(); ++i) {
            progress.at(i);
            damaged += !is_whole(tier, records[i], &buffer);
        }
    }
    quire_store_request request{};
    request.kind = QUIRE_STORE_COMPACT;
    const quire_store_answer answer = tier.ask(request);
    if (answer.outcome != QUIRE_STORE_DONE) {
        throw Failure("the store could not be compacted, by outcome " +
                          std::to_string(answer.outcome) + ": " +
                          std::strerror(static_cast<int>(answer.native_code)),
                      kFailed);
    }
    if (options.json) {
        nlohmann::ordered_json out = figures_of(tier);
        out["freed_bytes"] = answer.size_bytes;
        out["dropped"] = damaged;
        std::printf("%s\n", out.dump(2).c_str());
        return;
    }
    std::printf("%s bytes given back, %s damaged records dropped\n",
                with_commas(answer.size_bytes).c_str(), with_commas(damaged).c_str());
    print_figures(tier);
}

}  // namespace quire::cli
