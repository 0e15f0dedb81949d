// SPDX-License-Identifier: Apache-2.0
//
// The `quire` command: a client of the C ABI like any other.

#include <CLI/CLI.hpp>

#include <cstdio>

#include "conform.hpp"
#include "devices.hpp"
#include "library.hpp"
#include "replay.hpp"

int main(int argc, char **argv) {
    CLI::App app{"Looks at Quire's devices, holds a backend to its contract, and replays traffic."};
    app.require_subcommand(1);
    app.footer("example: quire replay conversation_trace.jsonl --blocks 65536");

    bool json = false;
    CLI::App *devices =
        app.add_subcommand("devices", "list backends and devices, and why some did not load");
    devices->add_flag("--json", json, "print JSON");
    devices->footer("example: quire devices --json");

    quire::cli::ReplayOptions options;
    CLI::App *replay =
        app.add_subcommand("replay", "run a trace of requests through the cache manager");
    replay->add_option("trace", options.trace, "a Mooncake trace, one JSON object a line")
        ->required();
    replay->add_option("--blocks", options.blocks, "blocks of the pool, the null block included")
        ->required();
    replay->add_option("--block-tokens", options.block_tokens, "tokens of a block")
        ->capture_default_str();
    replay->add_option("--policy", options.policy, "eviction: lru")->capture_default_str();
    replay->add_option("--limit", options.limit, "replay only the first requests; 0 = all");
    replay->add_flag("--baseline", options.baseline, "run a bare LRU of block names beside it");
    replay->add_flag("--json", options.json, "print JSON");
    replay->footer(
        "example: quire replay conversation_trace.jsonl --blocks 65536 --limit 1000 --json");

    quire::cli::ConformOptions conform_options;
    CLI::App *conform =
        app.add_subcommand("conform", "run the conformance suite on a backend, and report");
    quire::cli::add_conform_options(conform, &conform_options);

    CLI11_PARSE(app, argc, argv);
    try {
        if (devices->parsed()) quire::cli::devices(json);
        if (conform->parsed()) quire::cli::conform(conform_options);
        if (replay->parsed()) quire::cli::replay(options);
    } catch (const quire::cli::Failure &failure) {
        std::fprintf(stderr, "quire: %s\n", failure.what());
        return failure.exit_code;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "quire: %s\n", failure.what());
        return quire::cli::kFailed;
    }
    return 0;
}
