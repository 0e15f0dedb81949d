// SPDX-License-Identifier: Apache-2.0
//
// cycles: loads the library, works, destroys everything and closes it, over and over; the process
// must not change: mappings, descriptors, threads, resident memory.
//
//   cycles COUNT [--plant mapping | descriptor | thread | memory | foreign]
//
// The first cycles warm up: the library stays loaded (it is linked with nodelete). glibc keeps the
// stacks of ended threads, and an arena for each of the most that ran at once, so a process still
// acquires some memory now and then, which it then reuses. A leak grows in every run of cycles; so
// the test passes if nothing grew in at least one of several runs. A planted leak is left behind
// once per cycle and must be reported; `foreign` gives the process's free() a pointer that is not
// its own (owning_malloc.c).
//
// Exits 1 and prints what grew.
//
// Threads: this one, and the library's.

#include <dlfcn.h>
#include <fcntl.h>
#include <quire/quire.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "library_copy.hpp"
#include "objects.hpp"

namespace {

using namespace quire::test;

constexpr int kWarmUp = 30;
constexpr int kRuns = 10;
constexpr int64_t kTouchedKib = 256;  // pages that were mapped before may be touched later

struct State {
    int64_t mappings = 0;
    int64_t mapped_kib = 0;
    int64_t descriptors = 0;
    int64_t threads = 0;
    int64_t resident_kib = 0;
};

int64_t entries(const char *folder) {
    int64_t count = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder)) {
        (void)entry;
        ++count;
    }
    return count;
}

// A joined thread's folder in /proc disappears a moment after join returns.
int64_t threads() {
    int64_t least = entries("/proc/self/task");
    for (int i = 0; i < 100 && least > 1; ++i) {
        usleep(1000);
        least = std::min(least, entries("/proc/self/task"));
    }
    return least;
}

State look() {
    State state;
    state.threads = threads();
    state.descriptors = entries("/proc/self/fd");
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long long begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%llx-%llx", &begin, &end) != 2) continue;
        ++state.mappings;
        state.mapped_kib += static_cast<int64_t>((end - begin) >> 10);
    }
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string line; std::getline(rollup, line);) {
        long long kib = 0;
        if (std::sscanf(line.c_str(), "Rss: %lld", &kib) == 1) state.resident_kib = kib;
    }
    return state;
}

// Returns an empty string, or what went wrong.
std::string cycle() {
    void *handle = nullptr;
    const quire_api *api = functions_of(library_path().c_str(), &handle);
    if (api == nullptr) return "the library cannot be loaded";
    Objects w(*api);
    quire_instance_desc host{};
    host.struct_size = sizeof host;
    if (w.make(host)) w.launch();
    w.destroy();
    dlclose(handle);
    return w.problem();
}

void leave_behind(const std::string &what) {
    constexpr size_t bytes = 100 << 10;  // 50 of them exceed a huge page
    if (what == "mapping") {
        mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);  // two never merge
    } else if (what == "descriptor") {
        if (open("/dev/null", O_RDONLY) < 0) std::abort();
    } else if (what == "thread") {
        std::thread([] { sleep(1000); }).detach();
    } else if (what == "memory") {
        static std::vector<char *> kept;
        kept.push_back(static_cast<char *>(std::malloc(bytes)));
        std::memset(kept.back(), 1, bytes);
    } else if (what == "foreign") {
        static char page[4096];
        void *volatile not_allocated = page + 64;
        std::free(not_allocated);
    }
}

bool same(const char *what, int64_t before, int64_t after, int64_t slack) {
    std::printf("%-12s %8lld -> %8lld\n", what, static_cast<long long>(before),
                static_cast<long long>(after));
    return after <= before + slack;
}

bool constant(const State &before, const State &after) {
    bool mappings = same("mappings", before.mappings, after.mappings, 0);
    bool mapped = same("mapped KiB", before.mapped_kib, after.mapped_kib, 0);
    bool descriptors = same("descriptors", before.descriptors, after.descriptors, 0);
    bool threads = same("threads", before.threads, after.threads, 0);
    bool resident = same("resident KiB", before.resident_kib, after.resident_kib, kTouchedKib);
    return mappings && mapped && descriptors && threads && resident;
}

// Returns an empty string, or what went wrong.
std::string cycles(int count, const std::string &planted) {
    for (int i = 0; i < count; ++i) {
        std::string problem = cycle();
        if (!problem.empty()) return problem;
        leave_behind(planted);
    }
    return "";
}

}  // namespace

int main(int argc, char **argv) {
    int count = argc > 1 ? std::atoi(argv[1]) : 0;
    std::string planted = argc > 3 && std::strcmp(argv[2], "--plant") == 0 ? argv[3] : "";
    if (count <= 0) return 2;
    std::string problem = cycles(kWarmUp, planted);
    for (int run = 0; run < kRuns && problem.empty(); ++run) {
        State before = look();
        problem = cycles(count, planted);
        if (problem.empty() && constant(before, look())) return 0;
    }
    std::printf("%s\n", problem.empty() ? "something grew in every run" : problem.c_str());
    return 1;
}
