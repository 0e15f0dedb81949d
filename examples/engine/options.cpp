// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include "cache.hpp"
#include "common_options.hpp"
#include "quire/step.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <set>

namespace engine {
namespace {

constexpr const char *kDescription =
    "Serves a small Llama model through Quire's paged KV cache.\n"
    "Without options it serves its own workload: chats that share system prompts and do not fit\n"
    "into the pool at once, on a model made from a seed, and compares every text with a dense run.";

constexpr const char *kExample =
    "Example: one story, eight times over, on a pool that holds one and a half of them\n"
    "  ./dev run --weights stories260K.bin --tokenizer tok512.bin --prompt \"\" \\\n"
    "            --samples 8 --pool-blocks 24 --preempt swap\n"
    "The text goes to stdout; progress and the table go to stderr.";

constexpr const char *kCalibrationExample =
    "Example: int8 with one scale per head, measured in an f32 run\n"
    "  ./dev run --calibrate demo.cal\n"
    "  ./dev run --kv-dtype int8 --kv-scale head --calibration demo.cal";

constexpr const char *kSessionExample =
    "Example: half a story now, and the rest from a file in another process, on another device\n"
    "  ./dev run --prompt \"Tell me\" --steps 128 --save-session half.session\n"
    "  ./dev run --restore-session half.session --steps 256 --device vulkan\n"
    "The second continues where the first ended: its text begins after the last token printed.";

constexpr const char *kHandOverExample =
    "Example: one process computes the prompt, the other one goes on from it\n"
    "  ./dev run --prompt \"Tell me\" --hand-over-listen prompt.socket &\n"
    "  ./dev run --prompt \"Tell me\" --device vulkan --hand-over-to prompt.socket\n"
    "or both in one: ./dev run --prompt \"Tell me\" --prefill-on vulkan --decode-on cpu";

constexpr uint32_t kMostBlocks = 0x7FFFFFFF;

// Options whose text has to be converted for the engine.
struct Given {
    std::string prompt;
    std::string device = "cpu";
    std::string preempt = "auto";
    bool no_check = false;
    std::vector<std::string> migrate_to;
    std::string prefill_on;
    std::string decode_on;
};

uint32_t preempt_kind(const std::string &name) {
    if (name == "swap") {
        return QUIRE_PREEMPT_SWAP;
    }
    return name == "recompute" ? QUIRE_PREEMPT_RECOMPUTE : QUIRE_PREEMPT_AUTO;
}

const std::map<std::string, Fault> kFaults = {{"none", Fault::none},
                                              {"zero-attention", Fault::zero_attention},
                                              {"wrong-block", Fault::wrong_block}};

const std::map<std::string, LogFault> kLogFaults = {
    {"damage", LogFault::damage}, {"repeat", LogFault::repeat}, {"drop", LogFault::drop}};

std::string power_of_two(const std::string &text) {
    uint32_t value = 0;
    const bool number = CLI::detail::lexical_cast(text, value);
    const bool valid = number && value >= 1 && value <= 256 && (value & (value - 1)) == 0;
    return valid ? "" : text + " is not a power of two from 1 to 256";
}

// "cpu" or "cpu:1".
std::string split_device(const std::string &text, std::string &device, uint32_t &index) {
    const size_t colon = text.find(':');
    device = text.substr(0, colon);
    const bool valid =
        colon == std::string::npos || CLI::detail::lexical_cast(text.substr(colon + 1), index);
    return valid && !device.empty() ? "" : text + " is not NAME or NAME:INDEX";
}

// Cuts off what follows `mark`, if present; false if that is not a number from `least` to `most`.
bool cut_number(std::string &text, char mark, uint32_t least, uint32_t most, uint32_t &value) {
    const size_t at = text.rfind(mark);
    if (at == std::string::npos) {
        return true;
    }
    const bool valid =
        CLI::detail::lexical_cast(text.substr(at + 1), value) && value >= least && value <= most;
    text.resize(at);
    return valid;
}

// DEVICE, DEVICE@BLOCKS, DEVICE/TP or DEVICE@BLOCKS/TP.
void read_migrations(const Given &given, Options &options) {
    for (const std::string &text : given.migrate_to) {
        MigrateTo to{.text = text, .device = {}};
        std::string rest = text;
        const bool valid = cut_number(rest, '/', 1, 64, to.tp) &&
                           cut_number(rest, '@', 2, kMostBlocks, to.pool_blocks) &&
                           split_device(rest, to.device, to.device_index).empty();
        if (!valid) {
            throw CLI::ValidationError("--migrate-to", text +
                                                           " is not DEVICE@BLOCKS, such as "
                                                           "cuda:1@256, or DEVICE@BLOCKS/TP");
        }
        options.migrate_to.push_back(to);
    }
}

// Checks that the formats fit what is measured or loaded.
void check_calibration(const CLI::App &app, const Options &options) {
    const bool codes = holds_codes(options.kv_dtype);
    const bool static_scales = options.kv_scale != "token";
    if (app.count("--kv-scale") > 0 && !codes) {
        throw CLI::ValidationError("--kv-scale", options.kv_dtype + " has no scales");
    }
    if (static_scales && options.calibration.empty()) {
        throw CLI::ValidationError("--kv-scale", options.kv_scale + " needs --calibration FILE, " +
                                                     "which a run with --calibrate FILE makes");
    }
    if (!static_scales && !options.calibration.empty()) {
        throw CLI::ValidationError("--calibration", "is for --kv-scale tensor or head");
    }
    if (!options.calibrate.empty() && codes) {
        throw CLI::ValidationError("--calibrate", "measures with --kv-dtype f32, f16 or bf16");
    }
    if (!options.calibrate.empty() && options.processes) {
        throw CLI::ValidationError("--calibrate",
                                   "a rank measures only its own heads: leave out --processes");
    }
}

// Checks what makes sense for one text only.
void check_text(const CLI::App &app, const Options &options) {
    if (app.count("--prompt") > 0 || !options.restore_session.empty()) {
        return;
    }
    for (const char *name : {"--steps", "--temperature", "--save-session"}) {
        if (app.count(name) > 0) {
            throw CLI::ValidationError(name, "is for --prompt or --restore-session");
        }
    }
}

// Checks that one process holds all of the text.
void check_session(const Options &options) {
    for (const auto &[name, path] : {std::pair{"--save-session", &options.save_session},
                                     std::pair{"--restore-session", &options.restore_session}}) {
        if (!path->empty() && options.processes) {
            throw CLI::ValidationError(name,
                                       "a rank holds only its own heads: leave out "
                                       "--processes");
        }
    }
}

// Checks that the store can serve the cache.
void check_tier(const Options &options) {
    if (options.tier.empty()) {
        return;
    }
    if (options.host_bytes == 0) {
        throw CLI::ValidationError("--tier",
                                   "loads pass through host memory: give --host-bytes above 0");
    }
    for (const std::string &one : options.tier_options) {
        if (one.find('=') == std::string::npos) {
            throw CLI::ValidationError("--tier-option", one + " is not NAME=VALUE");
        }
    }
}

void read_devices(const Given &given, Options &options) {
    const auto split = [](const char *name, const std::string &text, std::string &device,
                          uint32_t &index) {
        if (const std::string wrong = split_device(text, device, index); !wrong.empty()) {
            throw CLI::ValidationError(name, wrong);
        }
    };
    split("--device", given.device, options.device, options.device_index);
    if (!given.prefill_on.empty()) {
        split("--prefill-on", given.prefill_on, options.prefill_on, options.prefill_index);
    }
    if (!given.decode_on.empty()) {
        split("--decode-on", given.decode_on, options.device, options.device_index);
    }
}

// Checks that there is one prompt, and that one process computes it.
void check_hand_over(const CLI::App &app, const Options &options) {
    for (const char *name : {"--prefill-on", "--hand-over-to", "--hand-over-listen"}) {
        if (app.count(name) == 0) {
            continue;
        }
        if (app.count("--prompt") == 0 || options.samples != 1) {
            throw CLI::ValidationError(name, "is for one text of a --prompt");
        }
        if (options.processes || !options.migrate_to.empty()) {
            throw CLI::ValidationError(name, "leave out --processes and --migrate-to");
        }
    }
}

void add_hand_over_options(CLI::App &app, Options &options, Given &given) {
    auto *on =
        app.add_option("--prefill-on", given.prefill_on,
                       "compute the prompt in a cache of its own on this device, and hand it "
                       "over to the one that decodes");
    app.add_option("--decode-on", given.decode_on, "the device that decodes; default: --device")
        ->needs(on);
    auto *to = app.add_option("--hand-over-to", options.hand_over_to,
                              "compute the prompt alone, and hand it over to the engine that "
                              "listens there: the path of a Unix socket, or HOST:PORT")
                   ->excludes(on);
    app.add_option("--hand-over-listen", options.hand_over_listen,
                   "take the computed prompt from an engine with --hand-over-to; if it does not "
                   "come, compute it")
        ->excludes(on)
        ->excludes(to);
    app.add_option("--hand-over-seconds", options.hand_over_seconds,
                   "how long the other engine may be silent; default 10")
        ->check(CLI::Range(0.01, 86400.0));
}

void add_tier_options(CLI::App &app, Options &options) {
    auto *tier = app.add_option("--tier", options.tier,
                                "the store, as disk, that cached prefixes are written to and "
                                "loaded from");
    app.add_option("--tier-option", options.tier_options,
                   "a setting of the store, as directory=/var/cache/quire; may be repeated; with "
                   "--processes {rank} in it is the number of the process, whose store it is")
        ->needs(tier);
    app.add_option("--tier-write", options.tier_write,
                   "which blocks are written: all (through), those found once (selective), or "
                   "those soon to be evicted (back)")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, uint32_t>{{"through", QUIRE_TIER_WRITE_THROUGH},
                                            {"selective", QUIRE_TIER_WRITE_SELECTIVE},
                                            {"back", QUIRE_TIER_WRITE_BACK}}))
        ->default_str("through")
        ->needs(tier);
}

