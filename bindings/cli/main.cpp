// SPDX-License-Identifier: Apache-2.0
//
// The `quire` command: a client of the C ABI like any other. This file defines the options, in one
// function per command; what a command does is in the file of its name.
//
// Exit status: 0 done, 1 failed, 2 invalid usage or input; the reason is on standard error.

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "calibration.hpp"
#include "capacity.hpp"
#include "conform.hpp"
#include "devices.hpp"
#include "dump.hpp"
#include "library.hpp"
#include "replay.hpp"
#include "size.hpp"
#include "tier.hpp"
#include "trace_make.hpp"

namespace {

using namespace quire::cli;

void add_devices(CLI::App *app, bool *json) {
    CLI::App *devices =
        app->add_subcommand("devices", "list backends and devices, and why some did not load");
    devices->add_flag("--json", *json, "print JSON");
    devices->footer("example: quire devices --json");
    devices->callback([json] { quire::cli::devices(*json); });
}

void add_conform(CLI::App *app, ConformOptions *options) {
    CLI::App *conform =
        app->add_subcommand("conform", "run the conformance suite on a backend, and report");
    add_conform_options(conform, options);
    conform->callback([options] { quire::cli::conform(*options); });
}

void add_conform_store(CLI::App *app, StoreConformOptions *options) {
    CLI::App *conform =
        app->add_subcommand("conform-store", "run the conformance suite on a store");
    add_conform_store_options(conform, options);
    conform->callback([options] { quire::cli::conform_store(*options); });
}

void add_calibration(CLI::App *app, CalibrationOptions *options) {
    CLI::App *calibration = app->add_subcommand(
        "calibration", "show the largest magnitudes of K and V that a run measured, or merge runs");
    calibration->add_option("files", options->files, "files that runs saved")->required();
    calibration->add_option("--merge", options->merged,
                            "write the maximum of each number to this file, and show it");
    calibration->add_flag("--json", options->json, "print JSON, with every head's numbers");
    calibration->footer(
        "example: quire calibration model.cal --json\n"
        "         quire calibration --merge model.cal monday.cal tuesday.cal");
    calibration->callback([options] { quire::cli::calibration(*options); });
}

// An unsigned option would read -1 as the largest number.
std::string refuse_minus(const std::string &text) {
    return text.starts_with('-') ? "must not be negative" : "";
}

void add_levels(CLI::App *replay, ReplayOptions *options) {
    auto add = [replay](const char *name, auto *value, const char *what) {
        return replay->add_option(name, *value, what);
    };
    add("--host-blocks", &options->host_blocks,
        "blocks of a host tier, where evicted blocks live on; 0 = none")
        ->check(refuse_minus);
    add("--disk-blocks", &options->disk_blocks,
        "blocks of a store below, from which prefixes are loaded; 0 = none")
        ->check(refuse_minus);
    add("--disk-write", &options->disk_write,
        "the blocks that are written to the store: through (each), selective (those found once) or "
        "back (those soon to be evicted)")
        ->default_str("through");
    add("--block-bytes", &options->block_bytes, "bytes of a block, as in 2MiB, and with it:");
    add("--host-bandwidth", &options->host_bandwidth,
        "bytes per second to and from the host tier, as in 50GB/s");
    add("--disk-read-bandwidth", &options->disk_read_bandwidth,
        "bytes per second from the store, as in 7GB/s");
    add("--disk-write-bandwidth", &options->disk_write_bandwidth, "and to the store");
    add("--disk-latency", &options->disk_latency, "of each load from the store, as in 100us");
    add("--tier", &options->tier,
        "instead of --disk-blocks a real store, as valkey: what it takes is measured");
    add("--tier-option", &options->tier_options,
        "a setting of it, as nodes=10.0.0.1:6379; may be repeated")
        ->allow_extra_args(false);
}

void add_replay(CLI::App *app, ReplayOptions *options) {
    CLI::App *replay =
        app->add_subcommand("replay", "run a trace of requests through the cache manager");
    replay->add_option("trace", options->trace, "a trace in Mooncake's or Azure's format")
        ->required();
    replay->add_option("--blocks", options->blocks, "blocks in the pool, including the null block")
        ->required();
    add_levels(replay, options);
    replay->add_option("--block-tokens", options->block_tokens, "tokens per block")
        ->capture_default_str();
    replay
        ->add_option("--mode", options->mode,
                     "sequential (one request after another) or concurrent")
        ->capture_default_str();
    replay->add_option("--running", options->running, "requests at once, in concurrent mode");
    replay->add_option("--policy", options->policy, "eviction: lru")->capture_default_str();
    replay->add_option("--limit", options->limit, "replay only the first requests; 0 = all")
        ->check(refuse_minus);
    replay->add_flag("--baseline", options->baseline, "also time a bare LRU of block names");
    replay->add_flag("--json", options->json, "print JSON");
    replay->add_option("--dump", options->dump,
                       "write a dump of the final cache to this file, for quire dump");
    replay->footer(
        "example: quire replay conversation_trace.jsonl --blocks 65536 --limit 1000 --json\n"
        "         quire replay AzureLLMInferenceTrace_conv.csv --blocks 65536 --mode concurrent "
        "--running 64\n"
        "         quire replay conversation_trace.jsonl --blocks 16384 --host-blocks 245760 "
        "--block-bytes 2MiB --host-bandwidth 50GB/s\n"
        "         quire replay conversation_trace.jsonl --blocks 16384 --disk-blocks 1000000 "
        "--block-bytes 2MiB --disk-read-bandwidth 7GB/s --disk-latency 100us");
    replay->callback([options] { quire::cli::replay(*options); });
}

void add_capacity(CLI::App *app, CapacityOptions *options) {
    CLI::App *command = app->add_subcommand(
        "capacity", "what a cluster below many engines would find, hold and carry, by simulation");
    auto add = [command](const char *name, auto *value, const char *what) {
        return command->add_option(name, *value, what);
    };
    add("trace", &options->trace, "a trace in Mooncake's format")->required();
    add("--engines", &options->engines, "engines that share the cluster")->required();
    add("--token-bytes", &options->token_bytes, "of K and V of a token, as in 128KiB")->required();
    add("--engine-memory", &options->engine_memory,
        "of an engine for its cache, device and host together, as in 64GiB")
        ->required();
    add("--cluster-memory", &options->cluster_memory, "of all nodes; without it, engines alone");
    add("--copies", &options->copies, "times the trace's traffic; default: as many as engines")
        ->check(refuse_minus);
    add("--affinity", &options->affinity,
        "share of requests that go to the engine which last had their prompt")
        ->capture_default_str();
    add("--block-tokens", &options->block_tokens, "tokens of a value")->capture_default_str();
    add("--nodes", &options->nodes, "of the cluster that hold values")->capture_default_str();
    add("--replicas", &options->replicas, "of each value besides")->capture_default_str();
    add("--prefill", &options->prefill, "tokens per second that an engine computes, as in 10k");
    add("--link", &options->link, "bytes per second between an engine and the cluster");
    add("--engine-price", &options->engine_price, "of an engine for an hour");
    add("--memory-price", &options->memory_price, "of a GiB of the cluster for an hour");
    add("--limit", &options->limit, "the trace's first requests; 0 = all")->check(refuse_minus);
    add("--seed", &options->seed, "of the routes")->check(refuse_minus)->capture_default_str();
    command->add_flag("--json", options->json, "print JSON");
    command->footer(
        "example: quire capacity conversation_trace.jsonl --engines 1000 --token-bytes 64KiB "
        "--engine-memory 128GiB --cluster-memory 64TiB --nodes 64 --prefill 20k --link 12GB/s");
    command->callback([options] { quire::cli::capacity(*options); });
}

void add_dump(CLI::App *app, DumpOptions *options) {
    CLI::App *dump =
        app->add_subcommand("dump", "show a dump of a cache (quire_cache_dump), or how two differ");
    dump->add_option("files", options->files, "files that quire_cache_dump wrote")->required();
    dump->add_flag("--diff", options->diff, "show which records and fields of two dumps differ");
    dump->add_flag("--json", options->json, "print JSON, with every field of every record");
    dump->footer(
        "example: quire dump stopped.dump\n"
        "         quire dump --diff before.dump after.dump");
    dump->callback([options] { quire::cli::dump(*options); });
}

void add_trace(CLI::App *app, TraceOptions *options) {
    CLI::App *trace = app->add_subcommand("trace", "make a trace from a seed, for quire replay");
    trace->add_option("--kind", options->kind, "mooncake (chats that share prefixes) or azure")
        ->capture_default_str();
    trace->add_option("--requests", options->requests, "number of requests")
        ->check(refuse_minus)
        ->capture_default_str();
    trace->add_option("--seed", options->seed, "the same seed gives the same trace")
        ->check(refuse_minus)
        ->capture_default_str();
    trace->add_option("--output", options->output, "the file to write; default: standard output");
    trace->footer("example: quire trace --kind azure --requests 5000 --output day.csv");
    trace->callback([options] { make_trace(*options); });
}

void add_size(CLI::App *app, SizeOptions *options) {
    CLI::App *size = app->add_subcommand(
        "size", "show how many sequences fit beside a model, and how fast they can decode");
    auto add = [size](const char *name, std::string *value, const char *what) {
        return size->add_option(name, *value, what);
    };
    add("--model", &options->model, "a known model (--list), or its numbers:");
    add("--layers", &options->layers, "layers");
    add("--kv-heads", &options->kv_heads, "KV heads");
    add("--q-heads", &options->q_heads,
        "query heads; without them attention counts as 0 operations");
    add("--head-dim", &options->head_dim, "elements of a head");
    add("--latent", &options->latent,
        "latent attention: V is this many elements of the row, as 512 of --head-dim 576");
    add("--params", &options->params, "parameters, like 8B; without them weights take no memory");
    add("--weight-dtype", &options->weight_dtype, "f32, f16, bf16, fp8, int8, int4")
        ->default_str("bf16");
    add("--kv-dtype", &options->kv_dtype,
        "f32, f16, bf16, fp8, fp8-e5m2, int8, int4; below 16 bits with an f32 scale per row")
        ->default_str("f16");
    add("--gpu", &options->gpu, "a known GPU (--list), or its numbers:");
    add("--hbm", &options->hbm, "memory of one device, like 80e9 or 80GiB");
    add("--bandwidth", &options->bandwidth, "bytes per second of one device, like 3.35e12");
    add("--flops", &options->flops, "operations per second of one device, like 989e12");
    add("--util", &options->util, "share of the memory to use; default 1, with --gpu 0.9");
    add("--reserve", &options->reserve, "bytes of each device to leave free in addition");
    add("--tp", &options->tp, "devices that share the model; default 1");
    add("--ctx", &options->ctx, "tokens per sequence");
    add("--batch", &options->batch, "sequences decoded at once; default 1");
    add("--block-tokens", &options->block_tokens, "tokens per block; default 16");
    size->add_flag("--list", options->list, "list the known models and GPUs");
    size->add_flag("--json", options->json, "print JSON");
    size->footer(
        "example: quire size --model llama-3.1-70b --gpu h100-sxm --tp 4 --ctx 8192\n"
        "         quire size --layers 36 --kv-heads 8 --head-dim 128 --params 8.19e9 "
        "--hbm 80e9 --util 0.9 --ctx 8192 --json");
    size->callback([options] { quire::cli::size(*options); });
}

void add_tier(CLI::App *app, TierOptions *options) {
    CLI::App *tier = app->add_subcommand("tier", "look into a store below the device, and tidy it");
    tier->require_subcommand(1);
    auto add = [&](const char *name, const char *what, void (*run)(const TierOptions &)) {
        CLI::App *command = tier->add_subcommand(name, what);
        command->add_option("directory", options->directory, "the folder of a disk store");
        command->add_option("--store", options->store, "the plugin's name")->capture_default_str();
        command->add_option("--option", options->options, "NAME=VALUE for the plugin; repeatable")
            ->allow_extra_args(false);
        command->add_flag("--json", options->json, "print JSON");
        command->footer(std::string("example: quire tier ") + name + " /var/cache/quire");
        command->callback([options, run] { run(*options); });
        return command;
    };
    add("ls", "show what is kept, of which models and tenants", tier_ls)
        ->add_flag("--records", options->records, "list each record too");
    add("check", "read every record; exit with 1 if one is damaged", tier_check);
    add("gc", "drop damaged records, and give back the room of removed ones", tier_gc);
    tier->footer("example: quire tier ls /var/cache/quire --json");
}

// CLI11 would only say that a command is missing. at: where in argv the command's name is.
void check_command(const CLI::App &app, int argc, char **argv, int at = 1) {
    auto commands = app.get_subcommands([](const CLI::App *) { return true; });
    if (commands.empty() || at >= argc || argv[at][0] == '-') return;
    for (const CLI::App *command : commands) {
        if (command->get_name() == argv[at]) return check_command(*command, argc, argv, at + 1);
    }
    throw Failure(std::string("there is no command '") + argv[at] + "'; " +
                      (at == 1 ? "quire" : "quire " + app.get_name()) + " --help lists them",
                  kUsage);
}

}  // namespace

