// SPDX-License-Identifier: Apache-2.0
//
// partial: QUIRE_CACHE_PARTIAL_HITS. A hit may end within a block, which a step copies from a
// cached one that begins with the same tokens.
//
// Copies are executed as those of forks are, so a row that reads what was found is checked as ever.
// Besides, the copied block must be one that the tree named before the call, with those tokens
// after the ones before it; and where the model knows all that the header asks for, the part must
// be as long as the best cached block allows.
#include <algorithm>

#include "device.hpp"
#include "items.hpp"
#include "records.hpp"

namespace sim {
namespace {

constexpr int64_t kCompared = 16;  // blocks under the same first tokens

const quire_block_copy *copy_to(const std::vector<quire_block_copy> &copies, uint32_t group,
                                int32_t block, uint32_t kind) {
    for (const quire_block_copy &copy : copies)
        if (copy.kind == kind && copy.group == group && copy.dst == block) return &copy;
    return nullptr;
}

}  // namespace

// Whether so many tokens may be found: whole blocks, or a part of one that is long enough.
bool World::may_hit(uint32_t hits) const {
    const uint32_t part = hits % config.span();
    return part == 0 || (partial() && part >= config.least_part());
}

// A span of the sequence's keys lies over the block that begins there.
bool World::under_span(const Sequence &seq, uint32_t begin) const {
    return std::any_of(seq.spans.begin(), seq.spans.end(), [&](const Span &span) {
        return span.begin < begin + config.span() && span.end > begin;
    });
}

// The prefix tree, and the blocks that are free or cached, before a call with items. The dump is
// long, so only sometimes.
void World::look_at_tree(Items &items) {
    items.looked = partial() && q_->cache_dump != nullptr && !items.items.empty() &&
                   (strict || mix(config.seed, ops_) % 2 == 0);
    if (!items.looked) return;
    items.nodes = linked_nodes();
    for (const Node &node : items.nodes) nodes_seen_.try_emplace({node.id, node.generation}, ops_);
    each_record(dump(), [&](std::string_view record) {
        const bool is_list = has(record, "\"record\":\"list\"");
        if (!is_list || !has(record, "\"tier\":\"device\"")) return;
        if (has(record, "\"list\":\"free\"") || has(record, "\"list\":\"cached\""))
            items.free_blocks[number_in(record, "group")] += number_in(record, "count");
    });
}

void World::judge_partial(const Items &items, size_t first_row) {
    if (!partial()) return;
    const std::vector<quire_block_copy> copies = copies_of(*open);
    for (size_t i = first_row; i < open->rows.size(); ++i) {
        const Row &row = open->rows[i];
        if (row.hit % config.span() == 0) continue;
        ++tally_->partial_hits;
        tally_->partial_tokens += row.hit % config.span();
        tally_->partial_to_last += row.count == 1 && row.hit + 1 == find(row.seq)->known();
        check_source(items, row, copies);
    }
    if (first_row == 0 && items.looked && !open->rows.empty()) judge_part(items);
}

// The block in which the row's hit ends is the sequence's, and filled from one block of the tree.
void World::check_source(const Items &items, const Row &row,
                         const std::vector<quire_block_copy> &copies) {
    const Sequence &seq = *find(row.seq);
    const uint32_t begin = whole_hit(row.hit);
    const uint32_t at = begin / config.block_tokens;
    const Node *source = nullptr;
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
        table(seq, g);
        if (at >= table_.size() || table_[at] == 0)
            fail("partial-copy", "sequence %u finds %u tokens, and has no block %u in group %u",
                 seq.id, row.hit, at, g);
        const quire_block_copy *copy = copy_to(copies, g, table_[at], QUIRE_COPY_ON_WRITE);
        if (copy == nullptr)
            fail("partial-copy",
                 "sequence %u finds %u tokens, and no copy fills its block %d of group %u", seq.id,
                 row.hit, table_[at], g);
        // The step may bring a block to the device, and copy it then.
        if (!items.looked || copy_to(copies, g, copy->src, QUIRE_COPY_SWAP_IN) != nullptr) continue;
        const auto node = std::find_if(items.nodes.begin(), items.nodes.end(), [&](const Node &n) {
            return g < n.blocks.size() && n.blocks[g] == copy->src;
        });
        if (node == items.nodes.end())
            fail("partial-source",
                 "sequence %u finds %u tokens; block %d of group %u, which is copied for that, was "
                 "in no node before the call",
                 seq.id, row.hit, copy->src, g);
        if (source != nullptr && source != &*node)
            fail("partial-source", "sequence %u finds %u tokens in blocks of two nodes", seq.id,
                 row.hit);
        source = &*node;
        if (under_spans_.count(block_hash(kDevice, g, copy->src)) != 0)
            fail("partial-span", "sequence %u finds %u tokens in a block that a span lies over",
                 seq.id, row.hit);
        for (uint32_t p = begin; p < row.hit; ++p) {
            const Slot &slot = memory_.at(kDevice, g, copy->src, config.place_of(g, p));
            if (slot.content != make_content(seq.tenant, mix(seq.chain[p], epoch_)))
                fail("partial-source",
                     "sequence %u finds %u tokens; for token %u block %d of group %u is copied, "
                     "which holds %s",
                     seq.id, row.hit, p, copy->src, g, Memory::describe(slot).c_str());
        }
        ++tally_->partial_sources;
    }
}