void add_model_options(CLI::App &app, Options &options) {
    auto *weights = add_weights_options(app, options.weights, options.tokenizer);
    app.add_option("--seed", options.seed,
                   "seed of the model, the workload and sampling, default 1");
    app.add_option("--kv-heads", options.kv_heads,
                   "KV heads of the model made from a seed, a divisor of its query heads")
        ->check(CLI::Range(1U, 64U))
        ->excludes(weights);
}

void add_pool_options(CLI::App &app, Options &options, Given &given) {
    app.add_option("--device", given.device, "backend and device, as cpu or cuda:1; default cpu");
    app.add_flag("--fast-16bit", options.fast_16bit,
                 "let attention over f16 and bf16 use instructions that multiply 16 bits");
    app.add_option("--pool-blocks", options.pool_blocks,
                   "blocks in the pool, including the null block, at least 2; default 128")
        ->check(CLI::Range(2U, kMostBlocks));
    app.add_option("--block-tokens", options.block_tokens,
                   "tokens in a block, a power of two to 256; default 16")
        ->check(power_of_two);
    app.add_option("--kv-dtype", options.kv_dtype,
                   "type of K and V in the pool; default f32, the type that texts are compared in")
        ->check(CLI::IsMember(kv_dtype_names()));
    app.add_option("--q-dtype", options.q_dtype,
                   "type of queries and of attention's results, f32, f16 or bf16; default f32. The "
                   "model computes in f32 all the same")
        ->check(CLI::IsMember(q_dtype_names()));
    app.add_option("--pad-heads", options.pad_heads,
                   "elements of a head in the pool, zeros after the model's own, for backends that "
                   "are faster with longer heads; default: the model's")
        ->check(CLI::Range(1U, 4096U));
    app.add_option(
           "--kv-scale", options.kv_scale,
           "fp8, int8 and int4 have one scale per layer's K or V (tensor), per head of it (head), "
           "or per token of a head (token); default token, which needs no calibration")
        ->check(CLI::IsMember(std::set<std::string>{"tensor", "head", "token"}));
    app.add_option("--calibrate", options.calibrate,
                   "measure the largest K and V of this run, and save them to this file");
    app.add_option("--calibration", options.calibration,
                   "what --calibrate saved, for --kv-scale tensor or head");
    app.add_option("--host-bytes", options.host_bytes,
                   "host memory for swapped blocks, as 64MiB (the default); 0: no swapping")
        ->transform(CLI::AsSizeValue(false));
    app.add_flag("--host-prefixes", options.host_prefixes,
                 "prefixes that are evicted from the device live on in that memory");
    app.add_flag("--partial-hits", options.partial_hits,
                 "prefixes are found up to a place within a block, which is copied");
    app.add_option("--preempt", given.preempt,
                   "what happens to a preempted text's blocks; default auto")
        ->check(CLI::IsMember(std::set<std::string>{"auto", "swap", "recompute"}));
    app.add_option("--max-batch", options.max_batch, "texts in a step, default 16")
        ->check(CLI::Range(1U, 4096U));
    app.add_option("--chunk", options.chunk_tokens, "prompt tokens in a step, default 64")
        ->check(CLI::Range(1U, 1U << 20));
}

