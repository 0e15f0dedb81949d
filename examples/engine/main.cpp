// SPDX-License-Identifier: Apache-2.0
//
// quire-engine: a small LLM inference engine over Quire. Start here, then read scheduler (what an
// engine decides), forward (where attention goes through Quire), cache (the calls that this takes).
//
// Exit status: 0 all went well, 1 a failure or a text that differs from the dense run, 2 a mistake
// in the command line.

#include "cache.hpp"
#include "comparison.hpp"
#include "dense_run.hpp"
#include "failure.hpp"
#include "forward.hpp"
#include "handover.hpp"
#include "library.hpp"
#include "migrations.hpp"
#include "model.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "report.hpp"
#include "scheduler.hpp"
#include "tokenizer.hpp"
#include "workload.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <thread>

namespace engine {
namespace {

Model make_model(const Options &options) {
    if (!options.weights.empty()) {
        return Model::load(options.weights);
    }
    ModelConfig config = Model::demo_config();
    if (options.kv_heads != 0) {
        if (config.head_count % options.kv_heads != 0) {
            throw Failure("--kv-heads " + std::to_string(options.kv_heads) +
                          " does not divide the model's " + std::to_string(config.head_count) +
                          " query heads");
        }
        config.kv_head_count = options.kv_heads;
    }
    return Model::seeded(config, options.seed);
}

Tokenizer make_tokenizer(const Options &options, const Model &model) {
    const size_t vocab_size = model.config().vocab_size;
    return options.tokenizer.empty() ? Tokenizer::syllables(vocab_size)
                                     : Tokenizer::load(options.tokenizer, vocab_size);
}

// "steps" counts computed positions, as in llama2.c: a prompt of n tokens leaves steps - (n - 1).
Request prompt_request(const Options &options, const Tokenizer &tokenizer, size_t seq_len) {
    const size_t steps = std::min(size_t{options.steps}, seq_len);
    const auto too_long = [&](const std::string &length) {
        return Failure("--prompt: " + length + " tokens do not fit into " + std::to_string(steps) +
                       " steps (the model's longest sequence is " + std::to_string(seq_len) +
                       "). Give a shorter prompt or more --steps.");
    };
    // The cheap check comes first: merging a text of megabytes would take too long.
    const size_t least_tokens = options.prompt->size() / tokenizer.longest_piece_bytes();
    if (least_tokens > steps) {
        throw too_long("at least " + std::to_string(least_tokens));
    }
    Request request;
    request.prompt = tokenizer.encode(*options.prompt);
    if (request.prompt.size() > steps) {
        throw too_long(std::to_string(request.prompt.size()));
    }
    request.generate_limit = steps - (request.prompt.size() - 1);
    request.sample_count = options.samples;
    request.temperature = options.temperature;
    return request;
}

// Goes on from a session. Its last token is computed again, which gives the logits of the next one.
Request restored_request(const Options &options, const Model &model) {
    const size_t steps = std::min(size_t{options.steps}, model.config().seq_len);
    Request request;
    request.prompt = session_tokens(options.restore_session, model.config().vocab_size);
    if (request.prompt.size() > steps) {
        throw Failure(options.restore_session + " has " + std::to_string(request.prompt.size()) +
                      " tokens already, and --steps allows " + std::to_string(steps) +
                      " in all (the model's longest sequence is " +
                      std::to_string(model.config().seq_len) + ")");
    }
    request.generate_limit = steps - (request.prompt.size() - 1);
    request.temperature = options.temperature;
    return request;
}

std::vector<Request> make_requests(const Options &options, const Model &model,
                                   const Tokenizer &tokenizer) {
    if (!options.restore_session.empty()) {
        return {restored_request(options, model)};
    }
    const size_t seq_len = model.config().seq_len;
    return options.prompt ? std::vector{prompt_request(options, tokenizer, seq_len)}
                          : chat_workload(tokenizer, seq_len, options.seed, options.chats);
}

// The text that begins in a file, ends in one, or both.
class KeptText {
 public:
    KeptText(const Options &options, const Model &model) : options_(options) {
        if (!options.save_session.empty() || !options.restore_session.empty()) {
            fingerprint_ = fingerprint_of(model);
        }
    }
    // Restores the sequence, without its last token, and lets the scheduler keep the text.
    void join(SchedulerOptions &scheduling, std::span<const Request> requests, Cache &cache) {
        if (!options_.restore_session.empty()) {
            scheduling.restored = cache.restore_sequence(options_.restore_session, fingerprint_);
            cache.truncate_sequence(scheduling.restored, requests.front().prompt.size() - 1);
        }
        if (!options_.save_session.empty()) {
            scheduling.on_finish = [&](quire_seq seq) {
                saved_ = cache.save_sequence(seq, options_.save_session, fingerprint_);
            };
        }
    }
    void tell() const {
        if (saved_ && !options_.json) {
            std::fprintf(stderr, "%s holds %u tokens in %llu bytes\n",
                         options_.save_session.c_str(), saved_->computed_tokens,
                         static_cast<unsigned long long>(saved_->size_bytes));
        }
    }

