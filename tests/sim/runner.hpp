// SPDX-License-Identifier: Apache-2.0
//
// runner: plays one script, random or given, against a cache of its own.
//
// Threads: one Runner per thread; each has an instance of the library of its own.
#pragma once
#include <csetjmp>
#include <optional>
#include <string>
#include <vector>

#include "chooser.hpp"
#include "finding.hpp"
#include "world.hpp"

namespace sim {

struct Script {
    Config config;
    std::vector<Op> ops;
};

struct Outcome {
    std::optional<Finding> finding;
    size_t at = 0;  // operation that found it; ops.size(): the end of the script
    Script script;
};

std::string to_text(const Script &script);
// Throws std::string.
Script parse_script(const std::string &text);

class Runner {
 public:
    // plugin: the file of the simulated device's backend; empty: none, and no device.
    Runner(const quire_api *api, const std::string &plugin);
    ~Runner();
    // Ends sooner where the thread's tape of choices does (rng.hpp).
    Outcome random(uint64_t seed, uint32_t op_count, FeatureSet allowed);
    Outcome replay(const Script &script, bool strict);
    // The script so far of the run in progress; for the crash handler.
    const Script &current() const { return current_; }
    quire_instance *instance() { return instance_; }

    // A signal handler may set `crash` and jump here while a script is played.
    sigjmp_buf escape;
    std::string crash;

    Tally tally;
    std::string known;  // see World
    bool trace = false;

 private:
    template <class Next>
    Outcome play(const Config &config, bool strict, Next next);

    const quire_api *q_;
    quire_instance *instance_ = nullptr;
    quire_cache *foreign_ = nullptr;
    std::vector<uint64_t> foreign_handles_;
    Script current_;
};

}  // namespace sim
