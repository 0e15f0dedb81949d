// SPDX-License-Identifier: Apache-2.0
//
// main: quire-hybrid, a World for each of a range of seeds.
//
// Threads: one.
#include <chrono>
#include <cstdio>

#include "library.hpp"
#include "options.hpp"

namespace hybrid {
namespace {

struct Campaign {
    uint64_t seeds = 0, caches = 0, steps = 0, rows = 0, slots = 0;
    Counts counts;
    std::map<std::string, std::vector<uint64_t>> failed;  // by check: seeds
};

// Plays one seed. True if every check held.
bool play(const quire_api *api, const Play &one, Campaign *campaign) {
    World world(api, one, &campaign->counts);
    bool held = true;
    try {
        world.run();
    } catch (const Failure &failure) {
        held = false;
        auto &seeds = campaign->failed[failure.check];
        seeds.push_back(one.seed);
        if (seeds.size() <= 2)
            printf("seed %llu step %u: %s: %s\n", static_cast<unsigned long long>(one.seed),
                   world.step_count, failure.check.c_str(), failure.text.c_str());
    }
    ++campaign->seeds;
    campaign->caches += world.cache != nullptr;
    campaign->steps += world.step_count;
    campaign->rows += world.row_count;
    campaign->slots += world.slots_compared;
    return held;
}

void report(const Options &options, const Campaign &campaign, double seconds) {
    printf("%llu seeds: %llu caches, %llu steps, %llu items ran, %llu slots compared, %.0f s\n",
           static_cast<unsigned long long>(campaign.seeds),
           static_cast<unsigned long long>(campaign.caches),
           static_cast<unsigned long long>(campaign.steps),
           static_cast<unsigned long long>(campaign.rows),
           static_cast<unsigned long long>(campaign.slots), seconds);
    for (const auto &[check, seeds] : campaign.failed) {
        printf("failed: %s, %zu seeds:", check.c_str(), seeds.size());
        for (size_t i = 0; i < seeds.size() && i < 8; ++i)
            printf(" %llu", static_cast<unsigned long long>(seeds[i]));
        printf("\n");
    }
    if (!campaign.failed.empty())
        printf("to repeat one: quire-hybrid --first SEED --ops %u --trace\n", options.play.ops);
    if (!options.show_counts) return;
    for (const auto &[name, count] : campaign.counts)
        printf("%-60s %llu\n", name.c_str(), static_cast<unsigned long long>(count));
}

int run(int argc, char **argv) {
    Options options;
    if (!parse_options(argc, argv, &options)) {
        printf("%s", help().c_str());
        return 0;
    }
    const quire_api *api = open_library(options.path);
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [begin] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    Campaign campaign;
    for (const uint64_t seed : options.seeds) {
        if (options.seconds != 0 && seconds() >= options.seconds) break;
        Play one = options.play;
        one.seed = seed;
        if (!play(api, one, &campaign) && !options.keep_going) break;
    }
    report(options, campaign, seconds());
    return campaign.failed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace hybrid

int main(int argc, char **argv) {
    try {
        return hybrid::run(argc, argv);
    } catch (const std::string &wrong) {
        fprintf(stderr, "quire-hybrid: %s\n", wrong.c_str());
        return 2;
    }
}
