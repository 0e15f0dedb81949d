// SPDX-License-Identifier: Apache-2.0

#include "fleet.hpp"

#include <algorithm>
#include <string>

#include "library.hpp"
#include "lru.hpp"
#include "progress.hpp"

namespace quire::cli {

namespace {

constexpr uint32_t kNowhere = UINT32_MAX;

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
class Chance {
 public:
    explicit Chance(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        return z ^ z >> 31;
    }
    double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }

 private:
    uint64_t state_;
};

// A request of one copy of the trace.
struct Arrival {
    uint64_t time_ms;
    uint32_t copy;
    uint32_t request;
};

class Fleet {
 public:
    Fleet(const FleetOptions &options, const Trace &trace)
        : options_(options),
          trace_(trace),
          chance_(options.seed),
          cluster_(options.cluster_blocks) {
        for (const Request &request : trace.requests) {
            for (uint32_t id : request.hash_ids) ids_ = std::max<uint64_t>(ids_, uint64_t{id} + 1);
            counts_.duration_ms = std::max(counts_.duration_ms, request.time_ms + 1);
        }
        last_.assign(ids_ * options.copies, kNowhere);
        engines_.reserve(options.engines);
        for (uint32_t i = 0; i < options.engines; ++i) engines_.emplace_back(options.engine_blocks);
        const uint64_t windows = counts_.duration_ms / options.window_ms + 1;
        read_.assign(windows, 0);
        written_.assign(windows, 0);
        answers_ = uint64_t{1} << 62;
    }

    FleetCounts run() {
        const std::vector<Arrival> arrivals = all_arrivals();
        Progress progress("simulating request", arrivals.size());
        for (uint64_t i = 0; i < arrivals.size(); ++i) {
            progress.at(i);
            serve(arrivals[i]);
        }
        counts_.cluster_blocks = cluster_.size();
        counts_.evicted_blocks = cluster_.evictions();
        counts_.most_read_blocks = *std::max_element(read_.begin(), read_.end());
        counts_.most_written_blocks = *std::max_element(written_.begin(), written_.end());
        return counts_;
    }

 private:
    // Each copy begins elsewhere in the trace, and goes round.
    std::vector<Arrival> all_arrivals() const {
        std::vector<Arrival> out;
        out.reserve(trace_.requests.size() * options_.copies);
        for (uint32_t copy = 0; copy < options_.copies; ++copy) {
            const uint64_t shift = counts_.duration_ms * copy / options_.copies;
            for (uint32_t i = 0; i < trace_.requests.size(); ++i) {
                const uint64_t time = (trace_.requests[i].time_ms + shift) % counts_.duration_ms;
                out.push_back({time, copy, i});
            }
        }
        std::stable_sort(out.begin(), out.end(),
                         [](const Arrival &a, const Arrival &b) { return a.time_ms < b.time_ms; });
        return out;
    }

    uint64_t name_of(uint32_t copy, const Request &request, uint32_t block) const {
        return ids_ * copy + request.hash_ids[block];
    }

    uint32_t route(uint32_t copy, const Request &request, uint32_t findable) {
        const uint32_t any = chance_.below(options_.engines);
        const bool returns = chance_.share() < options_.affinity;
        uint32_t engine = any;
        for (uint32_t i = 0; returns && i < findable; ++i) {
            const uint32_t last = last_[name_of(copy, request, i)];
            if (last == kNowhere) break;
            engine = last;
        }
        return engine;
    }

    void serve(const Arrival &arrival) {
        const Request &request = trace_.requests[arrival.request];
        const uint32_t full = request.input_length / kTokensPerHash;
        const uint32_t findable = (request.input_length - 1) / kTokensPerHash;
        const uint32_t all =
            (request.input_length + std::max(request.output_length, 1u) - 1) / kTokensPerHash;
        check_room(arrival.request, all);
        const uint32_t number = route(arrival.copy, request, findable);
        Lru &engine = engines_[number];
        uint32_t local = 0;
        while (local < findable && engine.find(name_of(arrival.copy, request, local))) ++local;
        uint32_t found = local;
        if (options_.cluster_blocks != 0) {
            while (found < findable && cluster_.find(name_of(arrival.copy, request, found)))
                ++found;
            counts_.asked_blocks += found - local + (found < findable ? 1 : 0);
        }
        // Blocks after the first miss may be there all the same.
        for (uint32_t i = local; i < full; ++i) {
            const uint64_t name = name_of(arrival.copy, request, i);
            if (!engine.find(name)) engine.add(name);
        }
        for (uint32_t i = 0; i < full; ++i) last_[name_of(arrival.copy, request, i)] = number;
        const uint64_t answers = answers_;
        for (uint32_t i = full; i < all; ++i) engine.add(answers_++);
        engine.release(Lru::Oldest::last);
        if (options_.cluster_blocks != 0) put(arrival, found, full, all, answers);
        count(arrival, request, local, found);
    }

    // The engine puts what it computed.
    void put(const Arrival &arrival, uint32_t found, uint32_t full, uint32_t all,
             uint64_t answers) {
        const Request &request = trace_.requests[arrival.request];
        for (uint32_t i = found; i < full; ++i) {
            const uint64_t name = name_of(arrival.copy, request, i);
            if (cluster_.find(name)) {
                ++counts_.known_blocks;
            } else {
                cluster_.add(name);
            }
        }
        for (uint32_t i = full; i < all; ++i) cluster_.add(answers + (i - full));
        cluster_.release(Lru::Oldest::first);
        counts_.written_blocks += all - found;
        written_[arrival.time_ms / options_.window_ms] += all - found;
    }

    void count(const Arrival &arrival, const Request &request, uint32_t local, uint32_t found) {
        ++counts_.requests;
        counts_.input_tokens += request.input_length;
        counts_.local_tokens += uint64_t{local} * kTokensPerHash;
        counts_.cluster_tokens += uint64_t{found - local} * kTokensPerHash;
        counts_.loads += found != local ? 1 : 0;
        counts_.read_blocks += found - local;
        read_[arrival.time_ms / options_.window_ms] += found - local;
    }

    void check_room(uint32_t request, uint32_t blocks) const {
        const bool fits = blocks <= options_.engine_blocks &&
                          (options_.cluster_blocks == 0 || blocks <= options_.cluster_blocks);
        if (fits) return;
        throw Failure("request " + std::to_string(request) + " needs " +
                          std::to_string(uint64_t{blocks} * kTokensPerHash) +
                          " tokens of an engine and of the cluster: give them more memory",
                      kUsage);
    }

    const FleetOptions &options_;
    const Trace &trace_;
    Chance chance_;
    std::vector<Lru> engines_;
    Lru cluster_;
    uint64_t ids_ = 0;
    std::vector<uint32_t> last_;            // [copy][id] the engine that last had it
    std::vector<uint64_t> read_, written_;  // blocks, by window
    uint64_t answers_ = 0;                  // names of blocks of answers, each used once
    FleetCounts counts_;
};

}  // namespace

FleetCounts run_fleet(const FleetOptions &options, const Trace &trace) {
    return Fleet(options, trace).run();
}

}  // namespace quire::cli
