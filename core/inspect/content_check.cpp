// SPDX-License-Identifier: Apache-2.0
//
// The content of a block according to its node, the sequences that hold it, and its own record.

#include <cinttypes>

#include "core/inspect/cache_check.hpp"

namespace quire {

namespace {

// The steps of [first, end) that the block's content depends on, as bits of BlockOrigin::depends.
uint64_t depends_within(const BlockOrigin &origin, uint64_t first, uint64_t end) {
    uint64_t steps = 0;
    for (uint64_t step = first; step < end; ++step) {
        if (depends_on(origin, step)) steps |= depends_bit(step);
    }
    return steps;
}

// The number of the namespace that a root's words begin with.
uint64_t root_namespace(const Scopes &scopes, uint32_t scope) {
    const uint32_t *words = scopes.words(scopes.root_of(scope));
    return words[0] | uint64_t{words[1]} << 32;
}

}  // namespace

// A block is published with the tokens and keys that its holders have there. Messages leave the
// tokens out: they belong to a tenant.
Status CacheCheck::check_tokens(uint32_t index, uint32_t group) {
    const Sequence &s = books_.sequences[index];
    const PrefixTree &tree = books_.journal.tree();
    const BlockTable &t = books_.journal.table(index, group);
    const BlockSize size = size_of(group);
    uint32_t end = s.state.computed < s.lent_from ? s.state.computed : s.lent_from;
    for (uint32_t k = 0; k < t.length && size.first_token(k) < s.state.computed; ++k) {
        if (t.ids.data[k] == kNullBlock) continue;
        uint32_t node = books_.journal.pool(group)[t.ids.data[k]].node;
        if (node == kNone) continue;
        uint32_t scope = tree.header(node).scope, root = tree.scopes().root_of(scope);
        if (root != s.root) {
            return wrong(
                "block %u of group %u: sequence %u with root %u holds it, but node %u with root %u "
                "names it",
                t.ids.data[k], group, index, s.root, node, root);
        }
        uint32_t begin = size.first_token(k);
        const uint32_t in_span = books_.geometry.span.slot_of(begin);
        if (!tree.same_scope(scope, s.root, tree.extra(s.scope, begin - in_span))) {
            return wrong(
                "block %u of group %u: sequence %u holds it at %u, but node %u names it with other "
                "keys",
                t.ids.data[k], group, index, k, node);
        }
        const uint32_t *named = tree.tokens_of(node) + in_span,
                       *known = books_.token_pages.at(s.tokens, begin);
        for (uint32_t i = 0; i < size.tokens() && begin + i < end; ++i) {
            if (named[i] == known[i]) continue;
            return wrong(
                "block %u of group %u: node %u has another token for it than sequence %u at "
                "position %u",
                t.ids.data[k], group, node, index, begin + i);
        }
    }
    return Status{};
}

// A sequence's keys belong to its namespace, and live as long as a sequence or a node uses them.
Status CacheCheck::check_scopes() {
    const PrefixTree &tree = books_.journal.tree();
    const Scopes &scopes = tree.scopes();
    Array<uint32_t> sequences(&books_.host), nodes(&books_.host);
    if (!sequences.create(scopes.used()) || !nodes.create(scopes.used())) return no_host_memory();
    for (uint32_t i = 0; i < tree.first_unused_; ++i) {
        if ((tree.header(i).generation & 1) != 0) ++nodes[tree.header(i).scope];
    }
    const BlockTree &blocks = books_.journal.block_tree();
    for (uint32_t b = 1; blocks.is_open() && b < books_.journal.pool(0).block_count(); ++b) {
        if (blocks.names(b)) ++nodes[blocks.root(b)];
    }
    QUIRE_TRY(each_sequence([&](uint32_t i) -> Status {
        const Sequence &s = books_.sequences[i];
        if (s.root >= scopes.used() || (s.scope != kNone && s.scope >= scopes.used())) {
            return wrong("sequence %u has root %u, but only %" PRIu64 " scopes exist", i, s.root,
                         scopes.used());
        }
        ++sequences[s.root];
        if (s.scope != kNone) ++sequences[s.scope];
        uint64_t number = books_.namespaces[s.name_space].number;
        uint64_t of_root = root_namespace(scopes, s.root);
        if (of_root == number) return Status{};
        return wrong("sequence %u belongs to namespace %" PRIu64 ", but its root %u to %" PRIu64, i,
                     number, s.root, of_root);
    }));
    for (uint32_t i = 0; i < scopes.used(); ++i) {
        if (scopes.references(i) == 0) continue;
        if (sequences[i] == scopes.sequence_count(i) && nodes[i] == scopes.node_count(i)) continue;
        return wrong("scope %u counts %u sequences and %u nodes, but %u and %u use it", i,
                     scopes.sequence_count(i), scopes.node_count(i), sequences[i], nodes[i]);
    }
    return Status{};
}

// A block is zeroed for a new tenant; its recorded tenant must be the one whose content it holds.
Status CacheCheck::check_tenants(uint32_t pool_number) const {
    const Journal &journal = books_.journal;
    const PrefixTree &tree = journal.tree();
    const BlockPool &pool = journal.pool(pool_number);
    for (uint32_t b = 1; b < pool.block_count(); ++b) {
        const Block &block = pool[b];
        const uint32_t group = block.group;
        const uint64_t tenant = pool.origin(b).tenant;
        if (tenant == kMixedTenant || tenant == kFreshTenant) continue;
        if (!journal.mixed_ && tenant != journal.only_tenant_) {
            return wrong("block %u of group %u: namespace %" PRIu64 " wrote it, but only %" PRIu64
                         " is recorded as having written any block",
                         b, group, tenant, journal.only_tenant_);
        }
        if (block.node != kNone) {
            const uint32_t scope = journal.leases_only() ? journal.block_tree().root(b)
                                                         : tree.header(block.node).scope;
            uint64_t number = root_namespace(tree.scopes(), scope);
            if (number == tenant) continue;
            return wrong("block %u of group %u: namespace %" PRIu64
                         " wrote it, but node %u, which names it, belongs to namespace %" PRIu64,
                         b, group, tenant, block.node, number);
        }
        if (block.state != BlockState::held || !is_live(block.owner)) continue;
        const Sequence &s = books_.sequences[block.owner];
        uint64_t number = books_.namespaces[s.name_space].number;
        if (number == tenant) continue;
        return wrong("block %u of group %u: namespace %" PRIu64
                     " wrote it, but sequence %u, which owns it, belongs to namespace %" PRIu64,
                     b, group, tenant, block.owner, number);
    }
    return Status{};
}

// A published block rests on steps that exist, and is not written any more.
Status CacheCheck::check_published(const BlockPool &pool) const {
    uint64_t newest = books_.timeline.next() - (books_.records.is_open() ? 0 : 1);
    for (uint32_t b = 1; b < pool.block_count(); ++b) {
        const Block &block = pool[b];
        const uint32_t group = block.group;
        if (block.node == kNone) continue;
        const uint64_t ready = pool.origin(b).ready;
        if (ready > newest) {
            return wrong("block %u of group %u is published as of step %" PRIu64
                         ", but the newest is %" PRIu64,
                         b, group, ready, newest);
        }
        if (block.frozen_slots == size_of(group).tokens()) continue;
        return wrong(
            "block %u of group %u is published as node %u, but only %u of its %u slots are frozen",
            b, group, block.node, block.frozen_slots, size_of(group).tokens());
    }
    return Status{};
}

// If a step fails, every holder of content that depends on it must lose that content. So a sequence
// knows all unfinished steps that its published blocks depend on, and a block that it computed
// itself depends on everything that the tokens before it depend on.
Status CacheCheck::check_dependence(uint32_t index, uint32_t group) const {
    const Sequence &s = books_.sequences[index];
    const Timeline &timeline = books_.timeline;
    if (timeline.idle() && !books_.records.is_open()) return Status{};
    // A copy of a larger block in another group lets tokens depend on it that this group had in
    // full blocks before. So these may say more than is so, or the sequence may.
    if (!books_.geometry.uniform) return Status{};
    const BlockTable &t = books_.journal.table(index, group);
    uint64_t end = timeline.next() + (books_.records.is_open() ? 1 : 0);
    const Dependence depends = parts_.prefixes.depends(s);
    const BlockSize size = size_of(group);
    for (uint32_t k = 0; k < t.length && size.first_token(k + 1) <= s.state.computed; ++k) {
        if (t.ids.data[k] == kNullBlock) continue;
        const Block &block = books_.journal.pool(group)[t.ids.data[k]];
        if (block.node == kNone) continue;
        const BlockOrigin &origin = books_.journal.origin(group, t.ids.data[k]);
        uint64_t of_block = depends_within(origin, timeline.oldest(), end);
        uint64_t here = depends.up_to(size.first_token(k + 1));
        uint64_t before = block.owner == index ? depends.up_to(size.first_token(k)) : 0;
        uint64_t unknown = of_block & ~here, left_out = before & ~of_block;
        for (uint64_t step = timeline.oldest(); step < end; ++step) {
            if ((unknown & depends_bit(step)) != 0) {
                return wrong("block %u of group %u depends on step %" PRIu64
                             ", but sequence %u, which holds it at %u, does not",
                             t.ids.data[k], group, step, index, k);
            }
            if ((left_out & depends_bit(step)) != 0) {
                return wrong("block %u of group %u does not depend on step %" PRIu64
                             ", but the content that sequence %u holds before it, at %u, does",
                             t.ids.data[k], group, step, index, k);
            }
        }
    }
    return Status{};
}

Status CacheCheck::check_failed(const BlockPool &pool, uint64_t step) const {
    for (uint32_t b = 1; b < pool.block_count(); ++b) {
        if (pool[b].node == kNone || !depends_on(pool.origin(b), step)) continue;
        return wrong("block %u of group %u depends on step %" PRIu64
                     ", which failed, and is published as node %u",
                     b, pool[b].group, step, pool[b].node);
    }
    return Status{};
}

// Content that depends on a failed step is not found, and does not count as computed.
Status CacheCheck::check_failures() const {
    for (const StepRecord &record : books_.records) {
        bool has_failed = record.phase == StepPhase::finished && record.failed;
        if (!has_failed || !may_run(record.number)) continue;
        uint32_t ring = Timeline::ring_index(record.number);
        for (uint32_t p = 0; p < books_.journal.pool_count(); ++p) {
            QUIRE_TRY(check_failed(books_.journal.pool(p), record.number));
            const BlockPool *host = books_.journal.host_pool(p);
            if (host != nullptr) QUIRE_TRY(check_failed(*host, record.number));
        }
        QUIRE_TRY(each_sequence([&](uint32_t i) -> Status {
            const Sequence &s = books_.sequences[i];
            uint32_t valid = s.pending_position[ring];
            if (s.pending_step[ring] != record.number || s.state.computed <= valid) return Status{};
            return wrong(
                "sequence %u has computed %u tokens, but those from %u on depend on step %" PRIu64
                ", which failed",
                i, s.state.computed, valid, record.number);
        }));
    }
    return Status{};
}

}  // namespace quire
