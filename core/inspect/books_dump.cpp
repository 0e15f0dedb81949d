// SPDX-License-Identifier: Apache-2.0

#include "core/inspect/cache_dump.hpp"

namespace quire {

namespace {

const char *name_of(BlockState state) {
    switch (state) {
        case BlockState::free:
            return "free";
        case BlockState::draining:
            return "draining";
        case BlockState::held:
            return "held";
        case BlockState::cached:
            return "cached";
        case BlockState::parked:
            return "parked";
        case BlockState::null:
            return "null";
    }
    return "unknown";
}

uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

}  // namespace

uint64_t CacheDump::hash(const uint32_t *words, uint64_t count) const {
    return chain_hash(books_.journal.tree().scopes().seed(), words, count * sizeof *words);
}

void CacheDump::write_tenant(const char *name, uint64_t tenant) {
    if (tenant == kFreshTenant) return out_.null(name);
    if (tenant == kMixedTenant) return out_.word(name, "mixed");
    out_.number(name, tenant);
}

void CacheDump::write_group(uint32_t group) {
    const GroupGeometry &g = books_.geometry.groups[group];
    out_.open("group");
    out_.number("group", group);
    out_.number("kind", g.kind);
    out_.number("window", g.window);
    out_.number("sink_tokens", g.sink_tokens);
    out_.number("kept_blocks", g.kept_blocks);
    out_.number("layers", g.layer_count);
    out_.number("kv_heads", g.kv_heads);
    out_.number("block_bytes", static_cast<uint64_t>(g.block_stride));
    out_.number("blocks", g.blocks);
    out_.number("host_blocks", g.host_blocks);
    out_.close();
}

// Writes head, tail and count; the order is in the blocks' own `prev` and `next`.
void CacheDump::write_list(const BlockPool &pool, uint32_t list) {
    out_.index("head", pool.lists_[list].head);
    out_.index("tail", pool.lists_[list].tail);
    out_.number("count", pool.lists_[list].count);
    out_.close();
}

void CacheDump::write_lists(const BlockPool &pool, uint32_t group, const char *tier) {
    auto open = [&](const char *name) {
        out_.open("list");
        out_.number("group", group);
        out_.word("tier", tier);
        out_.word("list", name);
    };
    out_.open("pool");
    out_.number("group", group);
    out_.word("tier", tier);
    out_.number("held", pool.held_);
    out_.number("parked", pool.parked_);
    out_.number("draining", pool.draining_);
    out_.number("clock", pool.clock_);
    out_.list("cached_pending", pool.cached_pending_, kMaxUnfinished);
    out_.list("left", pool.unscrubbed_.data(), pool.unscrubbed_.size());
    out_.close();
    open("free");
    write_list(pool, BlockPool::kFree);
    open("cached");
    write_list(pool, BlockPool::kCached);
    const char *const lists[kMaxUnfinished] = {"draining 0", "draining 1", "draining 2",
                                               "draining 3", "draining 4", "draining 5",
                                               "draining 6", "draining 7"};
    static_assert(kMaxUnfinished == 8, "each has its name");
    for (uint32_t ring = 0; ring < kMaxUnfinished; ++ring) {
        open(lists[ring]);
        write_list(pool, BlockPool::kDraining + ring);
    }
}

void CacheDump::write_blocks(const BlockPool &pool, uint32_t group, const char *tier) {
    for (uint32_t i = 0; i < pool.block_count(); ++i) {
        const Block &b = pool[i];
        out_.open("block");
        out_.number("group", group);
        out_.word("tier", tier);
        out_.number("id", i);
        out_.word("state", name_of(b.state));
        if (books_.geometry.one_pool) out_.number("of", b.group);
        out_.number("refs", b.refs);
        out_.index("node", b.node);
        out_.index("owner", b.owner);
        out_.number("frozen", b.frozen_slots);
        out_.number("stamp", b.stamp);
        out_.number("touch", b.touch);
        out_.number("ready", pool.origin(i).ready);
        out_.bits("depends", pool.origin(i).depends);
        write_tenant("tenant", pool.origin(i).tenant);
        out_.flag("covered", b.is_covered);
        out_.number("cover_ready", pool.cover_of(i).ready);
        out_.bits("cover_depends", pool.cover_of(i).depends);
        out_.flag("left", b.is_unscrubbed);
        out_.flag("read", b.is_read);
        out_.index("prev", pool.links_[i].prev);
        out_.index("next", pool.links_[i].next);
        out_.close();
    }
}

void CacheDump::write_tree() {
    const PrefixTree &tree = books_.journal.tree();
    out_.open("tree");
    out_.number("capacity", tree.capacity_);
    out_.number("nodes", tree.node_count_);
    out_.number("first_unused", tree.first_unused_);
    out_.list("free", tree.free_stack_.data(), smaller(tree.free_nodes_, tree.capacity_));
    out_.close();
}

void CacheDump::write_scopes() {
    const Scopes &scopes = books_.journal.tree().scopes();
    for (uint32_t i = 0; i < scopes.used(); ++i) {
        if (scopes.references(i) == 0) continue;
        out_.open("scope");
        out_.number("id", i);
        out_.number("root", scopes.root_of(i));
        out_.number("references", scopes.references(i));
        out_.number("sequences", scopes.sequence_count(i));
        out_.flag("idle", scopes.is_idle(i));
        out_.number("key_words", scopes.word_count(i));
        out_.bits("hash", scopes.hash(i));
        out_.close();
    }
}

void CacheDump::write_nodes() {
    const PrefixTree &tree = books_.journal.tree();
    for (uint32_t i = 0; i < smaller(tree.first_unused_, tree.capacity_); ++i) {
        const PrefixTree::Node &node = tree.header(i);
        if ((node.generation & 1) == 0) continue;
        out_.open("node");
        out_.number("id", i);
        out_.number("generation", node.generation);
        out_.flag("linked", tree.linked(i));
        out_.index("parent", node.parent);
        out_.number("parent_generation", node.parent_generation);
        out_.number("scope", node.scope);
        out_.number("children", node.children);
        out_.bits("hash", node.hash);
        out_.list("blocks", tree.blocks(i), tree.entry_count());
        out_.bits("tokens_hash", hash(tree.tokens_of(i), tree.span_tokens_));
        if (with_tokens_) out_.list("tokens", tree.tokens_of(i), tree.span_tokens_);
        out_.close();
    }
}

void CacheDump::write_places() {
    const BlockTree &tree = books_.journal.block_tree();
    for (uint32_t b = 1; tree.is_open() && b < tree.places_.size(); ++b) {
        if (!tree.names(b)) continue;
        out_.open("place");
        out_.number("block", b);
        out_.index("before", tree.places_[b].before);
        out_.number("next", tree.next_[b]);
        out_.number("root", tree.root(b));
        out_.bits("tokens_hash", hash(tree.tokens(b), tree.size_));
        if (with_tokens_) out_.list("tokens", tree.tokens(b), tree.size_);
        out_.close();
    }
}

void CacheDump::write_namespaces() {
    const Namespaces &namespaces = books_.namespaces;
    for (uint32_t i = 0; i < namespaces.used(); ++i) {
        const Namespace &ns = namespaces[i];
        if (i != Namespaces::kDefault && namespaces.find(namespaces.handle(i)) != i) continue;
        out_.open("namespace");
        out_.number("id", i);
        out_.number("number", ns.number);
        out_.number("quota_blocks", ns.quota_blocks);
        out_.number("sequences", ns.sequences);
        out_.number("leases", ns.leases);
        out_.number("blocks_held", ns.blocks_held);
        out_.number("returned", ns.returned);
        out_.number("given_up", ns.given_up);
        out_.number("queries", ns.queries);
        out_.number("hits", ns.hits);
        out_.close();
    }
}

void CacheDump::write_tokens(const char *name, const Buffer &buffer, uint32_t count) {
    out_.list(name, buffer.data, smaller(count, buffer.capacity));
}

void CacheDump::write_sequence(uint32_t index) {
    const Sequence &s = books_.sequences[index];
    const TokenPages &pages = books_.token_pages;
    uint32_t known = smaller(s.state.known, pages.held(s.tokens));
    out_.open("sequence");
    out_.number("id", index);
    out_.bits("handle", books_.handles.handle(index));
    write_sequence_state(s.state);
    out_.index("change", s.change);
    out_.index("root", s.root);
    out_.index("scope", s.scope);
    out_.number("namespace", s.name_space);
    out_.whole("priority", s.priority);
    out_.number("blocks_held", s.blocks_held);
    out_.number("cross_tokens", s.cross_tokens);
    out_.number("last_step", s.last_step);
    out_.flag("lease", s.is_lease);
    out_.number("blocks_lost", s.blocks_lost);
    out_.index("lent_from", s.lent_from);
    out_.open_list("pending");
    for (uint32_t i = 0; i < kMaxUnfinished; ++i) {
        if (s.pending_step[i] != 0) out_.pair(s.pending_step[i], s.pending_position[i]);
    }
    out_.close_list();
    write_tokens("moves", s.moves, s.state.move_count);
    write_tokens("tree", s.tree, s.state.drafts_are_tree ? s.state.drafts : 0);
    uint64_t so_far = books_.journal.tree().scopes().seed();
    pages.each_page(s.tokens, known, [&](const uint32_t *tokens, uint32_t count) {
        so_far = chain_hash(so_far, tokens, uint64_t{count} * sizeof *tokens);
    });
    out_.bits("tokens_hash", so_far);
    if (with_tokens_) {
        out_.open_list("tokens");
        pages.each_page(s.tokens, known, [&](const uint32_t *tokens, uint32_t count) {
            for (uint32_t i = 0; i < count; ++i) out_.item(tokens[i]);
        });
        out_.close_list();
    }
    out_.close();
}

void CacheDump::write_table(uint32_t index, uint32_t group) {
    const BlockTable &t = books_.journal.table(index, group);
    out_.open("table");
    out_.number("id", index);
    out_.number("group", group);
    out_.number("length", t.length);
    out_.number("null_front", t.null_front);
    out_.number("epoch", t.epoch);
    out_.index("writable", t.writable);
    write_tokens("blocks", t.ids, t.length);
    out_.open_list("holds");
    for (uint32_t i = 0; books_.sequences[index].is_lease && i < t.length; ++i)
        out_.item(books_.journal.lease_index(index, group).holds(i));
    out_.close_list();
    out_.close();
}

void CacheDump::write_loads() {
    for (uint32_t i = 0; i < Loads::kMost; ++i) {
        const Load &load = books_.loads[i];
        if (load.handle == 0) continue;
        out_.open("load");
        out_.number("id", i);
        out_.index("sequence", load.sequence);
        out_.word("state", load.is_taken    ? "taken"
                           : load.is_ready  ? "ready"
                           : load.is_asking ? "asking"
                                            : "running");
        out_.number("first", load.first);
        out_.number("length", load.length);
        out_.number("found", load.found);
        out_.number("awaited", load.awaited);
        out_.number("unreported", load.unreported);
        out_.flag("told", load.is_told);
        out_.number("serial", load.serial);
        out_.number("next", load.next);
        out_.number("stride", load.stride);
        out_.list("blocks", load.blocks.data(), load.blocks.size());
        out_.close();
    }
}

// The orders that a leader's next log has for followers, and the loads that a follower was told.
void CacheDump::write_orders() {
    for (uint32_t i = 0; i < books_.loads.end_count(); ++i) {
        out_.open("load_end");
        out_.number("serial", books_.loads.end(i).serial);
        out_.number("length", books_.loads.end(i).length);
        out_.close();
    }
    uint64_t id = 0;
    for (const WriteOrder &order : books_.write_orders) {
        out_.open("write_order");
        out_.number("id", id++);
        out_.index("node", order.node);
        out_.number("generation", order.generation);
        out_.number("group", order.group);
        out_.number("block", order.named);
        out_.close();
    }
    for (const FollowerTier::FollowedLoad &load : parts_.follower_tier.loads_) {
        if (load.serial == 0) continue;
        out_.open("followed_load");
        out_.number("serial", load.serial);
        out_.number("step", load.step);
        out_.number("length", load.length);
        out_.number("whole", load.whole);
        out_.number("awaited", load.awaited);
        out_.number("next", load.next);
        out_.flag("decided", load.is_decided);
        out_.flag("reported", load.is_reported);
        out_.close();
    }
}

// Blocks that the store has, and those of which a reader still knows that it had.
void CacheDump::write_told() {
    const ToldBlocks &told = books_.told;
    for (uint32_t i = 0; i < told.used(); ++i) {
        const ToldBlock &r = told[i];
        if (!r.in_use || (r.slot == kNone && r.store_groups == 0)) continue;
        out_.open("told");
        out_.number("id", i);
        out_.number("block", r.number);
        out_.index("node", r.node);
        out_.number("generation", r.generation);
        out_.index("parent", r.parent);
        out_.number("position", r.position);
        out_.bits("namespace", r.ns);
        out_.bits("stored", told.stored(i));
        out_.bits("known", r.store_groups);
        out_.number("level", r.store_level);
        out_.index("slot", r.slot);
        out_.close();
    }
}

}  // namespace quire