// When the step runs, the part that was found holds what its tokens need, in every group: also
// where no row sees it.
void World::check_part(const Row &row) {
    if (row.hit % config.span() == 0) return;
    const Sequence &seq = *find(row.seq);
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
        table(seq, g);
        for (uint32_t p = whole_hit(row.hit); p < row.hit && p < row.first; ++p) {
            const int32_t id = table_[p / config.block_tokens];
            const Slot &slot = memory_.at(kDevice, g, id, config.place_of(g, p));
            if (slot.content != seq.content(p))
                fail("partial-content",
                     "sequence %u finds %u tokens; token %u in block %d of group %u is %s", seq.id,
                     row.hit, p, id, g, Memory::describe(slot).c_str());
        }
    }
}

// How many tokens of the sequence, from `begin` on, the node's block has in all groups on the
// device.
uint32_t World::agreeing(const Sequence &seq, uint32_t begin, const Node &node) {
    uint32_t least = config.block_tokens;
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
        const int64_t id = g < node.blocks.size() ? node.blocks[g] : 0;
        if (id == 0 || (id & kHostBit) != 0) return 0;
        if (under_spans_.count(block_hash(kDevice, g, static_cast<int32_t>(id))) != 0) return 0;
        uint32_t same = 0;
        while (same < least && begin + same < seq.known() &&
               memory_.at(kDevice, g, static_cast<int32_t>(id), same).content ==
                   make_content(seq.tenant, mix(seq.chain[begin + same], epoch_)))
            ++same;
        least = same;
    }
    return least;
}

// Whether all blocks of the node, and it has one, hold the sequence's place from token `from` on.
bool World::holds_place(const Node &node, const Sequence &seq, uint32_t from) const {
    const auto parts = config.place_blocks();
    bool any = false;
    for (size_t i = 0; i < std::min(parts.size(), node.blocks.size()); ++i) {
        if (node.blocks[i] == 0) continue;
        const auto [g, at] = parts[i];
        const Tier tier = (node.blocks[i] & kHostBit) != 0 ? kHost : kDevice;
        uint64_t hash = kFullBlock;
        for (uint32_t p = from + at; p < from + at + config.block_size(g); ++p)
            hash = mix(hash, make_content(seq.tenant, mix(seq.chain[p], epoch_)));
        if (block_hash(tier, g, static_cast<int32_t>(node.blocks[i] & ~kHostBit)) != hash)
            return false;
        any = true;
    }
    return any;
}