 private:
    const Options &options_;
    Fingerprint fingerprint_{};
    std::optional<quire_session_info> saved_;
};

std::vector<uint8_t> read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in),
                               std::istreambuf_iterator<char>()};
    if (!in || bytes.empty()) {
        throw Failure(path + " cannot be read, or is empty; a run with --calibrate makes one");
    }
    return bytes;
}

// Called before a run whose result is lost if its file cannot be written; creates nothing.
// path: empty if there is no such file.
void expect_writable(const std::string &path) {
    namespace fs = std::filesystem;
    if (path.empty()) {
        return;
    }
    std::error_code unknown;
    fs::path where = path;
    if (!fs::exists(where, unknown)) {
        where = where.has_parent_path() ? where.parent_path() : fs::path(".");
    } else if (fs::is_directory(where, unknown)) {
        throw Failure(path + " cannot be written: it is a directory");
    }
    if (access(where.c_str(), W_OK) != 0) {
        throw Failure(path + " cannot be written: " + where.string() + ": " + std::strerror(errno));
    }
}

void write_file(const std::string &path, const std::vector<uint8_t> &bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char *>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) {
        throw Failure(path + " cannot be written");
    }
}

CacheOptions cache_options(const Options &options, const ModelConfig &config,
                           std::span<const Request> requests) {
    if (options.pad_heads != 0 && options.pad_heads < config.head_dim()) {
        throw Failure("--pad-heads " + std::to_string(options.pad_heads) +
                      ": the model's heads have " + std::to_string(config.head_dim()) +
                      " elements. Give at least as many.");
    }
    uint32_t most_samples = 1;
    for (const Request &request : requests) {
        most_samples = std::max(most_samples, request.sample_count);
    }
    return {.backend = options.device,
            .device_index = options.device_index,
            .layer_count = static_cast<uint32_t>(config.layer_count),
            .q_heads = static_cast<uint32_t>(config.head_count),
            .kv_heads = static_cast<uint32_t>(config.kv_head_count),
            .head_dim = static_cast<uint32_t>(config.head_dim()),
            .padded_head_dim = options.pad_heads,
            .pool_blocks = options.pool_blocks,
            .block_tokens = options.block_tokens,
            .max_rows = options.max_batch,
            .max_query_tokens = options.max_batch + options.chunk_tokens,
            // Every row may fork all its samples at once, and one request is being admitted.
            .max_sequences = options.max_batch * most_samples + 1,
            .max_sequence_tokens = static_cast<uint32_t>(config.seq_len),
            .host_bytes = options.host_bytes,
            .kv_dtype = options.kv_dtype,
            .q_dtype = options.q_dtype,
            .kv_scale = options.kv_scale,
            .calibration = options.calibration.empty() ? std::vector<uint8_t>{}
                                                       : read_file(options.calibration),
            .shards = {},
            .flags = (options.calibrate.empty() ? 0U : uint32_t{QUIRE_CACHE_CALIBRATE}) |
                     (options.host_prefixes ? uint32_t{QUIRE_CACHE_HOST_PREFIXES} : 0U) |
                     (options.partial_hits ? uint32_t{QUIRE_CACHE_PARTIAL_HITS} : 0U),
            .device_flags = options.fast_16bit ? uint32_t{QUIRE_DEVICE_FAST_16BIT} : 0U};
}

