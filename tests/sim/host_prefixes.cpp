// SPDX-License-Identifier: Apache-2.0
//
// host_prefixes: QUIRE_CACHE_HOST_PREFIXES. A cached block that is evicted from the device lives on
// in the host tier, and a hit there brings it back.
//
// Copies are executed as those of swaps are, so a row that reads what was found is checked as ever.
// What no row reads is checked here: every published block, by quire_cache_dump, must hold a full
// block of computed and named tokens, on whichever level it lies, and follow what its parent holds.
#include <algorithm>
#include <utility>

#include "records.hpp"
#include "world.hpp"

namespace sim {
bool World::shares_host() const {
    return (config.flags & QUIRE_CACHE_HOST_PREFIXES) != 0 && q_->cache_dump != nullptr;
}

uint32_t World::host_usable(uint32_t group) const {
    if (!on_device()) return host_blocks_;
    uint32_t most = 0;
    for (const Shard &shard : shards_)
        if (shard.pools[group].host_blocks != 0) most = shard.pools[group].host_blocks - 1;
    return most;
}

std::vector<Node> World::linked_nodes() {
    std::vector<Node> nodes;
    each_record(dump(), [&](std::string_view record) {
        if (!has(record, "\"record\":\"node\"") || !has(record, "\"linked\":true")) return;
        Node node;
        node.id = number_in(record, "id");
        node.parent = number_in(record, "parent");
        node.generation = number_in(record, "generation");
        node.parent_generation = number_in(record, "parent_generation");
        node.scope = number_in(record, "scope");
        node.hash = bits_in(record, "hash");
        node.blocks = blocks_in(record);
        nodes.push_back(std::move(node));
    });
    return nodes;
}

// What can be found, and on which level it lies, as one number.
uint64_t World::findable() {
    uint64_t sum = 0;
    for (const Node &node : linked_nodes()) {
        uint64_t levels = 0;
        for (const int64_t id : node.blocks)
            levels = levels * 3 + (id == 0 ? 0u : (id & kHostBit) != 0 ? 2u : 1u);
        sum += mix(node.hash, levels);
    }
    return sum;
}

uint64_t World::block_hash(Tier tier, uint32_t group, int32_t block) const {
    const Slot *slots = memory_.block(tier, group, block);
    uint64_t hash = kFullBlock;
    for (uint32_t place = 0; place < config.places(group); ++place)
        hash = mix(hash, slots[place].content);
    return hash;
}

// The hash of what the node's blocks hold, the same in all groups; 0: it has none.
uint64_t World::check_node(const Node &node) {
    uint64_t hash = 0;
    for (uint32_t g = 0; g < node.blocks.size(); ++g) {
        if (node.blocks[g] == 0) continue;
        const Tier tier = (node.blocks[g] & kHostBit) != 0 ? kHost : kDevice;
        const auto id = static_cast<int32_t>(node.blocks[g] & ~kHostBit);
        const char *where = tier == kHost ? "host block" : "block";
        const uint64_t own = block_hash(tier, g, id);
        if (id == 0 || full_blocks_.count(own) == 0)
            fail("level-content",
                 "%s %d of group %u is published (node %lld), and is no full block of computed and "
                 "named tokens: place 0 holds %s",
                 where, id, g, static_cast<long long>(node.id),
                 Memory::describe(memory_.block(tier, g, id)[0]).c_str());
        if (hash != 0 && own != hash)
            fail("level-content", "node %lld has other content in group %u than before it",
                 static_cast<long long>(node.id), g);
        hash = own;
        if (std::exchange(named_[tier][g][static_cast<size_t>(id)], 1) != 0)
            fail("level-twice", "%s %d of group %u is published twice, or of a swapped sequence",
                 where, id, g);
    }
    return hash;
}

// The nodes that can be found: through their parents. A call that forgets takes no node below with
// it; nor does an eviction, where the blocks below wait in the host tier for another queue,
// or where each group evicts in its own order.
std::vector<Node> World::reachable(const std::vector<Node> &nodes) {
    std::map<int64_t, const Node *> by_id;
    for (const Node &node : nodes) by_id[node.id] = &node;
    const auto is_reachable = [&](const Node &node) {
        const Node *at = &node;
        while (at->parent >= 0) {
            const auto parent = by_id.find(at->parent);
            if (parent == by_id.end() || parent->second->generation != at->parent_generation)
                return false;
            at = parent->second;
        }
        return true;
    };
    std::vector<Node> found;
    for (const Node &node : nodes)
        if (is_reachable(node))
            found.push_back(node);
        else if (forgets_ == 0 && evicted_by_call_ == 0 && config.queues == 1 &&
                 blocks_.size() == 1 && !tolerate("level-orphan"))
            fail("level-orphan",
                 "nothing was forgotten; node %lld is linked, and no block before it is",
                 static_cast<long long>(node.id));
    return found;
}

// Nothing else but eviction takes published blocks away, where no call could forget any.
void World::count_published(const std::vector<Node> &nodes, const quire_cache_stats &s) {
    uint64_t on_host = 0;
    uint64_t published = 0;
    for (const Node &node : nodes)
        for (const int64_t id : node.blocks) {
            published += id != 0;
            on_host += (id & kHostBit) != 0;
        }
    const bool all = blocks_.size() == 1;  // else a node is lost with the first of its blocks
    if (all ? on_host != s.host_blocks_cached : on_host > s.host_blocks_cached)
        fail("stats-host", "host_blocks_cached is %llu; nodes name %llu blocks of the host tier",
             static_cast<unsigned long long>(s.host_blocks_cached),
             static_cast<unsigned long long>(on_host));
    const uint64_t lost = s.evictions - published_.evictions;
    if (published_.forgets == forgets_ && config.groups.size() == 1) {
        ++tally_->published_judged;
        const bool loads = has_tier() && tolerate("evictions-load");
        if (published + lost < published_.blocks && !loads)
            fail(has_tier() ? "evictions-load" : "published-lost",
                 "%llu blocks were published and %llu are; %llu were evicted, and none forgotten",
                 static_cast<unsigned long long>(published_.blocks),
                 static_cast<unsigned long long>(published), static_cast<unsigned long long>(lost));
    }
    published_ = {published, s.evictions, forgets_};
}

// Every published block, and the counts of the host tier. Only between steps, for the open step's
// copies have not run.
void World::check_levels() {
    if (!shares_host() || open) return;
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    for (auto &tier : named_) tier.assign(blocks_.size(), {});
    uint64_t usable = 0;
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        named_[kDevice][g].assign(blocks_[g], 0);
        named_[kHost][g].assign(host_blocks_ + 1, 0);
        usable += host_usable(g);
    }
    const HostTables held = swapped_tables();
    for (const auto &[place, seq] : held)
        named_[kHost].at(place.first).at(static_cast<size_t>(place.second)) = 1;
    const uint64_t used = held.size();
    // A load's blocks may count there too (README.md, question 22).
    if (s.host_blocks_used < used || (s.host_blocks_used > used && !has_tier()))
        fail("stats-host", "host_blocks_used is %llu; swapped sequences name %llu blocks",
             static_cast<unsigned long long>(s.host_blocks_used),
             static_cast<unsigned long long>(used));
    if (s.host_blocks_used + s.host_blocks_cached > usable)
        fail("stats-host", "%llu host blocks are used and %llu cached; there are %llu",
             static_cast<unsigned long long>(s.host_blocks_used),
             static_cast<unsigned long long>(s.host_blocks_cached),
             static_cast<unsigned long long>(usable));
    const std::vector<Node> nodes = linked_nodes();
    std::map<std::pair<int64_t, int64_t>, uint64_t> contents;  // of each node and generation
    for (const Node &node : nodes) contents[{node.id, node.generation}] = check_node(node);
    for (const Node &node : nodes) {
        const uint64_t own = contents[{node.id, node.generation}];
        const auto parent = contents.find({node.parent, node.parent_generation});
        const uint64_t before = node.parent < 0            ? kFullBlock
                                : parent == contents.end() ? 0
                                                           : parent->second;
        if (own != 0 && before != 0 && full_pairs_.count(mix(before, own)) == 0)
            fail("level-parent", "node %lld does not follow what its parent, %lld, holds",
                 static_cast<long long>(node.id), static_cast<long long>(node.parent));
    }
    count_published(nodes, s);
    check_events(reachable(nodes));
    ++tally_->levels_checked;
}

