// SPDX-License-Identifier: Apache-2.0
//
// liveness: faults stop, and then all work must finish: each committed step, each waiting item, and
// at last each block is free again.
//
// The bound of waiting, from step.h: "if no step is running and all other sequences together hold
// fewer blocks than [blocks_short], the item can never run". So whoever preempts one other sequence
// after each wait waits at most once for each of them; an item that waits while no other sequence
// has a block is too large for the pool or its quota. One token at a time, that is said only of an
// item whose whole table is.
#include <algorithm>

#include "device.hpp"
#include "world.hpp"

namespace sim {
namespace {

constexpr uint32_t kFirstStep = 0x70000000;      // numbers in the script that no chooser gives
constexpr uint32_t kFirstSequence = 0x70000000;  // for sequences and their documents

}  // namespace

// From here on devices do what they are told, and the engine's own kernels do not fail.
bool World::calm() {
    calm_ = true;
    for (Shard &shard : shards_) shard.fake->plant({});
    return true;
}

// The engine's way out: what is open is given up, what runs is waited for, each sequence is served
// until all its tokens are computed, oldest first, and ended.
bool World::conclude(const Op &) {
    calm();
    pending.clear();
    ++tally_->live_seeds;
    if (open) execute(make_op(OpKind::abort, {}));
    finish_all();
    for (const auto &seq : sequences)
        if (seq->drafts != 0) execute(make_op(OpKind::accept, {seq->id, 0}));
    conclude_loads();
    if (leak_ != 0 && !leak_late_) leak();
    while (!sequences.empty()) {
        const auto oldest =
            std::min_element(sequences.begin(), sequences.end(), [](const auto &a, const auto &b) {
                return a->admitted != 0 && (b->admitted == 0 || a->admitted < b->admitted);
            });
        const uint32_t id = (*oldest)->id;
        serve(id);
        execute(make_op(OpKind::end, {id, 0}));
    }
    if (has_tier()) execute(make_op(OpKind::detach, {2}));
    while (namespaces.size() > 1) execute(make_op(OpKind::ns_destroy, {namespaces.back().id}));
    execute(make_op(OpKind::reset, {}));
    check_all_free("all sequences have ended and the cache is reset");
    if (leak_ != 0) leak();
    fill();
    check_all_free("a cache that was full is empty again");
    return true;
}

// Finishes all steps and runs all queues to their ends: then nothing is unfinished.
void World::finish_all() {
    while (!committed.empty()) {
        const size_t before = committed.size();
        execute(make_op(OpKind::finish, {committed.front().id, 0}));
        if (committed.size() == before)
            fail("live-unfinished", "step %u cannot be finished though no fault is left",
                 committed.front().id);
    }
    for (bool ran = true; ran;) {  // shards may wait for each other
        uint64_t works = 0;
        for (Shard &shard : shards_) works += shard.fake->works();
        for (Shard &shard : shards_) shard.fake->drain();
        for (Shard &shard : shards_) works -= shard.fake->works();
        ran = works != 0;
    }
    check_devices();
    if (!device_idle())
        fail("live-unfinished", "all steps are finished, and work waits in a queue for ever");
    // "The library notices that a step is done during a later call": any begin will do.
    execute(make_op(OpKind::begin, {kFirstStep + live_steps_++, 0}));
    execute(make_op(OpKind::abort, {}));
    const uint64_t left = unfinished_steps();
    if (left != 0)
        fail("live-unfinished", "all queues have run to their ends, and %llu steps are not done",
             static_cast<unsigned long long>(left));
}

// How much of each group's pool an item takes at most that brings the sequence to `length` tokens.
// One block more covers a copy on write.
bool World::must_fit(const Sequence &seq, uint32_t length) const {
    const auto blocks = [this](uint32_t tokens) {
        return (tokens + config.block_tokens - 1) / config.block_tokens + 1;
    };
    uint64_t sum = 0;
    for (size_t g = 0; g < blocks_.size(); ++g) {
        const bool cross = config.groups[g].kind == QUIRE_GROUP_CROSS;
        uint32_t most = blocks(cross ? seq.cross_tokens : length);
        if (seq.swapped) most = std::max(most, seq.swap_blocks + 1);
        if (most + config.watermark > blocks_[g] - 1) return false;
        sum += most;
    }
    for (const Namespace &space : namespaces)
        if (space.id == seq.ns && space.quota != 0 && sum > space.quota) return false;
    return true;
}

// True if it must run at once: "so the oldest sequence always makes progress, but at its
// namespace's quota".
bool World::must_progress(const Sequence &seq, uint32_t length) const {
    if (seq.computed == 0 || seq.swapped || seq.admitted == 0) return false;
    if (config.victim != QUIRE_VICTIM_NEWEST || !must_fit(seq, length)) return false;
    for (const Namespace &space : namespaces)
        if (space.id == seq.ns && space.quota != 0) return false;
    return std::all_of(sequences.begin(), sequences.end(), [&](const auto &other) {
        return other->admitted == 0 || other->admitted >= seq.admitted;
    });
}

// Computes all tokens of a sequence, and one more if it has none left; or finds that it is too
// large.
void World::serve(uint32_t id) {
    uint32_t max = 0;
    for (uint32_t waits = 0;;) {
        Sequence &seq = *find(id);
        uint32_t more = 0;
        if (seq.computed == seq.known()) {
            if (seq.known() != 0 && live_served_ == id) return;
            more = std::min(config.max_tokens - seq.known(), seq.known() == 0 ? 9u : 1u);
            if (more == 0) return;
        }
        const uint32_t before = seq.computed;
        const uint32_t length = seq.known() + more;
        const bool at_once = must_progress(seq, length);
        if (!serve_once(id, more, max)) {
            if (at_once)
                fail("live-oldest", "sequence %u is the oldest, may preempt all others, and waits",
                     id);
            if (++waits <= sequences.size()) continue;
            if (max == 0) {
                max = 1;
                continue;
            }
            if (must_fit(*find(id), find(id)->known() + more))
                fail("live-wait", "sequence %u waits in %u steps, and no other has a block", id,
                     waits);
            ++tally_->live_too_large;
            return;
        }
        live_served_ = id;
        if (find(id)->computed <= before)
            fail("live-progress", "sequence %u ran, and has %u computed tokens as before", id,
                 before);
    }
}

// One step with one item, played to its end. False: the item waits; then the newest other sequence
// that has blocks gives them up in the same step.
bool World::serve_once(uint32_t id, uint32_t tokens, uint32_t max) {
    const uint32_t step = kFirstStep + live_steps_++;
    const uint32_t how = static_cast<uint32_t>(mix(config.seed, step) % 3);
    execute(make_op(OpKind::item, {id, tokens, find(id)->doc, max}));
    execute(make_op(OpKind::begin, {step, step % config.queues, 1, how}));
    const bool runs = !open->rows.empty();
    const Sequence *victim = nullptr;
    for (const auto &seq : sequences)
        if (!runs && seq->id != id && !seq->swapped && !seq->in_step &&
            info(*seq).blocks_held != 0 && (victim == nullptr || seq->admitted > victim->admitted))
            victim = seq.get();
    if (victim != nullptr) execute(make_op(OpKind::preempt, {victim->id, QUIRE_PREEMPT_RECOMPUTE}));
    execute(make_op(OpKind::commit, {0}));
    finish_all();
    ++tally_->live_steps;
    tally_->live_waits += !runs;
    return runs;
}

void World::check_all_free(const char *when) {
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    quire_namespace_info space{};
    space.struct_size = sizeof space;
    expect(q_->namespace_get_info(cache_, 0, &space, &error_), {QUIRE_OK},
           "quire_namespace_get_info");
    const std::pair<const char *, uint64_t> left[] = {
        {"sequences", s.sequences},
        {"blocks that are not free", s.blocks_total - s.blocks_free},
        {"cached blocks", s.blocks_cached},
        {"held blocks", s.blocks_held},
        {"host blocks in use", s.host_blocks_used},
        {"cached host blocks", s.host_blocks_cached},
        {"blocks that the default namespace holds", space.blocks_held},
        {"unfinished steps", unfinished_steps()}};
    for (const auto &[what, count] : left)
        if (count != 0)
            fail("live-leak", "%s, and there are %llu %s", when,
                 static_cast<unsigned long long>(count), what);
    if ((s.nodes != 0 || space.key_bytes != 0) && !tolerate("live-nodes"))
        fail("live-nodes",
             "%s, and the prefix tree has %llu nodes and the default namespace %llu bytes of keys",
             when, static_cast<unsigned long long>(s.nodes),
             static_cast<unsigned long long>(space.key_bytes));
    execute(make_op(OpKind::check, {}));
}

// An empty cache admits at once whatever fits, up to its last block: a block that counts as free
// and can never be had is missing here.
void World::fill() {
    uint32_t left = config.pool_blocks() - config.watermark;
    for (const uint32_t blocks : blocks_) left = std::min(left, blocks - 1 - config.watermark);
    uint32_t items = 0;
    while (left != 0 && items < config.max_sequences) {
        const uint32_t id = kFirstSequence + items++;
        const uint32_t tokens = std::min(config.max_tokens, left * config.block_tokens);
        left -= (tokens + config.block_tokens - 1) / config.block_tokens;
        execute(make_op(OpKind::create, {id, 0, 0, 0, 0, 2, 0, id}));
        execute(make_op(OpKind::item, {id, tokens, id, 0, 0, 0, 0, 0, 0, 0, QUIRE_NO_HITS}));
    }
    execute(make_op(OpKind::begin, {kFirstStep + live_steps_++, 0}));
    if (open->rows.size() != items)
        fail("live-fill", "%u items fit into an empty cache, and %zu of them run", items,
             open->rows.size());
    execute(make_op(OpKind::commit, {0}));
    finish_all();
    while (!sequences.empty()) execute(make_op(OpKind::end, {sequences.back()->id, 0}));
    execute(make_op(OpKind::reset, {}));
}

// A planted mistake of the engine: a sequence of `leak_` tokens that it never ends. Its draft is
// not accepted, so no one can preempt it.
void World::leak() {
    quire_seq_desc desc{};
    desc.struct_size = sizeof desc;
    quire_step_item item{};
    expect(q_->seq_create(cache_, &desc, &item.seq, &error_), {QUIRE_OK}, "quire_seq_create");
    const std::vector<uint32_t> tokens(leak_, 1);
    item.token_count = leak_;
    item.draft_count = 1;
    quire_step_desc begin{};
    begin.struct_size = sizeof begin;
    const std::vector<quire_queue *> queues = step_queues(0);
    begin.queues = queues.data();
    begin.queue_count = static_cast<uint32_t>(queues.size());
    quire_step_result result{};
    quire_step step = 0;
    expect(q_->step_begin(cache_, &begin, &item, 1, sizeof item, tokens.data(), leak_, &result,
                          sizeof result, &step, &error_),
           {QUIRE_OK}, "quire_step_begin");
    expect(q_->step_commit(cache_, step, nullptr, &error_), {QUIRE_OK}, "quire_step_commit");
    expect(q_->step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_), {QUIRE_OK},
           "quire_step_finish");
    ++commits_;
    finish_all();
}

}  // namespace sim