// The heads that each rank holds.
std::vector<HeadRange> rank_heads(const Options &options, const ModelConfig &config) {
    std::vector<HeadRange> ranges;
    for (uint32_t rank = 0; rank < options.tp; ++rank) {
        ranges.push_back(heads_of(rank, options.tp, static_cast<uint32_t>(config.head_count),
                                  static_cast<uint32_t>(config.kv_head_count)));
    }
    return ranges;
}

// Puts the rank's own store below its cache: "{rank}" in an option stands for its number.
void attach_tier(const Options &options, const Model &model, uint32_t rank, Cache &cache) {
    if (options.tier.empty()) {
        return;
    }
    std::vector<std::string> settings = options.tier_options;
    constexpr std::string_view kRank = "{rank}";
    for (std::string &setting : settings) {
        if (const size_t at = setting.find(kRank); at != std::string::npos) {
            setting.replace(at, kRank.size(), std::to_string(rank));
        }
    }
    const uint32_t followers = options.processes && rank == 0 ? options.tp - 1 : 0;
    cache.attach_tier(options.tier, settings, options.tier_write, fingerprint_of(model), followers);
}

// The main loop of another rank: applies the leader's logs and computes its heads until the leader
// ends.
int follow(const Options &options, const Model &model, CacheOptions cache_options,
           const std::vector<HeadRange> &ranges, uint32_t rank, Ranks &leader) {
    try {
        cache_options.shards = {ranges[rank]};
        cache_options.flags = QUIRE_CACHE_FOLLOWER;
        Cache cache(load_library(), cache_options);
        attach_tier(options, model, rank, cache);
        Forward forward(model, cache, Fault::none, &leader, ranges);
        RankStep told;
        while (leader.receive_step(told)) {
            if (told.log.empty()) {
                leader.send_report(cache.report_loads(told.waits));
                continue;
            }
            Step step(cache, told.log);
            std::vector<ForwardRow> rows;
            size_t first = 0;
            for (const RankRow &row : told.rows) {
                rows.push_back({.tokens = std::span(told.tokens).subspan(first, row.token_count),
                                .first_position = row.first_position,
                                .wants_logits = false});
                first += row.token_count;
            }
            if (!rows.empty()) {
                forward.run(rows);
            }
            step.finish();
        }
        cache.detach_tier();
        return 0;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "quire-engine: rank %u: %s\n", rank, failure.what());
        return 1;
    }
}

// The blocks of the smallest pool: every text must fit wherever the cache will be.
uint32_t smallest_pool(const Options &options) {
    uint32_t blocks = options.pool_blocks;
    for (const MigrateTo &to : options.migrate_to) {
        blocks = to.pool_blocks != 0 ? std::min(blocks, to.pool_blocks) : blocks;
    }
    return blocks;
}

SchedulerOptions scheduler_options(const Options &options, const ModelConfig &config) {
    return {.max_rows = options.max_batch,
            .chunk_tokens = options.chunk_tokens,
            .block_tokens = options.block_tokens,
            .pool_blocks = smallest_pool(options),
            .max_text_tokens = config.seq_len,
            .preempt = options.preempt,
            .seed = options.seed,
            .may_load = !options.tier.empty()};
}