// What each sequence without computed tokens would find.
void World::probe_all(Snapshot &words) {
    for (const auto &seq : sequences) {
        if (seq->computed != 0 || seq->in_step || seq->known() >= config.max_tokens) continue;
        std::vector<uint32_t> tokens;
        for (uint32_t p = seq->known(); p < config.max_tokens; ++p)
            tokens.push_back(document_token(seq->doc, p));
        uint32_t hits = 0;
        expect(q_->prefix_probe(cache_, seq->handle, tokens.data(),
                                static_cast<uint32_t>(tokens.size()), &hits, &error_),
               {QUIRE_OK}, "quire_prefix_probe");
        words.push_back({"hits of sequence", seq->id, hits});
    }
}

// For the table of what was reached.
void World::count_levels() {
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    tally_->blocks_demoted += s.blocks_demoted;
    tally_->blocks_promoted += s.blocks_promoted;
}

// The host ids of swapped sequences before a step: one that is swapped in it comes back later.
void World::note_host_tables() {
    if (shares_host()) host_tables_ = swapped_tables();
}

// Which host blocks swapped sequences have, as group and id: quire_step_blocks does not show them.
World::HostTables World::swapped_tables() {
    HostTables tables;
    if (std::none_of(sequences.begin(), sequences.end(), [](const auto &s) { return s->swapped; }))
        return tables;
    std::map<int64_t, uint64_t> swapped;  // their handles
    const std::string_view records = dump();
    each_record(records, [&](std::string_view record) {
        if (has(record, "\"record\":\"sequence\"") &&
            (number_in(record, "flags") & QUIRE_SEQ_SWAPPED) != 0)
            swapped[number_in(record, "id")] = bits_in(record, "handle");
    });
    each_record(records, [&](std::string_view record) {
        const auto own = swapped.find(number_in(record, "id"));
        if (!has(record, "\"record\":\"table\"") || own == swapped.end()) return;
        const auto group = static_cast<uint32_t>(number_in(record, "group"));
        for (const int64_t id : blocks_in(record))
            if (id != 0) tables[{group, static_cast<int32_t>(id)}] = own->second;
    });
    return tables;
}