void add_rank_options(CLI::App &app, Options &options, Given &given) {
    auto *tp = app.add_option("--tp", options.tp,
                              "tensor parallelism: devices that share the heads, default 1")
                   ->check(CLI::Range(1U, 64U));
    auto *processes = app.add_flag("--processes", options.processes,
                                   "run each device in its own process, following the first")
                          ->needs(tp);
    auto *migrate =
        app.add_option("--migrate-to", given.migrate_to,
                       "move the cache there during the run, as cpu@96 (96 blocks; without a "
                       "number: as many as now) or cpu@96/2 (on two devices); may be repeated")
            ->excludes(processes);
    app.add_option("--migrate-every", options.migrate_every, "steps before each move, default 40")
        ->check(CLI::Range(1U, 1U << 30))
        ->needs(migrate);
    // Hidden: lets tests prove that a faulty log is noticed.
    app.add_option("--log-fault", options.log_fault)
        ->transform(CLI::CheckedTransformer(kLogFaults))
        ->needs(processes)
        ->group("");
}

void add_text_options(CLI::App &app, Options &options, Given &given) {
    auto *prompt =
        app.add_option("--prompt", given.prompt, "serve this prompt instead of the workload");
    app.add_option("--steps", options.steps,
                   "tokens computed for each text, prompt included; default 256, at most the "
                   "model's longest sequence")
        ->check(CLI::Range(1U, 1U << 30));
    app.add_option("--temperature", options.temperature, "0, the default, is greedy")
        ->check(number_range(0, 100));
    auto *samples =
        app.add_option("--samples", options.samples, "texts made of the prompt, default 1")
            ->check(CLI::Range(1U, 4096U))
            ->needs(prompt);
    app.add_option("--save-session", options.save_session,
                   "keep the text in this file: its tokens, K and V, after --steps tokens")
        ->excludes(samples);
    app.add_option("--restore-session", options.restore_session,
                   "go on from what --save-session kept, to --steps tokens in all")
        ->excludes(prompt);
    app.add_option(
           "--chats", options.chats,
           "serve only so many of the workload's chats; default all " + std::to_string(kChatCount))
        ->check(CLI::Range(1U, kChatCount))
        ->excludes(prompt);
}

}  // namespace