std::optional<Comparison> dense_comparison(const Options &options, const Model &model,
                                           std::span<const Request> requests) {
    if (!options.check) {
        return std::nullopt;
    }
    if (!options.json) {
        std::fprintf(stderr, "computing all texts with contiguous K and V, to compare\n");
    }
    const unsigned thread_count = std::max(std::thread::hardware_concurrency(), 1U);
    // A trained model is sure of its next token; ties are expected only from a seeded one.
    const bool ties_allowed = options.weights.empty();
    return Comparison(dense_texts(model, requests, options.seed, thread_count), ties_allowed);
}

// is_continued: the run that saved the session has printed the first token.
void print_texts(const Scheduler &scheduler, const Tokenizer &tokenizer, const Request &request,
                 bool is_continued) {
    for (uint32_t sample = 0; sample < request.sample_count; ++sample) {
        uint32_t previous = request.prompt.back();
        bool is_printed = is_continued;
        for (const uint32_t token : scheduler.generated(request.id, sample)) {
            const std::string piece = tokenizer.decode(previous, token);
            if (!is_printed) {
                std::fwrite(piece.data(), 1, piece.size(), stdout);
            }
            is_printed = false;
            previous = token;
        }
        std::fputc('\n', stdout);
    }
    std::fflush(stdout);
}

// What the detach of a leader's store writes, its followers learn from one more log.
void end_tier(const Options &options, Cache &cache, Forward &forward) {
    if (options.check) {
        cache.check();
    }
    if (const auto stats = cache.detach_tier()) {
        if (forward.leads()) {
            Step last(cache, 0, {}, {});
            last.commit();
            forward.announce(last, {});
            last.finish();
        }
        std::fprintf(stderr, "the store gave %llu tokens and took %llu blocks\n",
                     static_cast<unsigned long long>(stats->tokens_loaded),
                     static_cast<unsigned long long>(stats->blocks_written));
    }
}

void expect_no_repeats(const Totals &totals) {
    if (totals.repeated_tokens != 0) {
        throw Failure(std::to_string(totals.repeated_tokens) +
                      " tokens were computed again although no text was preempted");
    }
}

// The prompt's sequence, of a cache in this process that computes it or of another engine; 0: it
// was lost, and this engine computes the prompt.
quire_seq handed_over(const Options &options, const Model &model, const CacheOptions &own,
                      std::span<const uint32_t> prompt, Cache &cache) {
    const Fingerprint fingerprint = fingerprint_of(model);
    std::optional<Door> door;
    if (!options.hand_over_listen.empty()) {
        door.emplace(options.hand_over_listen, options.hand_over_seconds);
    }
    try {
        if (door.has_value()) {
            return receive(cache, prompt, fingerprint, door->accept());
        }
        CacheOptions there = own;
        there.backend = options.prefill_on;
        there.device_index = options.prefill_index;
        Cache source(load_library(), there);
        Forward forward(model, source, Fault::none);
        Receiver receiver(cache, prompt, fingerprint);
        prefill(source, forward, prompt, options.chunk_tokens, fingerprint,
                [&](std::span<const char> bytes) { receiver.take(bytes); });
        return receiver.seq();
    } catch (const Failure &lost) {
        std::fprintf(stderr, "the hand-over was lost: %s\ncomputing the prompt here\n",
                     lost.what());
        return 0;
    }
}

// The scheduler goes on from the handed over prompt, without its last token, whose logits it needs.
void join_hand_over(const Options &options, const Model &model, const CacheOptions &own,
                    std::span<const Request> requests, SchedulerOptions &scheduling, Cache &cache) {
    if (options.prefill_on.empty() && options.hand_over_listen.empty()) {
        return;
    }
    const std::vector<uint32_t> &prompt = requests.front().prompt;
    scheduling.restored = handed_over(options, model, own, prompt, cache);
    if (scheduling.restored != 0) {
        cache.truncate_sequence(scheduling.restored, prompt.size() - 1);
    }
}

