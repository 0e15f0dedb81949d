// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include <quire/api.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "dtype.hpp"

namespace quire::bench {

bool Options::wants(const std::string &name) const {
    return std::find(cases.begin(), cases.end(), name) != cases.end();
}

uint32_t Options::device_flags() const {
    return is_fast_16bit ? uint32_t{QUIRE_DEVICE_FAST_16BIT} : 0u;
}

std::optional<Options> parse_options(int argc, char **argv, const Offer &offer, int *exit_status) {
    Options options;
    options.cases = offer.cases;
    options.dtypes = offer.dtypes;
    options.threads = {1, 2};
    CLI::App app(offer.description, offer.command);
    app.footer(offer.example);
    app.add_option("--case", options.cases, "only these; default: all")
        ->check(CLI::IsMember(offer.cases));
    if (!offer.dtypes.empty()) {
        std::vector<std::string> names;
        for (const Dtype &dtype : dtypes()) names.push_back(dtype.name);
        app.add_option("--dtype", options.dtypes, "types of K and V in the pool")
            ->check(CLI::IsMember(names))
            ->capture_default_str();
    }
    CLI::Option *threads =
        app.add_option(
               "--threads", options.threads,
               "threads of the device and of what it is compared with; default for cpu: 1 and 2")
            ->check(CLI::Range(1u, 256u))
            ->capture_default_str();
    if (offer.has_device) {
        app.add_option("--device", options.device, "backend and device, as cpu or vulkan:1")
            ->capture_default_str();
    }
    if (offer.has_fast_16bit) {
        app.add_flag("--fast-16bit", options.is_fast_16bit,
                     "open the device with QUIRE_DEVICE_FAST_16BIT; its name says if that matters");
    }
    app.add_option("--seconds", options.seconds,
                   "repeat each case for this long; at least 2 times, at most 25")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    app.add_option("--scale", options.scale,
                   "divide lengths and sizes, for a quick look: the figures are then meaningless")
        ->check(CLI::Range(1u, 1u << 20))
        ->capture_default_str();
    app.add_flag("--json", options.json, "one JSON object on standard output");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        *exit_status = app.exit(error);
        return std::nullopt;
    }
    if (options.device != "cpu" && threads->count() == 0) options.threads = {1};
    return options;
}

}  // namespace quire::bench
