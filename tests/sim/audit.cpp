// SPDX-License-Identifier: Apache-2.0
//
// audit: everything that can be observed of a cache, compared with the model or with itself
// earlier.
#include <algorithm>
#include <cstring>

#include "leases_only.hpp"
#include "world.hpp"

namespace sim {

quire_seq_info World::info(const Sequence &seq) {
    quire_seq_info info{};
    info.struct_size = sizeof info;
    expect(q_->seq_get_info(cache_, seq.handle, &info, &error_), {QUIRE_OK}, "quire_seq_get_info");
    return info;
}

const std::vector<int32_t> &World::table(const Sequence &seq, uint32_t group) {
    if (planned_) {
        table_ = planned_->tables.at(seq.id).at(group);
        return table_;
    }
    uint32_t count = 0;
    const quire_step step = open ? open->handle : 0;
    table_.resize(1024);
    const quire_status status =
        q_->step_blocks(cache_, step, seq.handle, group, 0, table_.data(), 1024, &count, &error_);
    expect(status, {QUIRE_OK}, "quire_step_blocks");
    table_.resize(count);
    for (const int32_t id : table_) {
        const uint32_t limit = seq.swapped ? host_blocks_ + 1 : blocks_[group];
        if (id < 0 || static_cast<uint32_t>(id) >= limit)
            fail("id-range", "sequence %u group %u: table names %d of %u blocks", seq.id, group, id,
                 limit);
    }
    return table_;
}

void World::adopt_computed(Sequence &seq, uint32_t computed, const char *after) {
    if (computed == seq.computed) return;
    if (computed > seq.computed)
        fail("computed-high",
             "after %s sequence %u says %u computed tokens; at most %u have content", after, seq.id,
             computed, seq.computed);
    if (config.exact())
        fail("computed-low", "after %s sequence %u says %u computed tokens; expected %u", after,
             seq.id, computed, seq.computed);
    seq.computed = computed;
}

void World::compare(Sequence &seq, const char *after) {
    const quire_seq_info got = info(seq);
    if (got.known_tokens != seq.known())
        fail("known", "after %s sequence %u says %u known tokens; expected %u", after, seq.id,
             got.known_tokens, seq.known());
    adopt_computed(seq, got.computed_tokens, after);
    if (got.draft_tokens != seq.drafts)
        fail("drafts", "after %s sequence %u says %u drafts; expected %u", after, seq.id,
             got.draft_tokens, seq.drafts);
    if (got.lookahead_tokens != seq.ahead)
        fail("lookahead", "after %s sequence %u says %u lookahead tokens; expected %u", after,
             seq.id, got.lookahead_tokens, seq.ahead);
    // With nothing computed there is nothing that must not be published.
    if (seq.computed == 0 && (got.flags & QUIRE_SEQ_UNPUBLISHED) == 0) seq.unpublished = false;
    if (got.flags != seq.flags())
        fail("seq-flags", "after %s sequence %u says flags 0x%x; expected 0x%x", after, seq.id,
             got.flags, seq.flags());
    if (got.priority != seq.priority)
        fail("priority", "after %s sequence %u says priority %d; expected %d", after, seq.id,
             got.priority, seq.priority);
    if (got.preemptions != seq.preemptions)
        fail("preemptions", "after %s sequence %u says %u preemptions; expected %u", after, seq.id,
             got.preemptions, seq.preemptions);
}

Snapshot World::snapshot() {
    Snapshot words;
    words.reserve(256);
    for (const auto &seq : sequences) {
        const quire_seq_info got = info(*seq);
        words.push_back({"known tokens of sequence", seq->id, got.known_tokens});
        words.push_back({"computed tokens of sequence", seq->id, got.computed_tokens});
        words.push_back({"drafts of sequence", seq->id, got.draft_tokens});
        words.push_back({"lookahead of sequence", seq->id, got.lookahead_tokens});
        words.push_back({"flags of sequence", seq->id, got.flags});
        words.push_back({"blocks held by sequence", seq->id, got.blocks_held});
        words.push_back({"preemptions of sequence", seq->id, got.preemptions});
        for (uint32_t g = 0; g < blocks_.size(); ++g)
            for (const int32_t id : table(*seq, g))
                words.push_back({"table of sequence", seq->id, static_cast<uint64_t>(id)});
    }
    for (const auto &lease : leases)
        for (uint32_t g = 0; g < blocks_.size(); ++g)
            for (const quire_lease_block &b : blocks_of(*lease, g)) {
                words.push_back({"block of lease", lease->id, static_cast<uint64_t>(b.block)});
                words.push_back({"holds of lease", lease->id, b.holds});
                words.push_back({"flags of a block of lease", lease->id, b.flags});
            }
    for (const Namespace &ns : namespaces) {
        quire_namespace_info got{};
        got.struct_size = sizeof got;
        expect(q_->namespace_get_info(cache_, ns.handle, &got, &error_), {QUIRE_OK},
               "quire_namespace_get_info");
        words.push_back({"sequences of namespace", ns.id, got.sequences});
        words.push_back({"blocks held by namespace", ns.id, got.blocks_held});
        words.push_back({"prefix queries of namespace", ns.id, got.prefix_cache_queries});
        words.push_back({"prefix hits of namespace", ns.id, got.prefix_cache_hits});
    }
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
#define SIM_STAT(field) words.push_back({"statistic " #field, 0, static_cast<uint64_t>(s.field)})
    SIM_STAT(prefix_cache_queries);
    SIM_STAT(prefix_cache_hits);
    SIM_STAT(num_preemptions);
    SIM_STAT(preemptions_swap);
    SIM_STAT(preemptions_recompute);
    SIM_STAT(tokens_preempted);
    SIM_STAT(copies_on_write);
    SIM_STAT(blocks_swapped_out);
    SIM_STAT(blocks_swapped_in);
    SIM_STAT(forks);
    SIM_STAT(steps);
    SIM_STAT(sequences);
    SIM_STAT(sequences_lost);
    SIM_STAT(blocks_held);
    SIM_STAT(migrations);
    SIM_STAT(blocks_demoted);
    SIM_STAT(blocks_promoted);
    // A load that goes on within a call takes and gives back blocks of the host tier.
    if (has_tier()) return words;
    SIM_STAT(blocks_free);
    SIM_STAT(blocks_cached);
    SIM_STAT(evictions);
    SIM_STAT(host_blocks_used);
    SIM_STAT(nodes);
    SIM_STAT(host_blocks_cached);
#undef SIM_STAT
    if (shares_host()) {
        words.push_back({"what can be found", 0, findable()});
        probe_all(words);
    }
    return words;
}

Snapshot World::look(bool wanted) {
    if (!wanted || (!strict && ops_ % 16 != 0)) return {};
    return snapshot();
}

void World::unchanged(const Snapshot &before, const char *promise) {
    if (before.empty()) return;
    const Snapshot after = snapshot();
    for (size_t i = 0; i < before.size() && i < after.size(); ++i)
        if (before[i].value != after[i].value || before[i].what != after[i].what)
            fail(promise, "%s %u was %llu and is %llu (%s %u)", before[i].what, before[i].who,
                 static_cast<unsigned long long>(before[i].value),
                 static_cast<unsigned long long>(after[i].value), after[i].what, after[i].who);
    if (before.size() != after.size())
        fail(promise, "the number of observed things was %zu and is %zu", before.size(),
             after.size());
}

// Sums over committed steps; an open step may or may not be counted in.
void World::check_sums(const quire_cache_stats &s) {
    if (open) return;
    const auto same = [](const char *what, uint64_t got, uint64_t wanted) {
        if (got != wanted)
            fail("stats-count", "%s is %llu; the committed steps come to %llu", what,
                 static_cast<unsigned long long>(got), static_cast<unsigned long long>(wanted));
    };
    same("prefix_cache_hits", s.prefix_cache_hits, sums_.hits);
    same("copies_on_write", s.copies_on_write, sums_.copies_on_write);
    same("blocks_swapped_out", s.blocks_swapped_out, sums_.swapped_out);
    same("blocks_swapped_in", s.blocks_swapped_in, sums_.swapped_in);
    same("blocks_demoted", s.blocks_demoted, sums_.demoted);
    same("blocks_promoted", s.blocks_promoted, sums_.promoted);
    same("preemptions_swap", s.preemptions_swap, sums_.swaps);
    same("preemptions_recompute", s.preemptions_recompute, sums_.recomputes);
}

void World::check_stats() {
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    uint64_t total = 0;
    for (uint32_t p = 0; p < config.pool_count(); ++p) total += blocks_[p] - 1;
    if (s.blocks_total != total)
        fail("stats-sum", "blocks_total is %llu; the pools have %llu",
             static_cast<unsigned long long>(s.blocks_total),
             static_cast<unsigned long long>(total));
    if (s.blocks_free + s.blocks_cached + s.blocks_held != total)
        fail("stats-sum", "free %llu + cached %llu + held %llu is not total %llu",
             static_cast<unsigned long long>(s.blocks_free),
             static_cast<unsigned long long>(s.blocks_cached),
             static_cast<unsigned long long>(s.blocks_held),
             static_cast<unsigned long long>(total));
    if (s.sequences != sequences.size())
        fail("stats-sum", "statistics say %llu sequences; %zu live",
             static_cast<unsigned long long>(s.sequences), sequences.size());
    if (s.steps != commits_)
        fail("stats-sum", "statistics say %llu steps; %llu were committed",
             static_cast<unsigned long long>(s.steps), static_cast<unsigned long long>(commits_));
    if (s.forks != forks_)
        fail("stats-sum", "statistics say %llu forks; %llu were made",
             static_cast<unsigned long long>(s.forks), static_cast<unsigned long long>(forks_));
    if (s.num_preemptions != s.preemptions_swap + s.preemptions_recompute)
        fail("stats-sum", "preemptions do not add up");
    if (s.prefix_cache_hits > s.prefix_cache_queries)
        fail("stats-sum", "more prefix hits than queries");
    check_sums(s);
    tally_->evictions = std::max(tally_->evictions, s.evictions);
    tally_->host_cached_most = std::max(tally_->host_cached_most, s.host_blocks_cached);
    if (!shares_host() && s.blocks_demoted + s.blocks_promoted + s.host_blocks_cached != 0)
        fail("stats-host", "blocks were demoted in a cache whose evicted blocks are lost");
}

// Notes that a table of the group names the block; no table of another group may. named: by pool, 0
// or the number of the group and 1.
void World::name_block(std::vector<std::vector<uint8_t>> &named, uint32_t group, int32_t block) {
    uint8_t &by = named[config.pool_of(group)][static_cast<size_t>(block)];
    const auto own = static_cast<uint8_t>(group + 1);
    if (by != 0 && by != own && block != 0)
        fail("pool-twice", "block %d is named in group %u, and in group %u", block, group, by - 1u);
    by = own;
}

void World::audit() {
    check_stats();
    check_levels();
    std::vector<std::vector<uint8_t>> named(config.pool_count());
    std::vector<std::vector<uint8_t>> host_named(config.pool_count());
    for (size_t p = 0; p < named.size(); ++p) {
        named[p].assign(blocks_[p], 0);
        host_named[p].assign(host_blocks_ + 1, 0);
    }
    std::vector<uint64_t> held(namespaces.size(), 0);
    std::vector<uint64_t> live(namespaces.size(), 0);
    for (const auto &seq : sequences) {
        compare(*seq, "audit");
        uint64_t entries = 0;
        for (uint32_t g = 0; g < blocks_.size(); ++g)
            for (const int32_t id : table(*seq, g)) {
                if (seq->swapped) {
                    name_block(host_named, g, id);
                    continue;
                }
                entries += id != 0;
                name_block(named, g, id);
            }
        const quire_seq_info got = info(*seq);
        if (!seq->swapped && got.blocks_held != entries)
            fail("blocks-held", "sequence %u says %u blocks; its tables name %llu", seq->id,
                 got.blocks_held, static_cast<unsigned long long>(entries));
        for (size_t n = 0; n < namespaces.size(); ++n)
            if (namespaces[n].id == seq->ns) {
                held[n] += entries;
                ++live[n];
            }
    }
    audit_leases(named, held);
    if (lone_) lone_->audit();
    uint64_t distinct = 0;
    for (const std::vector<uint8_t> &pool : named)
        distinct += pool.size() - 1 -
                    static_cast<uint64_t>(std::count(pool.begin() + 1, pool.end(), uint8_t{0}));
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    if (!open && s.blocks_held != distinct)
        fail("stats-held", "blocks_held is %llu; tables name %llu blocks",
             static_cast<unsigned long long>(s.blocks_held),
             static_cast<unsigned long long>(distinct));
    for (size_t n = 0; n < namespaces.size(); ++n) {
        quire_namespace_info got{};
        got.struct_size = sizeof got;
        expect(q_->namespace_get_info(cache_, namespaces[n].handle, &got, &error_), {QUIRE_OK},
               "quire_namespace_get_info");
        const bool off = got.blocks_held != held[n];
        if ((off && !tolerate("namespace-sum")) || got.sequences != live[n])
            fail(
                "namespace-sum", "namespace %u says %llu blocks, %llu sequences; it has %llu, %llu",
                namespaces[n].id, static_cast<unsigned long long>(got.blocks_held),
                static_cast<unsigned long long>(got.sequences),
                static_cast<unsigned long long>(held[n]), static_cast<unsigned long long>(live[n]));
        if (!open && got.prefix_cache_hits != namespaces[n].hits)
            fail("namespace-hits", "namespace %u says %llu hits; its committed items found %llu",
                 namespaces[n].id, static_cast<unsigned long long>(got.prefix_cache_hits),
                 static_cast<unsigned long long>(namespaces[n].hits));
        if (got.quota_blocks != namespaces[n].quota ||
            (namespaces[n].quota != 0 && held[n] > namespaces[n].quota && !tolerate("quota")))
            fail("quota", "namespace %u holds %llu blocks; its quota is %u", namespaces[n].id,
                 static_cast<unsigned long long>(held[n]), namespaces[n].quota);
    }
}

}  // namespace sim