// How many copies of the step are no swaps: those demote blocks, or bring found ones back. A swap
// may take the host block that an earlier copy of the step went to.
void World::count_moves(const Step &step, const std::vector<quire_block_copy> &copies) {
    if (!shares_host()) return;
    uint64_t unsure = 0;  // promoted, or loaded
    std::set<std::pair<uint32_t, int32_t>> swapped;
    std::set<uint64_t> back;
    for (const Undo &undo : step.undo) {
        if (!undo.preempted && undo.before.swapped) back.insert(undo.before.handle);
        Sequence *seq = undo.preempted ? find(undo.before.id) : nullptr;
        for (uint32_t g = 0; seq != nullptr && seq->swapped && g < seq->in_host.size(); ++g)
            for (const int32_t id : seq->in_host[g])
                if (id != 0) swapped.insert({g, id});
    }
    for (const quire_block_copy &copy : copies) {
        if (copy.kind == QUIRE_COPY_SWAP_OUT) {
            ++sums_.demoted;
            host_tables_.erase({copy.group, copy.dst});  // its sequence found it on the device
        }
        if (copy.kind != QUIRE_COPY_SWAP_IN) continue;
        const auto own = host_tables_.find({copy.group, copy.src});
        if (own == host_tables_.end() || back.count(own->second) == 0)
            ++(unsure_loaded_.count({copy.group, copy.src}) != 0 ? unsure : sums_.promoted);
        else
            host_tables_.erase(own);
    }
    sums_.demoted -= swapped.size();
    if (unsure == 0) return;
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    sums_.promoted = std::clamp(s.blocks_promoted, sums_.promoted, sums_.promoted + unsure);
}

// A swap finds room where swapped sequences leave it: cached blocks give way. Asked of the first
// preemption of a step that began while nothing was unfinished, and has taken no block yet.
bool World::swap_must_fit(const std::vector<std::vector<int32_t>> &tables) {
    if (!shares_host() || has_tier() || !committed.empty() || !open->began_idle) return false;
    if (!open->rows.empty() || open->preemptions != 0 || !open->leases_changed.empty())
        return false;
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        const std::vector<int32_t> &ids = tables[g];
        uint64_t sum = ids.size() - static_cast<size_t>(std::count(ids.begin(), ids.end(), 0));
        for (const auto &[place, owner] : host_tables_) sum += place.first == g;
        if (sum > host_usable(g)) return false;
    }
    ++tally_->swaps_must_fit;
    return true;
}

// Caches that cannot have the flag are refused.
void World::check_host_refusals(const quire_cache_desc &good) {
    const auto refuse = [this](const char *what, const quire_cache_desc &desc,
                               quire_status status) {
        quire_cache *cache = nullptr;
        const quire_status got = q_->cache_create(instance_, &desc, &cache, &error_);
        if (got != QUIRE_OK) return expect(got, {status}, what);
        expect(q_->cache_destroy(cache, &error_), {QUIRE_OK}, "quire_cache_destroy");
        if (!tolerate("host-refused")) fail("host-refused", "%s: it is not refused", what);
    };
    quire_cache_desc desc = good;
    desc.flags = QUIRE_CACHE_FIXED_HASH | QUIRE_CACHE_FOLLOWER | QUIRE_CACHE_HOST_PREFIXES;
    refuse("quire_cache_create of a follower", desc, QUIRE_E_ARG);
    desc = good;
    desc.flags |= QUIRE_CACHE_NO_PREFIX;
    refuse("quire_cache_create without prefixes", desc, QUIRE_E_ARG);
    desc = good;
    desc.host_blocks = 0;
    desc.host_bytes = 0;
    refuse("quire_cache_create without a host tier", desc, QUIRE_E_ARG);
    if (good.host_bytes != 0) {
        desc.host_bytes = 1;
        refuse("quire_cache_create with no room for a host block", desc, QUIRE_E_ARG);
    }
    std::vector<quire_group_desc> groups(good.groups, good.groups + good.group_count);
    for (quire_group_desc &group : groups) {
        group.kind = QUIRE_GROUP_WINDOW;
        group.window = 4;
        group.sink_tokens = 0;
        group.v_head_dim = group.k_head_dim;
    }
    desc = good;
    desc.groups = groups.data();
    refuse("quire_cache_create with windows alone", desc, QUIRE_E_UNSUPPORTED);
}

}  // namespace sim