// The engine that only computes a prompt.
int run_prefill(const Options &options, const Model &model, const CacheOptions &own,
                std::span<const uint32_t> prompt) {
    Cache cache(load_library(), own);
    Forward forward(model, cache, Fault::none);
    Link link = Link::connect(options.hand_over_to, options.hand_over_seconds);
    uint64_t sent = 0;
    prefill(cache, forward, prompt, options.chunk_tokens, fingerprint_of(model),
            [&](std::span<const char> bytes) {
                link.write(bytes);
                sent += bytes.size();
            });
    std::fprintf(stderr, "handed over %zu tokens in %llu bytes\n", prompt.size(),
                 static_cast<unsigned long long>(sent));
    return 0;
}

int run(const Options &options) {
    expect_writable(options.calibrate);
    expect_writable(options.save_session);
    const Model model = make_model(options);
    const ModelConfig &config = model.config();
    const Tokenizer tokenizer = make_tokenizer(options, model);
    const std::vector<Request> requests = make_requests(options, model, tokenizer);

    CacheOptions own = cache_options(options, config, requests);
    const std::vector<HeadRange> ranges = rank_heads(options, config);
    std::optional<Ranks> others;
    if (options.processes) {
        const auto be_follower = [&](uint32_t rank, Ranks &leader) {
            return follow(options, model, own, ranges, rank, leader);
        };
        others.emplace(Ranks::lead(options.tp, options.log_fault, be_follower));
        own.flags |= QUIRE_CACHE_LOG;
    }
    own.shards = options.processes ? std::vector{ranges.front()} : ranges;
    if (!options.hand_over_to.empty()) {
        return run_prefill(options, model, own, requests.front().prompt);
    }
    Cache cache(load_library(), own);
    Migrations migrations(options.migrate_to, options.migrate_every, cache,
                          static_cast<uint32_t>(config.head_count),
                          static_cast<uint32_t>(config.kv_head_count));
    Forward forward(model, cache, options.fault, others ? &*others : nullptr, ranges);
    std::optional<Comparison> comparison = dense_comparison(options, model, requests);
    SchedulerOptions scheduling = scheduler_options(options, config);
    attach_tier(options, model, 0, cache);
    KeptText kept(options, model);
    kept.join(scheduling, requests, cache);
    join_hand_over(options, model, own, requests, scheduling, cache);
    Scheduler scheduler(requests, cache, forward, scheduling, comparison ? &*comparison : nullptr);
    Progress progress(!options.json, requests.size());
    const auto begin = std::chrono::steady_clock::now();
    while (scheduler.step()) {
        progress.show(scheduler);
        migrations.between_steps(scheduler.totals().steps);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    progress.finish(scheduler);
    migrations.finish();
    expect_no_repeats(scheduler.totals());
    end_tier(options, cache, forward);
    if (!options.calibrate.empty()) {
        write_file(options.calibrate, cache.calibration());
    }
    if (others) {
        others->finish();
    }

    if (options.tells_one_text()) {
        print_texts(scheduler, tokenizer, requests.front(), !options.restore_session.empty());
    }
    kept.tell();
    const Report report{.request_count = requests.size(),
                        .text_count = scheduler.totals().texts_done,
                        .seconds = seconds.count(),
                        .pool_blocks = options.pool_blocks,
                        .block_tokens = options.block_tokens,
                        .max_text_tokens = config.seq_len,
                        .totals = scheduler.totals(),
                        .stats = cache.stats(),
                        .migrations = migrations.records(),
                        .comparison = comparison ? &*comparison : nullptr};
    std::ostream &out = options.tells_one_text() ? std::cerr : std::cout;
    options.json ? print_json(out, report) : print_table(out, report);
    return comparison && !comparison->passed() ? 1 : 0;
}

}  // namespace
}  // namespace engine

int main(int argc, char **argv) {
    int exit_code = 0;
    const auto options = engine::parse_options(argc, argv, exit_code);
    if (!options) {
        return exit_code;
    }
    try {
        return engine::run(*options);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "quire-engine: %s\n", failure.what());
        return 1;
    }
}
