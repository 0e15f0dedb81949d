// SPDX-License-Identifier: Apache-2.0
//
// The cost of a call through libquire's table beyond its work: begin + commit + finish by client.c,
// which has only dyn.h, against the same steps by the core's functions, linked in.
//
// Floor: client.c's loop through a table of functions that return at once.
//
// The loops alternate, round by round, so that a change of the machine's speed affects all of them;
// it prints medians over the rounds, and for the overhead the median of the differences in a round.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "client.h"
#include "direct.hpp"

namespace {

using namespace quire::bench;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kSteps = 1024;  // per round
constexpr uint32_t kRounds = 301;
constexpr double kCalls = 3.0 * kSteps;  // begin, commit, finish

template <typename Run>
double nanoseconds(Run &&run) {
    auto begin = Clock::now();
    run();
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

struct Rounds {
    std::vector<double> table, direct, nothing, beyond;

    void add(double table_ns, double direct_ns, double nothing_ns) {
        table.push_back(table_ns / kCalls);
        direct.push_back(direct_ns / kCalls);
        nothing.push_back(nothing_ns / kCalls);
        beyond.push_back((table_ns - direct_ns) / kCalls);
    }
    void report(benchmark::State *state) const {
        state->counters["ns_a_call"] = median(table);
        state->counters["work_ns"] = median(direct);
        state->counters["beyond_ns"] = median(beyond);
        state->counters["plain_call_ns"] = median(nothing);
        state->counters["target_ns"] = 100;
    }
};

void empty_step(benchmark::State &state) {
    client *c = client_open();
    Direct direct;
    Rounds rounds;
    for (auto _ : state) {
        double nothing = nanoseconds([&] { client_run_nothing(c, kSteps); });
        double table = nanoseconds([&] { client_run_empty(c, kSteps); });
        rounds.add(table, nanoseconds([&] { direct.run_empty(kSteps); }), nothing);
    }
    rounds.report(&state);
    client_close(c);
}
BENCHMARK(empty_step)->Iterations(kRounds)->Unit(benchmark::kMicrosecond);

void decode_step_of_1(benchmark::State &state) {
    client *c = client_open();
    Direct direct;
    Rounds rounds;
    for (auto _ : state) {
        client_start(c);
        direct.start();
        double nothing = nanoseconds([&] { client_run_nothing(c, kSteps); });
        double table = nanoseconds([&] { client_run_decode(c, kSteps); });
        rounds.add(table, nanoseconds([&] { direct.run_decode(kSteps); }), nothing);
        client_end(c);
        direct.end();
    }
    rounds.report(&state);
    client_close(c);
}
BENCHMARK(decode_step_of_1)->Iterations(kRounds)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
