// SPDX-License-Identifier: Apache-2.0

#include "manager.hpp"

#include <quire/dyn.h>

#include <algorithm>

#include "tests/whole_state.hpp"

namespace quire::test {

const quire_api &library() {
    static const quire_api *api = [] {
        const quire_api *loaded = nullptr;
        char why[512] = "";
        if (quire_dyn_load(nullptr, &loaded, why, sizeof why) < 0) {
            std::fprintf(stderr, "%s\n", why);
            std::abort();
        }
        return loaded;
    }();
    return *api;
}

Tokens tokens_from(quire_token first, uint32_t count) {
    Tokens out(count);
    for (uint32_t i = 0; i < count; ++i) out[i] = first + i;
    return out;
}

Tokens joined(const Tokens &a, const Tokens &b) {
    Tokens out = a;
    out.insert(out.end(), b.begin(), b.end());
    return out;
}

Manager::Manager(const CacheOptions &options) : api_(library()) {
    error_.struct_size = sizeof error_;
    auto instance = described<quire_instance_desc>();
    expect_ok(api_.instance_create(&instance, &instance_, &error_), "instance_create");
    std::vector<quire_group_desc> groups;
    for (const GroupOptions &wanted : options.groups) {
        auto group = described<quire_group_desc>();
        bool windowed = wanted.kind == 0 && wanted.window != 0;
        group.kind = windowed ? uint32_t{QUIRE_GROUP_WINDOW} : wanted.kind;
        group.window = wanted.window;
        group.sink_tokens = wanted.sinks;
        group.block_tokens = wanted.block_tokens;
        group.state_interval = wanted.state_interval;
        group.draft_states = wanted.draft_states;
        group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        group.blocks = 1 + (wanted.blocks != 0 ? wanted.blocks : options.blocks);
        groups.push_back(group);
    }
    auto desc = described<quire_cache_desc>();
    desc.flags = options.flags;
    if ((options.flags & QUIRE_CACHE_FOLLOWER) == 0) desc.flags |= QUIRE_CACHE_AUDIT;
    desc.groups = groups.data();
    desc.group_count = group_count_ = static_cast<uint32_t>(groups.size());
    desc.group_stride = sizeof(quire_group_desc);
    desc.block_tokens = options.block_tokens;
    desc.max_sequences = options.max_sequences;
    desc.max_sequence_tokens = options.max_sequence_tokens;
    desc.watermark_blocks = options.watermark;
    desc.host_blocks = options.host_blocks;
    desc.victim = options.victim;
    desc.swap_bytes_per_second = options.swap_bytes_per_second;
    desc.prefill_tokens_per_second = options.prefill_tokens_per_second;
    desc.key_bytes = options.key_bytes;
    expect_ok(api_.cache_create(instance_, &desc, &cache_, &error_), "cache_create");
}

Manager::~Manager() {
    if (step_ != 0) abort();
    for (quire_step step : std::vector<quire_step>(unfinished_)) finish(step);
    expect_ok(api_.cache_destroy(cache_, &error_), "cache_destroy");
    expect_ok(api_.instance_destroy(instance_, &error_), "instance_destroy");
}

void Manager::expect_ok(quire_status status, const char *what) {
    EXPECT_EQ(status, QUIRE_OK) << what << ": " << error_.message;
}

void Manager::check() { expect_ok(api_.cache_check(cache_, &error_), "cache_check"); }

quire_namespace Manager::name_space(uint32_t quota_blocks, uint64_t key_bytes) {
    auto desc = described<quire_namespace_desc>();
    desc.quota_blocks = quota_blocks;
    desc.key_bytes = key_bytes;
    quire_namespace out = 0;
    expect_ok(api_.namespace_create(cache_, &desc, &out, &error_), "namespace_create");
    return out;
}

quire_seq Manager::sequence(const SequenceOptions &options) {
    auto desc = described<quire_seq_desc>();
    desc.ns = options.ns;
    desc.keys = options.keys.data();
    desc.key_count = static_cast<uint32_t>(options.keys.size());
    desc.key_stride = sizeof(quire_key);
    desc.priority = options.priority;
    desc.cross_tokens = options.cross_tokens;
    quire_seq out = 0;
    expect_ok(api_.seq_create(cache_, &desc, &out, &error_), "seq_create");
    live_.push_back(out);
    return out;
}

quire_seq Manager::fork(quire_seq seq, uint32_t token_count) {
    quire_seq out = 0;
    expect_ok(api_.seq_fork(cache_, seq, token_count, &out, &error_), "seq_fork");
    live_.push_back(out);
    check();
    return out;
}

void Manager::end(quire_seq seq, uint32_t flags) {
    expect_ok(api_.seq_end(cache_, seq, flags, &error_), "seq_end");
    live_.erase(std::remove(live_.begin(), live_.end(), seq), live_.end());
    check();
}

quire_step Manager::begin(const StepOptions &options) {
    auto desc = described<quire_step_desc>();
    desc.flags = options.may_preempt ? uint32_t{QUIRE_STEP_MAY_PREEMPT} : 0u;
    desc.preempt = options.preempt;
    desc.queue_tag = options.queue;
    expect_ok(
        api_.step_begin(cache_, &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step_, &error_),
        "step_begin");
    return step_;
}

quire_status Manager::try_add(quire_seq seq, const Tokens &tokens, const ItemOptions &options,
                              quire_step_result *result) {
    quire_step_item item{};
    item.seq = seq;
    item.token_count = static_cast<uint32_t>(tokens.size());
    item.max_compute = options.max_compute;
    item.draft_count = options.drafts;
    item.lookahead = options.lookahead;
    item.max_hit_tokens = options.max_hits;
    Tokens words = joined(tokens, options.parents.empty() ? options.bits : options.parents);
    if (!options.parents.empty()) {
        item.mask_kind = QUIRE_MASK_PARENTS;
        item.mask_rows = static_cast<uint32_t>(options.parents.size());
    } else if (!options.bits.empty()) {
        item.mask_kind = QUIRE_MASK_BITS;
        item.mask_rows = options.bits_rows;
    }
    if (item.mask_kind != QUIRE_MASK_NONE) item.mask_offset = item.token_count;
    return api_.step_add(cache_, step_, &item, 1, sizeof item, words.data(),
                         static_cast<uint32_t>(words.size()), result, sizeof *result, &error_);
}

quire_step_result Manager::add(quire_seq seq, const Tokens &tokens, const ItemOptions &options) {
    quire_step_result result{};
    expect_ok(try_add(seq, tokens, options, &result), "step_add");
    check();
    return result;
}

std::vector<quire_seq> Manager::drop(quire_seq seq) {
    std::vector<quire_seq> dropped(64);
    uint32_t count = 0;
    expect_ok(api_.step_drop(cache_, step_, seq, dropped.data(), 64, &count, &error_), "step_drop");
    dropped.resize(count);
    check();
    return dropped;
}

void Manager::abort() {
    expect_ok(api_.step_abort(cache_, step_, &error_), "step_abort");
    step_ = 0;
    check();
}

quire_step Manager::commit(quire_batch *batch) {
    quire_step step = step_;
    expect_ok(api_.step_commit(cache_, step, batch, &error_), "step_commit");
    unfinished_.push_back(step);
    step_ = 0;
    check();
    return step;
}

void Manager::finish(quire_step step, uint32_t outcome) {
    expect_ok(api_.step_finish(cache_, step, nullptr, outcome, &error_), "step_finish");
    unfinished_.erase(std::remove(unfinished_.begin(), unfinished_.end(), step), unfinished_.end());
    check();
}

quire_step_result Manager::compute(quire_seq seq, const Tokens &tokens,
                                   const ItemOptions &options) {
    begin();
    quire_step_result result = add(seq, tokens, options);
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN}) << result.blocks_short << " blocks short";
    finish(commit());
    return result;
}

