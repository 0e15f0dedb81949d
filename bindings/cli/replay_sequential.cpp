// SPDX-License-Identifier: Apache-2.0
//
// The manager's time is the time of the whole loop minus that of the same loop without the calls:
// reading a clock around each of twelve million calls would cost as much as the calls do.

#include "replay_sequential.hpp"

#include "bare_lru.hpp"
#include "progress.hpp"
#include "replay_cache.hpp"

namespace quire::cli {

namespace {

struct Loop {
    uint64_t hit_tokens = 0;
    uint64_t steps = 0;
    uint64_t checksum = 0;  // keeps the loop without calls from being removed
};

uint32_t run_step(ReplayCache *cache, quire_seq seq, const uint32_t *tokens, uint32_t count,
                  uint64_t request) {
    quire_step_item item{};
    item.seq = seq;
    item.token_count = count;
    item.flags = QUIRE_ITEM_MAY_LOAD;
    quire_step_result result;
    quire_step step = cache->begin(&item, 1, tokens, count, &result);
    while (result.outcome == QUIRE_ITEM_LOADING) {
        cache->abort();
        cache->wait_for_load();
        step = cache->begin(&item, 1, tokens, count, &result);
    }
    if (result.outcome != QUIRE_ITEM_RUN) does_not_fit(request, result.blocks_short);
    cache->commit_and_finish(step);
    return result.hit_tokens;
}

template <bool kCalls>
Loop run(const Trace &trace, ReplayCache *cache) {
    Loop loop;
    Progress progress("replaying request", trace.requests.size());
    for (uint64_t i = 0; i < trace.requests.size(); ++i) {
        const Request &request = trace.requests[i];
        const uint32_t *prompt = trace.inputs.data() + request.first_input;
        quire_seq seq = 0;
        progress.at(i);
        if constexpr (kCalls) {
            seq = cache->begin_sequence();
            loop.hit_tokens += run_step(cache, seq, prompt, request.input_length, i);
        }
        loop.checksum += prompt[request.input_length - 1];
        ++loop.steps;
        for (uint32_t k = 0; k + 1 < request.output_length; ++k) {
            volatile uint32_t token = request.first_output + k;
            uint32_t plain = token;
            if constexpr (kCalls) run_step(cache, seq, &plain, 1, i);
            loop.checksum += plain;
            ++loop.steps;
        }
        if constexpr (kCalls) cache->end_sequence(seq);
    }
    return loop;
}

}  // namespace

ReplayCounts replay_sequential(const ReplayOptions &options, const Trace &trace) {
    ReplayCache cache(options, 16);
    double begin = process_seconds();
    Loop loop = run<true>(trace, &cache);
    double with_calls = process_seconds() - begin;
    begin = process_seconds();
    Loop without = run<false>(trace, nullptr);
    double bare_loop = process_seconds() - begin;
    if (without.checksum != loop.checksum)
        throw Failure("the two loops differ: this is a bug", kFailed);
    ReplayCounts counts;
    counts.hit_tokens = loop.hit_tokens;
    counts.steps = loop.steps;
    counts.seconds = with_calls - bare_loop;
    cache.count(&counts);
    cache.write_dump(options);
    return counts;
}

}  // namespace quire::cli
