// SPDX-License-Identifier: Apache-2.0
//
// options: see options.hpp.
#include "options.hpp"

#include <cstdlib>

namespace sim {
namespace {

constexpr const char *kHelp =
    "quire-sim [options]: random scripts against libquire, checked by a model made of the headers\n"
    "  --seeds N        how many seeds to play (100)\n"
    "  --first S        the first seed (QUIRE_TEST_SEED modulo 1,000,000, else 1)\n"
    "  --ops N          operations of each (2000)\n"
    "  --threads N      (1)\n"
    "  --features LIST  only these, comma-separated; --without LIST leaves some out\n"
    "  --ignore LIST    promises whose findings only end their seed\n"
    "  --known LIST     promises known to be broken: passed over where the model can go on\n"
    "                   (both have defaults, for the defects that are open; none: pass nothing "
    "over)\n"
    "  --keep-going     do not stop at the first finding; report one seed of each promise\n"
    "  --no-shrink      write scripts as they were played\n"
    "  --directory DIR  where scripts are written (.)\n"
    "  --replay FILE    play a script; every call is looked at (--loose: as in a random run)\n"
    "  --shrink FILE    shorten a script that finds something or crashes; writes FILE.short\n"
    "  --library FILE   libquire; else the environment's QUIRE_LIBRARY\n"
    "  --both           compare a host tier's hits with those of one pool of both sizes\n"
    "  --ranks          a leader and followers with a store each, in place of one cache\n"
    "  --json           the table as JSON\n"
    "exit status: 0 nothing found, 1 a finding, 2 wrong usage\n"
    "features: ";

constexpr uint64_t kSeeds = 1000000;  // that QUIRE_TEST_SEED chooses from

uint64_t default_first() {
    const char *value = std::getenv("QUIRE_TEST_SEED");
    return value == nullptr || *value == 0 ? 1 : std::strtoull(value, nullptr, 10) % kSeeds;
}

}  // namespace

std::string help() { return kHelp + FeatureSet::names(); }

bool parse_options(int argc, char **argv, Options &o) {
    o.first = default_first();
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        const auto value = [&]() -> std::string {
            if (i + 1 >= argc) throw name + " needs a value";
            return argv[++i];
        };
        std::string unknown;
        bool good = true;
        if (name == "--seeds")
            o.seeds = std::stoull(value());
        else if (name == "--first")
            o.first = std::stoull(value());
        else if (name == "--ops")
            o.ops = static_cast<uint32_t>(std::stoul(value()));
        else if (name == "--threads")
            o.threads = static_cast<uint32_t>(std::stoul(value()));
        else if (name == "--features") {
            o.features = FeatureSet();
            good = o.features.apply(value(), true, unknown);
        } else if (name == "--without")
            good = o.features.apply(value(), false, unknown);
        else if (name == "--ignore")
            o.ignore = value();
        else if (name == "--replay")
            o.replay = value();
        else if (name == "--shrink")
            o.shrink = value();
        else if (name == "--library")
            o.library = value();
        else if (name == "--directory")
            o.directory = value();
        else if (name == "--both")
            o.both = true;
        else if (name == "--ranks")
            o.ranks = true;
        else if (name == "--json")
            o.json = true;
        else if (name == "--quiet")
            o.quiet = true;
        else if (name == "--keep-going")
            o.keep_going = true;
        else if (name == "--no-shrink")
            o.no_shrink = true;
        else if (name == "--loose")
            o.loose = true;
        else if (name == "--trace")
            o.trace = true;
        else if (name == "--known")
            o.known = value();
        else if (name == "--help")
            return false;
        else
            throw "unknown option " + name;
        if (!good) throw "unknown feature " + unknown;
    }
    return true;
}

}  // namespace sim