void Manager::set_tokens(quire_seq seq, uint32_t position, const Tokens &tokens) {
    uint32_t count = static_cast<uint32_t>(tokens.size());
    quire_token_span span{seq, position, 0, count, 0};
    expect_ok(api_.seq_set_tokens(cache_, &span, 1, sizeof span, tokens.data(), count, &error_),
              "seq_set_tokens");
    check();
}

uint32_t Manager::probe(const Tokens &tokens, const SequenceOptions &options) {
    quire_seq seq = sequence(options);
    uint32_t hits = 0;
    expect_ok(api_.prefix_probe(cache_, seq, tokens.data(), static_cast<uint32_t>(tokens.size()),
                                &hits, &error_),
              "prefix_probe");
    end(seq);
    return hits;
}

Blocks Manager::table(quire_seq seq, uint32_t group) {
    Blocks ids(4096);
    uint32_t count = 0;
    expect_ok(api_.step_blocks(cache_, 0, seq, group, 0, ids.data(), 4096, &count, &error_),
              "step_blocks");
    ids.resize(count);
    return ids;
}

std::vector<quire_block_copy> Manager::copies(quire_step step) {
    std::vector<quire_block_copy> out(4096);
    uint32_t count = 0;
    expect_ok(api_.step_copies(cache_, step, out.data(), 4096, sizeof out[0], &count, &error_),
              "step_copies");
    out.resize(count);
    return out;
}

