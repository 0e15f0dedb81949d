// SPDX-License-Identifier: Apache-2.0
//
// options: see options.hpp.
#include "options.hpp"

#include <algorithm>
#include <exception>

#include "tests/effort.hpp"

namespace hybrid {
namespace {

constexpr const char *kHelp =
    "quire-hybrid [options]: random schedules of bookkeeping-only caches with groups of any kind,\n"
    "checked against a model of what every slot holds\n"
    "  --seeds N       how many seeds to play (with --first: 1 unless given)\n"
    "  --first S       the first one (with --seeds: 1 unless given). Without both: as many of\n"
    "                  the seeds 1 to 20000 as QUIRE_TEST_EFFORT says, from one that\n"
    "                  QUIRE_TEST_SEED chooses\n"
    "  --ops N         operations of each (200); part of a seed's schedule\n"
    "  --seconds T     begin no seed after that time\n"
    "  --keep-going    do not stop at the first failure; list the seeds of each check\n"
    "  --counts        print how often each thing happened\n"
    "  --trace         print each call\n"
    "  --library FILE  libquire; else the environment's QUIRE_LIBRARY\n"
    "  --plant WHAT    a fault that must be noticed: copy, table, hit, books or finish\n"
    "exit status: 0 every check held, 1 one failed, 2 wrong usage\n";

constexpr quire::tests::Counts kCounts = {20000, 1200, 300};

Plant plant_of(const std::string &name) {
    if (name == "copy") return Plant::copy;
    if (name == "table") return Plant::table;
    if (name == "hit") return Plant::hit;
    if (name == "books") return Plant::books;
    if (name == "finish") return Plant::finish;
    throw "unknown fault " + name;
}

uint64_t number(const std::string &name, const std::string &text) {
    size_t used = 0;
    uint64_t value = 0;
    try {
        value = std::stoull(text, &used);
    } catch (const std::exception &) {
        used = 0;
    }
    if (used == 0 || used != text.size()) throw name + " needs a number, not " + text;
    return value;
}

}  // namespace

std::string help() { return kHelp; }

bool parse_options(int argc, char **argv, Options *options) {
    options->seeds = quire::tests::seeds(1, kCounts);
    uint64_t first = 1;
    uint64_t count = 0;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        const auto value = [&]() -> std::string {
            if (i + 1 >= argc) throw name + " needs a value";
            return argv[++i];
        };
        if (name == "--seeds")
            count = number(name, value());
        else if (name == "--first")
            first = number(name, value());
        else if (name == "--ops")
            options->play.ops = static_cast<uint32_t>(number(name, value()));
        else if (name == "--seconds")
            options->seconds = static_cast<double>(number(name, value()));
        else if (name == "--keep-going")
            options->keep_going = true;
        else if (name == "--counts")
            options->show_counts = true;
        else if (name == "--trace")
            options->play.trace = true;
        else if (name == "--library")
            options->path = value();
        else if (name == "--plant")
            options->play.plant = plant_of(value());
        else if (name == "--help")
            return false;
        else
            throw "unknown option " + name;
        if (name != "--seeds" && name != "--first") continue;
        options->seeds.clear();
        for (uint64_t k = 0; k < std::max<uint64_t>(count, 1); ++k)
            options->seeds.push_back(first + k);
    }
    return true;
}

}  // namespace hybrid