// The node of the last whole block before `begin`: by what its blocks hold, on either level. Null:
// there is no such block, or the model does not know its node.
const Node *World::node_before(const std::vector<Node> &nodes, const Sequence &seq,
                               uint32_t begin) {
    const Node *last = nullptr;
    for (uint32_t from = 0; from < begin; from += config.span()) {
        const Node *next = nullptr;
        for (const Node &node : nodes) {
            const bool follows = last == nullptr ? node.parent < 0
                                                 : node.parent == last->id &&
                                                       node.parent_generation == last->generation;
            if (!follows) continue;
            if (holds_place(node, seq, from)) next = &node;
        }
        if (next == nullptr) return nullptr;
        last = next;
    }
    return last;
}

// How many tokens, `most` at the most, a hit must have after the whole blocks before `begin`. ~0:
// the header leaves it open.
uint32_t World::due_part(const std::vector<Node> &nodes, const Sequence &seq, uint32_t begin,
                         uint32_t most) {
    const Node *last = node_before(nodes, seq, begin);
    if (begin != 0 && last == nullptr) return ~0u;
    std::vector<const Node *> siblings;
    for (const Node &node : nodes) {
        const bool follows =
            last == nullptr ? node.parent < 0
                            : node.parent == last->id && node.parent_generation == last->generation;
        if (follows) siblings.push_back(&node);
    }
    tally_->partial_siblings = std::max(tally_->partial_siblings, uint64_t{siblings.size()});
    uint32_t due = 0;
    bool crowded = false;
    for (const Node *node : siblings) {
        const uint32_t same = std::min(agreeing(seq, begin, *node), most);
        if (same == config.block_tokens) return ~0u;  // a whole block, which a window may not have
        const uint64_t seen = nodes_seen_[{node->id, node->generation}];
        // With those that may have been published later, itself among them.
        const auto later = std::count_if(siblings.begin(), siblings.end(), [&](const Node *other) {
            return other->scope == node->scope &&
                   nodes_seen_[{other->id, other->generation}] >= seen;
        });
        crowded |= later > kCompared;
        if (same >= config.least_part() && later <= kCompared) due = std::max(due, same);
    }
    tally_->partial_crowded += crowded;
    return due;
}

// Whether so many tokens fit what is free, beside the watermark and within the quota.
bool World::room_for(const Sequence &seq, uint32_t tokens) {
    const Namespace &space = *find_namespace(seq.ns);
    const uint32_t blocks = (tokens + config.block_tokens - 1) / config.block_tokens + 1;
    if (space.quota != 0) {
        quire_namespace_info got{};
        got.struct_size = sizeof got;
        expect(q_->namespace_get_info(cache_, space.handle, &got, &error_), {QUIRE_OK},
               "quire_namespace_get_info");
        if (got.blocks_held + blocks * blocks_.size() > space.quota) return false;
    }
    return true;
}