std::vector<quire_preemption> Manager::preempted(quire_step step) {
    std::vector<quire_preemption> out(64);
    uint32_t count = 0;
    expect_ok(api_.step_preempted(cache_, step, out.data(), 64, sizeof out[0], &count, &error_),
              "step_preempted");
    out.resize(count);
    return out;
}

quire_cache_stats Manager::stats() {
    auto out = described<quire_cache_stats>();
    expect_ok(api_.cache_get_stats(cache_, &out, &error_), "cache_get_stats");
    return out;
}

quire_namespace_info Manager::info_of(quire_namespace ns) {
    auto out = described<quire_namespace_info>();
    expect_ok(api_.namespace_get_info(cache_, ns, &out, &error_), "namespace_get_info");
    return out;
}

quire_seq_info Manager::info(quire_seq seq) {
    auto out = described<quire_seq_info>();
    expect_ok(api_.seq_get_info(cache_, seq, &out, &error_), "seq_get_info");
    return out;
}

std::string Manager::seen() {
    check();
    std::string out;
    auto note = [&](uint64_t value) { out += std::to_string(value) + " "; };
    quire_cache_stats s = stats();
    for (uint64_t value :
         {s.prefix_cache_queries, s.prefix_cache_hits, s.num_preemptions, s.evictions,
          s.copies_on_write, s.blocks_swapped_out, s.blocks_swapped_in, s.forks, s.steps,
          s.sequences, s.sequences_lost, s.host_blocks_used, s.blocks_free, s.blocks_cached,
          s.blocks_held, s.nodes}) {
        note(value);
    }
    for (quire_seq seq : live_) {
        quire_seq_info i = info(seq);
        out += "| ";
        for (uint64_t value : {i.flags, i.known_tokens, i.computed_tokens, i.draft_tokens,
                               i.lookahead_tokens, i.blocks_held, i.preemptions}) {
            note(value);
        }
        for (uint32_t g = 0; g < group_count_; ++g) {
            out += ": ";
            for (int32_t id : table(seq, g)) note(static_cast<uint64_t>(id));
        }
    }
    return out + "\n";
}

std::string Manager::snapshot() { return seen() + undone_state(whole_state(api_, cache_)); }

std::string Manager::books() { return seen() + refused_state(whole_state(api_, cache_)); }

}  // namespace quire::test