std::optional<Options> parse_options(int argc, char **argv, int &exit_code) {
    Options options;
    Given given;
    CLI::App app(kDescription, "quire-engine");
    app.footer(std::string(kExample) + "\n\n" + kCalibrationExample + "\n\n" + kSessionExample +
               "\n\n" + kHandOverExample);
    add_model_options(app, options);
    add_pool_options(app, options, given);
    add_rank_options(app, options, given);
    add_text_options(app, options, given);
    add_tier_options(app, options);
    add_hand_over_options(app, options, given);
    auto *check = app.add_flag("--check", options.check,
                               "compare every text with a dense run; the workload's default");
    app.add_flag("--no-check", given.no_check, "do not compare the workload's texts")
        ->excludes(check);
    app.add_flag("--json", options.json, "the table as JSON, and no progress line");
    // Hidden: lets tests prove that a broken cache is noticed.
    app.add_option("--fault", options.fault)
        ->transform(CLI::CheckedTransformer(kFaults))
        ->group("");
    try {
        app.parse(argc, argv);
        read_devices(given, options);
        if (given.preempt == "swap" && options.host_bytes == 0) {
            throw CLI::ValidationError("--preempt", "swap needs --host-bytes above 0");
        }
        if (options.check && options.kv_dtype != "f32") {
            throw CLI::ValidationError("--check", "the dense run keeps f32: give --kv-dtype f32");
        }
        if (options.check && options.q_dtype != "f32") {
            throw CLI::ValidationError("--check", "the dense run keeps f32: give --q-dtype f32");
        }
        check_text(app, options);
        check_session(options);
        check_tier(options);
        check_hand_over(app, options);
        check_calibration(app, options);
        read_migrations(given, options);
    } catch (const CLI::CallForHelp &help) {
        exit_code = app.exit(help);
        return std::nullopt;
    } catch (const CLI::ParseError &error) {
        std::cerr << "quire-engine: " << error.what() << "\nTry --help.\n";
        exit_code = 2;
        return std::nullopt;
    }
    options.preempt = preempt_kind(given.preempt);
    if (app.count("--prompt") > 0) {
        options.prompt = given.prompt;
    } else if (options.restore_session.empty()) {
        // The dense run keeps f32: rounded numbers may give other texts although nothing is wrong.
        options.check = !given.no_check && options.kv_dtype == "f32" && options.q_dtype == "f32";
    }
    return options;
}

}  // namespace engine
