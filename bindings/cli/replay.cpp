// SPDX-License-Identifier: Apache-2.0

#include "replay.hpp"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bare_lru.hpp"
#include "library.hpp"
#include "trace.hpp"

namespace quire::cli {

namespace {

struct Counts {
    uint64_t hit_tokens = 0;
    uint64_t steps = 0;
    uint64_t checksum = 0;  // keeps the loop without calls from being removed
};

class Progress {
 public:
    explicit Progress(uint64_t total) : total_(total), shown_(isatty(STDERR_FILENO) != 0) {}
    ~Progress() {
        if (shown_) std::fputs("\r\033[K", stderr);
    }
    void at(uint64_t done) const {
        if (shown_ && done % 256 == 0) {
            std::fprintf(stderr, "\rreplaying request %llu of %llu",
                         static_cast<unsigned long long>(done),
                         static_cast<unsigned long long>(total_));
        }
    }

 private:
    uint64_t total_;
    bool shown_;
};

// The manager behind one interface with the loop that leaves the calls out.
class Manager {
 public:
    Manager(const ReplayOptions &options) : api_(library()) {
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        auto desc = described<quire_cache_desc>();
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.block_tokens = options.block_tokens;
        desc.blocks = options.blocks;
        desc.max_sequences = 16;
        check(api_.cache_create(instance_.get(), &desc, &cache_, &error_), error_);
        step_desc_ = described<quire_step_desc>();
        seq_desc_ = described<quire_seq_desc>();
    }
    ~Manager() { api_.cache_destroy(cache_, nullptr); }
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;

    void begin_request() { check(api_.seq_create(cache_, &seq_desc_, &seq_, &error_), error_); }

    uint32_t step(const uint32_t *tokens, uint32_t count, uint64_t request) {
        quire_step_item item{};
        item.seq = seq_;
        item.token_count = count;
        quire_step_result result;
        quire_step step = 0;
        check(api_.step_begin(cache_, &step_desc_, &item, 1, sizeof item, tokens, count, &result,
                              sizeof result, &step, &error_),
              error_);
        if (result.outcome != QUIRE_ITEM_RUN) {
            throw Failure("request " + std::to_string(request + 1) +
                              " does not fit the pool: " + std::to_string(result.blocks_short) +
                              " blocks are missing; raise --blocks",
                          kFailed);
        }
        check(api_.step_commit(cache_, step, nullptr, &error_), error_);
        check(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_), error_);
        return result.hit_tokens;
    }

    void end_request() { check(api_.seq_end(cache_, seq_, 0, &error_), error_); }

    quire_cache_stats stats() {
        auto stats = described<quire_cache_stats>();
        check(api_.cache_get_stats(cache_, &stats, &error_), error_);
        return stats;
    }

 private:
    const quire_api &api_;
    Instance instance_;
    Error error_;
    quire_cache *cache_ = nullptr;
    quire_seq seq_ = 0;
    quire_step_desc step_desc_{};
    quire_seq_desc seq_desc_{};
};

template <bool kCalls>
Counts run(const Trace &trace, Manager *manager) {
    Counts counts;
    Progress progress(trace.requests.size());
    for (uint64_t i = 0; i < trace.requests.size(); ++i) {
        const Request &request = trace.requests[i];
        const uint32_t *prompt = trace.inputs.data() + request.first_input;
        progress.at(i);
        if constexpr (kCalls) {
            manager->begin_request();
            counts.hit_tokens += manager->step(prompt, request.input_length, i);
        }
        counts.checksum += prompt[request.input_length - 1];
        ++counts.steps;
        for (uint32_t k = 0; k + 1 < request.output_length; ++k) {
            volatile uint32_t token = request.first_output + k;
            uint32_t plain = token;
            if constexpr (kCalls) manager->step(&plain, 1, i);
            counts.checksum += plain;
            ++counts.steps;
        }
        if constexpr (kCalls) manager->end_request();
    }
    return counts;
}

nlohmann::ordered_json summarise(const ReplayOptions &options, const Trace &trace,
                                 const Counts &counts, const quire_cache_stats &stats,
                                 double seconds) {
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
    out["manager_seconds"] = seconds;
    out["blocks"] = options.blocks;
    out["block_tokens"] = options.block_tokens;
    out["policy"] = options.policy;
    return out;
}

void print_table(const nlohmann::ordered_json &summary) {
    for (const auto &[key, value] : summary.items()) {
        std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        if (value.is_number_float()) {
            char digits[32];
            std::snprintf(digits, sizeof digits, "%.5f", value.get<double>());
            text = digits;
        }
        std::string label = key;
        for (char &c : label) c = c == '_' ? ' ' : c;
        std::printf("%-18s %16s\n", label.c_str(), text.c_str());
    }
}

}  // namespace

void replay(const ReplayOptions &options) {
    if (options.policy != "lru") {
        throw Failure("--policy " + options.policy + " is not known: this version has lru", kUsage);
    }
    Trace trace = read_trace(options.trace, options.limit);
    Manager manager(options);
    double begin = process_seconds();
    Counts counts = run<true>(trace, &manager);
    double with_calls = process_seconds() - begin;
    begin = process_seconds();
    Counts without = run<false>(trace, nullptr);
    double bare_loop = process_seconds() - begin;
    if (without.checksum != counts.checksum)
        throw Failure("the two loops differ: a defect", kFailed);
    double seconds = with_calls - bare_loop;
    nlohmann::ordered_json summary = summarise(options, trace, counts, manager.stats(), seconds);
    if (options.baseline) {
        uint64_t bare_hits = 0;
        double bare = run_bare_lru(trace, options.blocks, options.block_tokens, &bare_hits);
        summary["bare_lru_hit_tokens"] = bare_hits;
        summary["bare_lru_seconds"] = bare;
        summary["times_bare_lru"] = seconds / bare;
    }
    if (options.json) {
        std::printf("%s\n", summary.dump().c_str());
    } else {
        print_table(summary);
    }
}

}  // namespace quire::cli