int main(int argc, char **argv) {
    CLI::App app{
        "Lists Quire's devices, tests a backend against its contract, shows calibrations and "
        "cache dumps, sizes a deployment, replays traffic through the cache manager, and looks "
        "into stores.",
        "quire"};
    app.require_subcommand(1);
    app.failure_message(CLI::FailureMessage::simple);
    app.footer("example: quire replay conversation_trace.jsonl --blocks 65536");
    app.set_version_flag("--version", "quire " + std::to_string(QUIRE_VERSION_MAJOR) + "." +
                                          std::to_string(QUIRE_VERSION_MINOR));
    bool json = false;
    ReplayOptions replay;
    TraceOptions trace;
    SizeOptions size;
    ConformOptions conform;
    StoreConformOptions conform_store;
    CalibrationOptions calibration;
    DumpOptions dump;
    TierOptions tier;
    CapacityOptions capacity;
    add_devices(&app, &json);
    add_conform(&app, &conform);
    add_conform_store(&app, &conform_store);
    add_calibration(&app, &calibration);
    add_dump(&app, &dump);
    add_replay(&app, &replay);
    add_capacity(&app, &capacity);
    add_trace(&app, &trace);
    add_size(&app, &size);
    add_tier(&app, &tier);
    try {
        check_command(app, argc, argv);
        app.parse(argc, argv);
    } catch (const CLI::ParseError &failure) {
        return app.exit(failure) == 0 ? 0 : kUsage;
    } catch (const Failure &failure) {
        std::fprintf(stderr, "quire: %s\n", failure.what());
        return failure.exit_code;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "quire: %s\n", failure.what());
        return kFailed;
    }
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
    std::fprintf(stderr, "quire: standard output cannot be written: %s\n", std::strerror(errno));
    return kFailed;
}
