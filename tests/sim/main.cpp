// SPDX-License-Identifier: Apache-2.0
//
// main: quire-sim, a campaign over seeds or the replay of one script.
//
// Threads: each worker takes seeds from one counter and has a Runner of its own; findings are
// collected under a lock and shrunk when all workers have ended.
#include <dlfcn.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "clock.hpp"
#include "device.hpp"
#include "differential.hpp"
#include "library.hpp"
#include "options.hpp"
#include "ranks.hpp"
#include "runner.hpp"
#include "shrink.hpp"
#include "store.hpp"

namespace sim {
namespace {

thread_local Runner *current_runner = nullptr;

// A watch that saw nothing here would see nothing of libquire either.
void try_clocks(void *library) {
    const auto read = reinterpret_cast<void (*)()>(dlsym(library, "quire_sim_read_clocks"));
    clock_watch.on = true;
    read();
    const ClockWatch seen = clock_watch;
    clock_watch = {};
    if (seen.reads != 2 || seen.dates != 1)
        throw std::string("a library that reads two clocks was not seen to");
}

// The store's file lies in a folder of its own, so that the library finds nothing else there.
void find_store(const std::string &folder) {
    void *library = dlopen((folder + "/quire_store_sim.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    using Give = void (*)(const quire_store_api *);
    const auto give = reinterpret_cast<Give>(dlsym(library, "quire_sim_set_store"));
    give(Store::table());
    Store::directory = folder;
}

// The backend beside this program; it is given its table before the library opens it.
std::string plugin_path() {
    static const std::string path = [] {
        char self[4096] = {};
        if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return std::string();
        std::string file = self;
        file = file.substr(0, file.rfind('/')) + "/quire_backend_sim.so";
        void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return std::string();
        using Give = void (*)(const quire_backend_api *);
        const auto give = reinterpret_cast<Give>(dlsym(library, "quire_sim_set_table"));
        give(Device::table());
        if (clocks_are_watched) try_clocks(library);
        find_store(file.substr(0, file.rfind('/')) + "/plugin");
        return file;
    }();
    return path;
}

// Ends the script that the thread plays. The library's abort may hold its cache's lock, so that
// cache is left alone from here on.
void on_crash(int signal) {
    const char *name = signal == SIGSEGV   ? "crash-segv"
                       : signal == SIGABRT ? "crash-abort"
                       : signal == SIGALRM ? "hang"
                                           : "crash";
    if (current_runner == nullptr) _exit(3);
    current_runner->crash = name;
    siglongjmp(current_runner->escape, 1);
}

// A finding leaves its cache as it is, about 15 MB. A campaign that gets here has failed.
constexpr uint64_t kMostFindings = 500;

struct Found {
    uint64_t seed = 0;
    uint64_t count = 0;
    Outcome outcome;
};

struct Campaign {
    Options options;
    std::atomic<uint64_t> next{0};
    std::atomic<uint64_t> played{0};
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> findings{0};
    std::mutex lock;
    std::map<std::string, Found> found;
    Tally tally;
};

bool ignored(const std::string &list, const std::string &promise) {
    return ("," + list + ",").find("," + promise + ",") != std::string::npos;
}

void work(Campaign &campaign, const quire_api *api) {
    Runner runner(api, plugin_path());
    current_runner = &runner;
    runner.known = campaign.options.known;
    while (!campaign.stop) {
        const uint64_t index = campaign.next++;
        if (index >= campaign.options.seeds) break;
        const uint64_t seed = campaign.options.first + index;
        Outcome outcome = runner.random(seed, campaign.options.ops, campaign.options.features);
        ++campaign.played;
        if (!outcome.finding) continue;
        if (++campaign.findings == kMostFindings) campaign.stop = true;
        const std::lock_guard<std::mutex> guard(campaign.lock);
        Found &found = campaign.found[outcome.finding->promise];
        ++found.count;
        if (found.seed == 0 || outcome.at < found.outcome.at) {
            found.seed = seed;
            const std::string promise = outcome.finding->promise;
            found.outcome = std::move(outcome);
            if (!campaign.options.keep_going && !ignored(campaign.options.ignore, promise))
                campaign.stop = true;
        }
    }
    const std::lock_guard<std::mutex> guard(campaign.lock);
    campaign.tally.add(runner.tally);
    current_runner = nullptr;
}

void print_table(const Tally &tally, double seconds, bool json) {
    uint64_t total = 0;
    for (const uint64_t count : tally.ops) total += count;
    std::vector<std::pair<std::string, uint64_t>> lines;
    for (size_t i = 0; i < static_cast<size_t>(OpKind::count); ++i)
        lines.emplace_back(op_name(static_cast<OpKind>(i)), tally.ops[i]);
#define SIM_LINE(name) lines.emplace_back("." #name, tally.name);
    SIM_TALLY(SIM_LINE)
#undef SIM_LINE
    if (json)
        printf("{\"operations\": %llu, \"seconds\": %.3f", (unsigned long long)total, seconds);
    size_t column = 0;
    for (const auto &[name, count] : lines) {
        if (json)
            printf(", \"%s\": %llu", name.c_str() + (name[0] == '.'), (unsigned long long)count);
        else
            printf("%-22s %12llu%s", name.c_str(), (unsigned long long)count,
                   ++column % 3 == 0 ? "\n" : "   ");
    }
    if (json)
        printf("}\n");
    else
        printf("\n%llu operations in %.1f s: %.0f per second\n", (unsigned long long)total, seconds,
               static_cast<double>(total) / seconds);
}

// Shortens and writes what was found; true if anything counts.
bool report(Campaign &campaign) {
    bool counts = false;
    for (auto &[promise, found] : campaign.found) {
        counts |= !ignored(campaign.options.ignore, promise);
        fprintf(stderr, "\n%llu x %s, such as seed %llu, operation %zu\n    %s\n",
                (unsigned long long)found.count, promise.c_str(), (unsigned long long)found.seed,
                found.outcome.at, found.outcome.finding->text.c_str());
        if (ignored(campaign.options.ignore, promise)) continue;
        const std::string path = campaign.options.directory + "/finding-" + promise + "-" +
                                 std::to_string(found.seed) + ".txt";
        Script script = found.outcome.script;
        if (!campaign.options.no_shrink &&
            play_apart(script, path, campaign.options.known) == promise)
            script = shrink(script, promise, path, campaign.options.known);
        std::ofstream(path) << "# " << promise << ": " << found.outcome.finding->text << "\n"
                            << to_text(script);
        fprintf(stderr, "    %zu operations in %s\n", script.ops.size(), path.c_str());
    }
    return counts;
}

int run_campaign(const Options &options, const quire_api *api) {
    Campaign campaign;
    campaign.options = options;
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [begin] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < options.threads; ++i)
        threads.emplace_back([&] { work(campaign, api); });
    std::atomic<bool> ended{false};
    std::thread progress([&] {
        double next = 10;
        while (!ended) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            if (seconds() < next || options.quiet) continue;
            next += 10;
            fprintf(stderr, "%.0f s: %llu of %llu seeds\n", seconds(),
                    (unsigned long long)campaign.played.load(), (unsigned long long)options.seeds);
        }
    });
    for (std::thread &thread : threads) thread.join();
    const double took = seconds();
    ended = true;
    progress.join();
    if (!options.quiet) print_table(campaign.tally, took, options.json);
    fflush(stdout);
    const bool too_many = campaign.findings >= kMostFindings;
    if (too_many)
        fprintf(stderr, "stopped after %llu findings and %llu of %llu seeds\n",
                (unsigned long long)campaign.findings.load(),
                (unsigned long long)campaign.played.load(), (unsigned long long)options.seeds);
    return report(campaign) || too_many ? 1 : 0;
}

std::string read_file(const std::string &path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) throw "cannot read " + path;
    return text.str();
}

int run_shrink(const Options &options) {
    const std::string path = options.shrink + ".short";
    Script script = parse_script(read_file(options.shrink));
    const std::string promise = play_apart(script, path, options.known);
    if (promise.empty()) throw options.shrink + " finds nothing";
    script = shrink(script, promise, path, options.known);
    std::ofstream(path) << "# " << promise << "\n" << to_text(script);
    printf("%s: %zu operations in %s\n", promise.c_str(), script.ops.size(), path.c_str());
    return 1;
}

int run_replay(const Options &options, const quire_api *api) {
    alarm(20);
    Runner runner(api, plugin_path());
    current_runner = &runner;
    runner.known = options.known;
    runner.trace = options.trace;
    const Outcome outcome = runner.replay(parse_script(read_file(options.replay)), !options.loose);
    if (!options.quiet) print_table(runner.tally, 1e-9, options.json);
    if (!outcome.finding) return 0;
    printf("finding: %s\n", outcome.finding->promise.c_str());
    if (!options.quiet) printf("operation %zu: %s\n", outcome.at, outcome.finding->text.c_str());
    return ignored(options.ignore, outcome.finding->promise) ? 0 : 1;
}

// Each seed on two caches; the first that differs ends it.
int run_both(const Options &options, const quire_api *api) {
    quire_error error{};
    error.struct_size = sizeof error;
    quire_instance_desc desc{};
    desc.struct_size = sizeof desc;
    quire_instance *instance = nullptr;
    if (api->instance_create(&desc, &instance, &error) < 0)
        throw std::string("quire_instance_create: ") + error.message;
    for (uint64_t i = 0; i < options.seeds; ++i) {
        try {
            play_both(api, instance, options.first + i, options.ops);
        } catch (const Finding &finding) {
            printf("finding: %s\nseed %llu: %s\n", finding.promise.c_str(),
                   (unsigned long long)(options.first + i), finding.text.c_str());
            return 1;
        }
    }
    printf("%llu seeds, no difference\n", (unsigned long long)options.seeds);
    return 0;
}

void print_ranks(const RanksTally &t, uint64_t seeds, uint64_t found) {
    const std::pair<const char *, uint64_t> lines[] = {
        {"steps", t.steps},
        {"rows", t.rows},
        {"slots compared", t.slots},
        {"values right", t.values},
        {"logs applied", t.logs},
        {"reports taken", t.reports},
        {"reports lost", t.reports_lost},
        {"wrong ones refused", t.refused},
        {"items loading", t.loading},
        {"tokens found", t.hits},
        {"games with partial hits", t.partial_games},
        {"partial hits of leaders", t.partial_hits},
        {"partial hits followed", t.partial_followed},
        {"tokens found in parts", t.partial_tokens},
        {"loads begun *", t.loads_begun},
        {"loads used *", t.loads_used},
        {"loads missed *", t.loads_missed},
        {"loads late *", t.loads_late},
        {"loads cancelled *", t.loads_cancelled},
        {"tokens loaded *", t.tokens_loaded},
        {"tokens cached at the end", t.cached},
        {"loads that had to bring all", t.brought},
        {"leaders moved", t.leader_moves},
        {"followers moved", t.follower_moves},
        {"preempted", t.swaps},
        {"steps failed", t.failed_steps},
        {"tiers detached", t.detaches},
        {"faults of stores", t.store_faults}};
    for (const auto &[name, count] : lines)
        printf("%-28s %12llu\n", name, static_cast<unsigned long long>(count));
    printf("* since the leader's tier was attached last\n%llu seeds, %llu findings\n",
           static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(found));
}

// A game of ranks per seed. A finding names its seed: play that alone to see it again.
int run_ranks(const Options &options, const quire_api *api) {
    // Not on the stack, so that a jump out of a crash leaves it as it is.
    struct State {
        RanksTally tally;
        uint64_t index = 0;
        uint64_t findings = 0;
        Finding found;
    };
    const auto state = std::make_unique<State>();
    Runner runner(api, plugin_path());
    current_runner = &runner;
    for (; state->index < options.seeds; ++state->index) {
        const uint64_t seed = options.first + state->index;
        if (sigsetjmp(runner.escape, 1) != 0) {
            state->found = {runner.crash, "the library raised a signal"};
        } else {
            try {
                play_ranks(api, runner.instance(), seed, options.ops, &state->tally);
                continue;
            } catch (Finding &finding) {
                state->found = std::move(finding);
            }
        }
        ++state->findings;
        printf("finding: %s\nseed %llu: %s\n", state->found.promise.c_str(),
               static_cast<unsigned long long>(seed), state->found.text.c_str());
        fflush(stdout);
        if (!options.keep_going || state->findings == kMostFindings) break;
    }
    const uint64_t played = state->index + (state->index < options.seeds ? 1 : 0);
    if (!options.quiet) print_ranks(state->tally, played, state->findings);
    return state->findings != 0 ? 1 : 0;
}

int run(int argc, char **argv) {
    Options options;
    if (!parse_options(argc, argv, options)) {
        printf("%s\n", help().c_str());
        return 0;
    }
    const quire_api *api = open_library(options.library);
    if (plugin_path().empty()) options.features.set(Feature::device, false);
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM})
        ::signal(signal, on_crash);
    if (options.both) return run_both(options, api);
    if (options.ranks) return run_ranks(options, api);
    if (!options.shrink.empty()) return run_shrink(options);
    return options.replay.empty() ? run_campaign(options, api) : run_replay(options, api);
}

}  // namespace
}  // namespace sim

int main(int argc, char **argv) {
    try {
        return sim::run(argc, argv);
    } catch (const std::string &wrong) {
        fprintf(stderr, "quire-sim: %s\n", wrong.c_str());
        return 2;
    }
}
