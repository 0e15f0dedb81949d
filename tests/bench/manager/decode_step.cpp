// SPDX-License-Identifier: Apache-2.0
//
// A decode step of 256 sequences as an engine with asynchronous scheduling runs it: set_tokens for
// the last step's samples, begin with one unknown token each, commit into a batch with a padded
// block table and slots, finish.
//
// With a log: the leader's step and the reading of its log, and beside it a follower's step, which
// applies the log and writes the same batch; apply_us is the follower's part.
//
// Floor: the same numbers (token, length, slot) written to plain arrays, without a lock, a check or
// a table lookup.

#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>

#include "client.hpp"

namespace {

using namespace quire::bench;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kSequences = 256;
constexpr uint32_t kPrompt = 512;
constexpr uint32_t kMaxTokens = 8192;

double nanoseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

double floor_nanoseconds() {
    std::vector<std::vector<uint32_t>> tokens(kSequences, std::vector<uint32_t>(kMaxTokens));
    std::vector<int32_t> lengths(kSequences, kPrompt);
    std::vector<int64_t> slots(kSequences);
    constexpr uint32_t steps = 2000;
    auto begin = Clock::now();
    for (uint32_t step = 0; step < steps; ++step) {
        for (uint32_t i = 0; i < kSequences; ++i) {
            uint32_t position = static_cast<uint32_t>(lengths[i]++);
            tokens[i][position] = step;
            slots[i] = position;
        }
        benchmark::DoNotOptimize(slots.data());
        benchmark::ClobberMemory();
    }
    return nanoseconds_since(begin) / steps;
}

struct Engine {
    static Shape shape(uint32_t groups, uint32_t flags) {
        return {groups, kSequences * (kMaxTokens / 16 + 1) + 1, kSequences + 1, 256, flags};
    }

    explicit Engine(uint32_t groups, bool logged = false)
        : client(shape(groups, logged ? uint32_t{QUIRE_CACHE_LOG} : 0u)) {
        auto desc = described<quire_batch_desc>();
        desc.max_rows = kSequences;
        desc.max_blocks_per_row = kMaxTokens / 16;
        desc.max_query_tokens = kSequences;
        desc.views = QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_SLOTS;
        client.must(client.api.batch_create(client.cache, &desc, &batch, client.error()));
        if (logged) {
            follower = std::make_unique<Client>(shape(groups, QUIRE_CACHE_FOLLOWER));
            client.follower = follower.get();
            follower->must(client.api.batch_create(follower->cache, &desc, &follower_batch,
                                                   follower->error()));
        }
        start();
    }
    ~Engine() {
        client.api.batch_destroy(batch, nullptr);
        if (follower_batch != nullptr) client.api.batch_destroy(follower_batch, nullptr);
    }

    // Fresh sequences with a prompt each, and one unknown token after it.
    void start() {
        for (const quire_step_item &item : items) {
            client.must(client.api.seq_end(client.cache, item.seq, QUIRE_END_DROP_PREFIX, nullptr));
        }
        items.clear();
        spans.clear();
        for (uint32_t i = 0; i < kSequences; ++i) {
            std::vector<uint32_t> prompt(kPrompt);
            for (uint32_t k = 0; k < kPrompt; ++k) prompt[k] = i * 10000 + k;
            quire_seq seq = client.create();
            client.run(seq, prompt);
            quire_step_item item{};
            item.seq = seq;
            item.token_offset = i;
            item.token_count = 1;
            items.push_back(item);
            spans.push_back(quire_token_span{seq, kPrompt, i, 1, 0});
        }
        length = kPrompt;
        decode(false);
    }

    void decode(bool name_last) {
        if (name_last) {
            for (quire_token_span &span : spans) span.position = length - 1;
            client.must(client.api.seq_set_tokens(client.cache, spans.data(), kSequences,
                                                  sizeof spans[0], sampled.data(), kSequences,
                                                  client.error()));
        }
        quire_step step = 0;
        client.must(client.api.step_begin(
            client.cache, &desc, items.data(), kSequences, sizeof items[0], unknown.data(),
            kSequences, results.data(), sizeof results[0], &step, client.error()));
        client.must(client.api.step_commit(client.cache, step, batch, client.error()));
        if (follower != nullptr) {
            log_bytes = client.read_log(step);
            auto begin = Clock::now();
            client.apply_log(log_bytes, follower_batch);
            apply_nanoseconds += nanoseconds_since(begin);
        }
        client.must(
            client.api.step_finish(client.cache, step, nullptr, QUIRE_STEP_OK, client.error()));
        ++length;
    }

    Client client;
    quire_batch *batch = nullptr;
    std::unique_ptr<Client> follower;
    quire_batch *follower_batch = nullptr;
    uint64_t log_bytes = 0;  // of the last step
    double apply_nanoseconds = 0;
    quire_step_desc desc = described<quire_step_desc>();
    std::vector<quire_step_item> items;
    std::vector<quire_token_span> spans;
    std::vector<uint32_t> unknown = std::vector<uint32_t>(kSequences, QUIRE_TOKEN_UNKNOWN);
    std::vector<uint32_t> sampled = std::vector<uint32_t>(kSequences, 7);
    std::vector<quire_step_result> results = std::vector<quire_step_result>(kSequences);
    uint32_t length = 0;
};

void decode_step_of_256(benchmark::State &state) {
    Engine engine(static_cast<uint32_t>(state.range(0)));
    for (auto _ : state) {
        if (engine.length == kMaxTokens) {
            state.PauseTiming();
            engine.start();
            state.ResumeTiming();
        }
        engine.decode(true);
    }
    state.counters["floor_us"] = floor_nanoseconds() / 1000;
    state.counters["target_us"] = state.range(0) == 1 ? 15 : 25;
}
BENCHMARK(decode_step_of_256)
    ->ArgName("groups")
    ->Arg(1)
    ->Arg(2)
    ->Iterations(20000)
    ->Unit(benchmark::kMicrosecond);

void decode_step_of_256_logged(benchmark::State &state) {
    Engine engine(static_cast<uint32_t>(state.range(0)), true);
    engine.apply_nanoseconds = 0;
    for (auto _ : state) {
        if (engine.length == kMaxTokens) {
            state.PauseTiming();
            engine.start();
            state.ResumeTiming();
        }
        engine.decode(true);
    }
    state.counters["apply_us"] =
        engine.apply_nanoseconds / 1000 / static_cast<double>(state.iterations());
    state.counters["log_bytes"] = static_cast<double>(engine.log_bytes);
}
BENCHMARK(decode_step_of_256_logged)
    ->ArgName("groups")
    ->Arg(1)
    ->Arg(2)
    ->Iterations(20000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
