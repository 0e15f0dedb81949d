// SPDX-License-Identifier: Apache-2.0
//
// steps: those in flight, the marks of those that fail, and how each ends.
#include <algorithm>

#include "world.hpp"

namespace hybrid {
namespace {

constexpr uint32_t kUntold = 0xffffffff;  // not predicted

// How many tokens each sequence keeps when the step fails: those of blocks without its mark.
// REQUIRES: attention groups without windows, and no lease.
std::vector<uint32_t> predict(World &world, const Step &step,
                              const std::vector<quire_seq_info> &before) {
    std::vector<uint32_t> kept(world.sequences.size(), kUntold);
    for (size_t i = 0; i < world.sequences.size(); ++i) {
        if (!world.sequences[i].alive || (before[i].flags & QUIRE_SEQ_SWAPPED) != 0) continue;
        kept[i] = before[i].computed_tokens;
        for (uint32_t g = 0; g < world.config.group_count(); ++g) {
            const uint32_t size = world.config.groups[g].block_tokens;
            const auto table = world.table(world.cache, 0, world.sequences[i].handle, g);
            for (uint32_t p = 0; p < kept[i]; ++p)
                if ((world.block(g, table[p / size], "predicted")[p % size].marks >> step.mark & 1))
                    kept[i] = p;
        }
    }
    return kept;
}

// What a failed step took from a sequence. kept: what it should have, or kUntold.
void check_lost(World &world, Sequence &sequence, const Step &step, const quire_seq_info &before,
                uint32_t kept) {
    const auto after = world.info(sequence.handle);
    if (after.known_tokens != sequence.tokens.size()) {
        const size_t without_drafts = sequence.tokens.size() - sequence.drafts;
        if (sequence.drafts == 0 || after.known_tokens != without_drafts)
            fail("failed_known", "known ", after.known_tokens, ", model ", sequence.tokens.size(),
                 ", drafts ", sequence.drafts);
        world.cut(sequence, after.known_tokens);
        sequence.drafts = 0;
    }
    if (after.computed_tokens < before.computed_tokens) {
        world.count("seqs that lost");
        world.cut(sequence, after.known_tokens);
        if ((after.flags & QUIRE_SEQ_LOST) == 0)
            fail("lost_flag", "computed ", before.computed_tokens, " -> ", after.computed_tokens,
                 " without QUIRE_SEQ_LOST");
    }
    if (after.lookahead_tokens < sequence.lookahead.size()) world.cut(sequence, after.known_tokens);
    if (kept == kUntold || after.computed_tokens == kept) return;
    if (after.computed_tokens > kept)
        fail("failed_kept", "sequence ", hex(sequence.handle), " computed ", after.computed_tokens,
             " after the failure of step ", step.id, "; tokens from ", kept, " depend on it");
    const uint32_t span = world.config.span;
    if (world.namespaces.size() == 1 && !world.config.zero_on_free &&
        after.computed_tokens < kept / span * span)
        fail("failed_overtaken", "sequence ", hex(sequence.handle), " computed ",
             before.computed_tokens, " -> ", after.computed_tokens, " after the failure of step ",
             step.id, "; only tokens from ", kept, " depend on it");
    world.count("taken back further than content needs (zero rule)");
}

// Blocks leave a lease at a failure only where a second tenant could otherwise read them.
void check_lease_lost(World &world, Lease &lease) {
    const auto info = world.lease_info(lease.handle);
    std::set<GroupBlock> listed;
    for (uint32_t g = 0; g < world.config.group_count(); ++g)
        for (const auto &b : world.lease_blocks(lease.handle, g)) listed.insert({g, b.block});
    const size_t gone =
        std::erase_if(lease.blocks, [&](const auto &b) { return listed.count(b.first) == 0; });
    if (gone != 0) {
        world.count("lease blocks left after failure");
        if (info.blocks_lost < lease.lost + gone)
            fail("lease_lost", "blocks_lost ", info.blocks_lost, ", ", gone, " left now, before ",
                 lease.lost);
        if (world.namespaces.size() == 1 && !world.config.zero_on_free)
            fail("lease_left", "a block left the lease though no second namespace exists");
    }
    lease.lost = info.blocks_lost;
}

}  // namespace

void World::execute_all() {
    for (Step &step : steps) execute(step);
}

void World::forget_ended() {
    const auto last = std::find_if(steps.begin(), steps.end(), [](const Step &step) {
        return !step.executed || !step.finished;
    });
    steps.erase(steps.begin(), last);
}

uint32_t World::unfinished() {
    forget_ended();
    return static_cast<uint32_t>(steps.size());
}

bool World::step_unfinished(uint32_t id) {
    for (const Step &step : steps)
        if (step.id == id) return !step.finished;
    return false;
}

int World::new_mark() {
    const int mark = next_mark++ % kMarks;
    const uint64_t bit = 1ull << mark;
    if (failed_at[mark] != 0 || mark_used[mark] != 0)
        for (auto *all : {&memory, &host})
            for (Memory &pool : *all)
                for (Block &block : pool)
                    for (Cell &cell : block)
                        if ((cell.marks & bit) != 0) cell.marks = (cell.marks & ~bit) | kForgotten;
    failed_at[mark] = 0;
    mark_used[mark] = 1;
    return mark;
}

bool World::spoilt(uint64_t marks, uint64_t committed_at) const {
    if ((marks & kForgotten) != 0) return true;
    for (int mark = 0; mark < kMarks; ++mark)
        if ((marks >> mark & 1) != 0 && failed_at[mark] != 0 && failed_at[mark] < committed_at)
            return true;
    return false;
}

Block &World::block(uint32_t group, int32_t number, const char *use) {
    Memory &pool = memory[config.pool_of(group)];
    if (number <= 0 || static_cast<uint32_t>(number) >= pool.size())
        fail("bad_id", use, ": group ", group, " block ", number, " is out of range");
    return pool[number];
}

void World::expect(const Cell &cell, uint64_t wanted, const Step &step, const Row &row,
                   uint32_t group, int32_t number, uint32_t slot, const char *use,
                   uint64_t *marks) {
    *marks |= cell.marks;
    if (step.will_fail && step.damage == Damage::unwritten) return;
    ++slots_compared;
    const bool wrong = cell.content != wanted;
    if (cell.marks != 0 ? !spoilt(cell.marks, step.committed_at) : !wrong) return;
    const std::string where =
        join(use, ": step ", step.id, " queue ", step.queue, " sequence ", hex(row.handle),
             " first ", row.first, " count ", row.count, " hit ", row.hit, " group ", group,
             " (kind ", config.groups[group].kind, ") block ", number, " slot ", slot);
    if (cell.marks != 0) fail("read_failed_content", where, " holds what a failed step left");
    fail("wrong_content", where, ": ", cell.content == 0 ? "nothing" : "other content",
         " of tenant ", cell.tenant, ", read by tenant ", row.tenant);
}

void World::finish(size_t index) {
    Step &step = steps[index];
    if (step.will_fail)
        execute_all();
    else
        execute(step);
    std::vector<quire_seq_info> before;
    for (const Sequence &sequence : sequences)
        before.push_back(sequence.alive ? info(sequence.handle) : made<quire_seq_info>());
    std::vector<uint32_t> kept(sequences.size(), kUntold);
    if (step.will_fail && !config.recurrent && !config.windows && leases.empty())
        kept = predict(*this, step, before);
    const bool told = step.will_fail && play.plant != Plant::finish;
    const int32_t status = api->step_finish(cache, step.handle, nullptr,
                                            told ? QUIRE_STEP_FAILED : QUIRE_STEP_OK, message());
    trace("finish step ", step.id, step.will_fail ? " FAILED" : " OK", " -> ", status);
    require_ok("finish", status);
    step.finished = true;
    if (follower != nullptr)
        require_ok("finish_follower", api->step_finish(follower, step.follower_handle, nullptr,
                                                       QUIRE_STEP_OK, message()));
    if (!step.will_fail) {
        for (size_t i = 0; i < sequences.size(); ++i)
            if (sequences[i].alive &&
                info(sequences[i].handle).computed_tokens != before[i].computed_tokens)
                fail("ok_changed", "finishing step ", step.id, " as OK changed computed tokens");
        return;
    }
    count("failed steps");
    published_exactly = false;
    failed_at[step.mark] = ++clock;
    ++clock;
    for (size_t i = 0; i < sequences.size(); ++i)
        if (sequences[i].alive) check_lost(*this, sequences[i], step, before[i], kept[i]);
    for (Lease &lease : leases)
        if (lease.alive) check_lease_lost(*this, lease);
}

void World::finish_some(bool all) {
    for (size_t i = 0; i < steps.size(); ++i)
        if (!steps[i].finished && (all || rng.chance(.6))) finish(i);
    forget_ended();
}

void World::publish(const Sequence &sequence) {
    if (config.no_prefix) return;
    const uint32_t known = static_cast<uint32_t>(sequence.tokens.size()) - sequence.drafts;
    const uint32_t limit = std::min(info(sequence.handle).computed_tokens, known);
    uint32_t named = 0;
    while (named < limit && sequence.named[named] != 0) ++named;
    const auto prefixes = chain(sequence);
    for (uint32_t n = config.span; n <= named; n += config.span)
        if (!config.snapshots || sequence.snapshots.count(n) != 0) published.insert(prefixes[n]);
}

}  // namespace hybrid