// The first item of a step, where everything that was there before it was computed on its queue and
// there was room for it: the part that it found is the longest that there was.
void World::judge_part(const Items &items) {
    const PlannedItem &plan = items.planned[0];
    const quire_step_result &result = items.results[0];
    const Sequence &seq = *find(plan.seq);
    if (result.outcome != QUIRE_ITEM_RUN || open->preemptions != 0 || config.queues != 1) return;
    if (open->undo.empty() || open->undo[0].before.id != seq.id ||
        open->undo[0].before.computed != 0 || open->undo[0].before.swapped)
        return;
    if (seq.cross_tokens != 0 || has_tier() || !config.sees_all()) return;
    // With a store, namespaces of equal keys have equal contents, and find nothing of each other.
    const auto alike = std::count_if(namespaces.begin(), namespaces.end(),
                                     [&](const Namespace &ns) { return ns.tenant == seq.tenant; });
    if (alike > 1) return;
    const uint32_t total = seq.known() + plan.ahead;
    // With the one that is copied.
    const uint32_t blocks = (total + config.block_tokens - 1) / config.block_tokens + 1;
    bool has_room = room_for(seq, total);
    for (const auto &[pool, count] : items.free_blocks) {
        const uint32_t groups = config.one_pool() ? static_cast<uint32_t>(blocks_.size()) : 1;
        has_room &= count >= blocks * groups + config.watermark;
    }
    const uint32_t begin = whole_hit(result.hit_tokens);
    const uint32_t most = std::min(
        {seq.known() - 1, seq.first_unknown(), seq.known() - plan.drafts, plan.most_hits(1)});
    if (!has_room || under_span(seq, begin)) {
        ++tally_->partial_unsure;
        return;
    }
    const uint32_t due = due_part(items.nodes, seq, begin, most - begin);
    if (due == ~0u) return;
    ++tally_->partial_judged;
    tally_->partial_due += due != 0;
    if (result.hit_tokens - begin < due)
        fail("partial-missing",
             "sequence %u finds %u tokens; a cached block goes on with %u after %u of them (%u may "
             "be found)",
             seq.id, result.hit_tokens, due, begin, most);
    const bool exact = items.probed != ~0u && plan.limit == 0 && plan.drafts == 0;
    if (exact && config.windowless() && result.hit_tokens != items.probed)
        fail("probe-hit", "sequence %u: by a probe %u tokens; the step finds %u", seq.id,
             items.probed, result.hit_tokens);
}

// Caches that cannot have the flag are refused.
void World::check_partial_refusals(const quire_cache_desc &good) {
    tally_->partial_seeds += partial();
    if (!partial() || on_device()) return;
    const auto refuse = [this](const char *what, const quire_cache_desc &desc) {
        quire_cache *cache = nullptr;
        const quire_status got = q_->cache_create(instance_, &desc, &cache, &error_);
        if (got != QUIRE_OK) return expect(got, {QUIRE_E_ARG, QUIRE_E_UNSUPPORTED}, what);
        expect(q_->cache_destroy(cache, &error_), {QUIRE_OK}, "quire_cache_destroy");
        fail("partial-refused", "%s: it is not refused", what);
    };
    quire_cache_desc desc = good;
    desc.flags = QUIRE_CACHE_FIXED_HASH | QUIRE_CACHE_FOLLOWER | QUIRE_CACHE_PARTIAL_HITS;
    refuse("quire_cache_create of a follower with partial hits", desc);
    std::vector<quire_group_desc> groups(good.groups, good.groups + good.group_count);
    desc = good;
    desc.flags = QUIRE_CACHE_FIXED_HASH | QUIRE_CACHE_PARTIAL_HITS;
    groups[0].kind = QUIRE_GROUP_FULL;
    groups[0].window = groups[0].sink_tokens = 0;
    groups[0].v_head_dim = groups[0].k_head_dim;
    groups.push_back(groups[0]);
    desc.groups = groups.data();
    desc.group_count = static_cast<uint32_t>(groups.size());
    groups.back().block_tokens = 2 * good.block_tokens;
    refuse("quire_cache_create with partial hits and blocks of two sizes", desc);
    groups.back().block_tokens = 0;
    groups.back().kind = QUIRE_GROUP_RECURRENT;
    refuse("quire_cache_create with partial hits and states", desc);
}

// Planted: another block than the library says.
int32_t World::source_of(const quire_block_copy &copy) {
    if (!makes(kFaultSource)) return copy.src;
    const auto count = static_cast<int32_t>(blocks_[copy.group]) - 1;
    return copy.src % count + 1;
}

// Planted: hits within a block that are a token longer than the library says.
void World::read_longer(std::vector<quire_step_result> &results) {
    for (quire_step_result &result : results) {
        if (result.outcome != QUIRE_ITEM_RUN || result.hit_tokens % config.span() == 0) continue;
        if (result.compute_count == 1 || !makes(kFaultLonger)) continue;
        ++result.hit_tokens;
        ++result.first_position;
        --result.compute_count;
    }
}

}  // namespace sim
