// SPDX-License-Identifier: Apache-2.0
//
// main: plays seeds, and says what was found.
//
//   --backend NAME     cpu, cuda, hip or vulkan
//   --seeds N, --first N, --ops N, --seconds S
//   --drawn            the first seed comes from QUIRE_TEST_SEED
//   --trace            prints every operation
//   --no-faults        devices refuse nothing
//   --plant DEFECT     each seed leaves a call out; --nth N and --count N: which ones
//
// Exits with 0 if nothing was found, 1 if something was, 2 if it cannot run, 77 if there is no
// device.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tests/effort.hpp"
#include "world.hpp"

namespace gpupaths {

void Tally::print(const char *family, uint64_t seeds, double seconds) const {
    auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf("%s: %llu seeds, %llu operations, %llu steps of %llu rows, %.1f s\n", family,
                n(seeds), n(ops), n(steps), n(rows), seconds);
    std::printf(
        "  %llu rows and %llu places compared, %llu tokens found, %llu forks, %llu swaps, "
        "%llu recomputed, %llu moved, %llu migrations, %llu gates, %llu captures, "
        "%llu launches\n",
        n(seen), n(compared), n(hits), n(forks), n(swaps), n(recomputes), n(moved), n(migrations),
        n(gates), n(captures), n(graphs));
    std::printf(
        "  %llu faults planted, %llu refusals, %llu devices lost, %llu steps failed, "
        "%llu undone, %llu aborted, %llu calls busy, "
        "%llu defects planted\n",
        n(planted), n(strikes), n(lost), n(failed), n(undone), n(aborted), n(busy), n(defects));
}

namespace {

std::optional<Options> parse(int count, char **words) {
    Options options;
    for (int i = 1; i < count; ++i) {
        std::string word = words[i];
        const char *value = i + 1 < count ? words[i + 1] : nullptr;
        if (word == "--trace") {
            options.traces = true;
        } else if (word == "--drawn") {
            options.first_seed = 1 + quire::tests::run_seed() % 1'000'000;
        } else if (word == "--no-faults") {
            options.has_faults = false;
        } else if (value == nullptr) {
            return std::nullopt;
        } else {
            ++i;
            if (word == "--backend") {
                options.family = value;
            } else if (word == "--plant") {
                options.defect = value;
            } else if (word == "--seeds") {
                options.seeds = std::strtoull(value, nullptr, 10);
            } else if (word == "--first") {
                options.first_seed = std::strtoull(value, nullptr, 10);
            } else if (word == "--ops") {
                options.ops = static_cast<uint32_t>(std::strtoull(value, nullptr, 10));
            } else if (word == "--seconds") {
                options.seconds = std::strtod(value, nullptr);
            } else if (word == "--nth") {
                options.defect_nth = std::strtoull(value, nullptr, 10);
            } else if (word == "--count") {
                options.defect_count = std::strtoull(value, nullptr, 10);
            } else {
                return std::nullopt;
            }
        }
    }
    for (const char *name : {"cpu", "cuda", "hip", "vulkan"}) {
        if (options.family == name) return options;
    }
    return std::nullopt;
}

double now() {
    auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
}

constexpr unsigned kMostSeconds = 60;  // of one seed

char hang_text[160];
extern "C" void hang(int) {
    (void)!write(STDOUT_FILENO, hang_text, std::strlen(hang_text));
    _exit(1);
}

// Ends the process, in words, if the seed does not end.
void watch_seed(const Options &options, uint64_t seed) {
    std::snprintf(hang_text, sizeof hang_text,
                  "FOUND liveness: seed %llu did not end in %u s: --backend %s --first %llu "
                  "--seeds 1 --trace\n",
                  static_cast<unsigned long long>(seed), kMostSeconds, options.family.c_str(),
                  static_cast<unsigned long long>(seed));
    signal(SIGALRM, hang);
    alarm(kMostSeconds);
}

// Plays one seed; true if nothing was found. A cache that broke a promise is left as it is.
bool play(Library &library, const Options &options, uint64_t seed, Tally *tally) {
    std::unique_ptr<World> world;
    watch_seed(options, seed);
    try {
        world = std::make_unique<World>(library, options, seed, tally);
        world->play();
        return true;
    } catch (const Finding &finding) {
        std::printf("FOUND %s: seed %llu, operation %llu: %s\n", finding.promise.c_str(),
                    static_cast<unsigned long long>(seed),
                    static_cast<unsigned long long>(tally->ops), finding.text.c_str());
        if (world != nullptr) std::printf("  %s\n", world->shape().text().c_str());
        std::printf("  again: --backend %s --first %llu --seeds 1 --trace\n",
                    options.family.c_str(), static_cast<unsigned long long>(seed));
        std::fflush(stdout);
        (void)world.release();
        return false;
    }
}

int run(const Options &options) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    auto *library = new Library(options.family);  // what is found stays in use
    if (!library->has_device) {
        std::printf("SKIPPED: no %s device here\n", options.family.c_str());
        return 77;
    }
    Tally tally;
    double begun = now();
    uint64_t played = 0, found = 0;
    for (uint64_t i = 0; i < options.seeds && found < 20; ++i, ++played) {
        if (options.seconds > 0 && now() - begun > options.seconds) break;
        if (!play(*library, options, options.first_seed + i, &tally)) ++found;
        if (found != 0 && !options.defect.empty()) break;
    }
    for (Backend &backend : library->backends) tally.defects += backend.defects();
    tally.print(options.family.c_str(), played, now() - begun);
    std::fflush(stdout);
    if (found == 0) {
        delete library;
        return 0;
    }
    std::printf("%llu found\n", static_cast<unsigned long long>(found));
    std::fflush(stdout);
    std::_Exit(1);
}

}  // namespace
}  // namespace gpupaths

int main(int count, char **words) {
    std::optional<gpupaths::Options> options = gpupaths::parse(count, words);
    if (!options) {
        std::fprintf(stderr,
                     "usage: quire-gpupaths --backend cpu|cuda|hip|vulkan [--seeds N] "
                     "[--first N] [--drawn] [--ops N] [--seconds S] [--trace] [--no-faults] "
                     "[--plant DEFECT] [--nth N] [--count N]\n");
        return 2;
    }
    return gpupaths::run(*options);
}
