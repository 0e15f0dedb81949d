// SPDX-License-Identifier: Apache-2.0
//
// write_progress: copies cached blocks to the host and gives them to the store.

#include "core/tiers/cache_tier.hpp"

namespace quire {

// Begins to write the node's block of a group. False: not now.
bool CacheTier::write_block(uint32_t node, NodeName *name, uint32_t group) {
    quire_cache_tier_stats &counts = books_.loads.counts;
    const PrefixTree &tree = books_.journal.tree();
    const uint32_t named = tree.blocks(node)[group];
    const bool is_host = is_on_host(named);
    if (!books_.timeline.done(books_.journal.origin(group, named).ready)) {
        if (!is_detaching_) return false;
        ++counts.blocks_dropped;
        return true;
    }
    const Digest &tenant = *keys_.tenant(keys_.root_of(node));
    const WriteOrder order{tree.generation(node), node,   group,     named,
                           name->index,           tenant, name->name};
    quire_store_label label = blocks_.label(name->name, group, tenant);
    // A value that other processes may have removed is put again; the store looks for it first.
    const bool is_here = blocks_.holds(group);
    if (!is_here || (!is_remote_ && find_now(label) == QUIRE_STORE_PRESENT)) {
        counts.blocks_known += is_here ? 1 : 0;
        name->groups |= 1u << group;
        books_.told.add(node, name->name, group, label.key);
        books_.write_orders.note(order);  // a follower's store may not have it
        return true;
    }
    const bool is_begun =
        is_host ? write_host_block(node, name, group) : begin_landing(node, name, group);
    if (is_begun) books_.write_orders.note(order);
    return is_begun;
}

// A block of the host tier needs no copy: it is read within this call.
bool CacheTier::write_host_block(uint32_t node, NodeName *name, uint32_t group) {
    const uint32_t block = number_of(books_.journal.tree().blocks(node)[group]);
    const uint8_t *parts[kMaxShards] = {};
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        if (books_.shards[i].holds(group)) parts[i] = books_.shards[i].host_block(group, block);
    }
    if (!put(node, group, parts)) return false;
    name->groups |= 1u << group;
    return true;
}

// Begins to copy a block from the device. False: not now.
bool CacheTier::begin_landing(uint32_t node, NodeName *name, uint32_t group) {
    const uint32_t block = books_.journal.tree().blocks(node)[group];
    uint32_t slot = 0;
    const Landings::Begun begun = landings_.begin(group, block, &slot);
    if (begun == Landings::Begun::full) return false;
    name->groups |= 1u << group;
    if (begun == Landings::Begun::refused) {
        ++books_.loads.counts.blocks_dropped;
        return true;
    }
    landed_[slot] = Landing{group, node, block, books_.journal.tree().generation(node),
                            books_.journal.origin(group, block).ready};
    return true;
}

// Takes the first of the queue. False: it has to wait.
bool CacheTier::write_front() {
    const Unsaved::Entry entry = books_.unsaved.front();
    const PrefixTree &tree = books_.journal.tree();
    quire_cache_tier_stats &counts = books_.loads.counts;
    NodeName *name = nullptr;
    if (tree.generation(entry.node) != entry.generation || !tree.in_use(entry.node)) {
        counts.blocks_evicted += desc_.write != QUIRE_TIER_WRITE_BACK ? 1 : 0;  // would_lose()
    } else if (is_asleep_ || fault_.is_broken()) {
        ++counts.blocks_dropped;
    } else {
        name = keys_.of_node(entry.node);
    }
    for (uint32_t g = 0; name != nullptr && g < books_.geometry.group_count; ++g) {
        const uint32_t block = tree.blocks(entry.node)[g];
        if (block == kNullBlock || (name->groups >> g & 1) != 0) continue;
        if (!write_block(entry.node, name, g)) return false;
    }
    books_.unsaved.pop();
    return true;
}

// True if the block has been what it is now since before it was copied. Whoever writes to a block
// takes it out of the tree first, and a block that comes back has another `ready`.
bool CacheTier::still_holds(const Landing &landing) const {
    const PrefixTree &tree = books_.journal.tree();
    if (tree.generation(landing.node) != landing.generation || !tree.in_use(landing.node))
        return false;
    if (tree.blocks(landing.node)[landing.group] != landing.block) return false;
    const BlockPool &pool = books_.journal.pool(landing.group);
    return pool[landing.block].node == landing.node &&
           pool.origin(landing.block).ready == landing.ready;
}

// The store may have lost the value again, or had it before it refused another.
void CacheTier::end_put(const Transfer &transfer, const quire_store_answer &answer) {
    if (!books_.told.is_open()) return;
    const uint8_t found = find_now(answer.label);
    const bool is_done = answer.outcome == QUIRE_STORE_DONE;
    if (found == QUIRE_STORE_ABSENT || (found == QUIRE_STORE_UNKNOWN && !is_done))
        return books_.told.remove(answer.label.key);
    if (found == QUIRE_STORE_UNKNOWN) return;  // it counted as there, and a notice may have come
    const PrefixTree &tree = books_.journal.tree();
    if (tree.generation(transfer.load) != transfer.serial) return;
    const NodeName *name = keys_.of_node(transfer.load);
    if (name != nullptr)
        books_.told.add(transfer.load, name->name, transfer.entry, answer.label.key);
}

// Gives a node's block to the store, whose part of each shard lies at parts[shard]. False: not now.
bool CacheTier::put(uint32_t node, uint32_t group, const uint8_t *const *parts) {
    const uint64_t size = blocks_.size_bytes(group);
    const uint64_t under_way = link_->transfers.bytes(QUIRE_STORE_PUT);
    if (under_way != 0 && under_way + size > desc_.max_write_bytes) return false;
    const PrefixTree &tree = books_.journal.tree();
    NodeName *name = keys_.of_node(node);
    QUIRE_ASSERT(name != nullptr);
    const Digest &tenant = *keys_.tenant(keys_.root_of(node));
    Transfer *t = link_->transfers.take(QUIRE_STORE_PUT, size);
    if (t == nullptr) return false;
    const BlockName block{tenant, name->name, group, name->index};
    blocks_.write(block, tree.tokens(node), parts, t->bytes.data());
    spend(size);
    t->load = node;
    t->serial = tree.generation(node);
    t->entry = group;
    quire_store_request request{};
    request.kind = QUIRE_STORE_PUT;
    request.cookie = t->cookie;
    request.label = blocks_.label(block);
    request.pieces = &t->piece;
    request.piece_count = 1;
    uint32_t taken = 0;
    quire_error why{};
    why.struct_size = sizeof why;
    Status given = link_->submit(&request, 1, &taken, &why);
    if (given.ok() && taken == 1) {
        books_.told.add(node, name->name, group, request.label.key);
        return true;
    }
    books_.loads.counts.blocks_refused += given.ok() ? 0 : 1;
    if (taken == 0) {
        link_->transfers.end(t);
    } else {
        note_fault(given, &why);
    }
    return !given.ok();
}

// Takes a copy that has ended. False: the store takes no more for now.
bool CacheTier::end_landing(uint32_t slot) {
    const Landing &landing = landed_[slot];
    if (fault_.is_broken() || is_asleep_) {
        ++books_.loads.counts.blocks_dropped;
    } else if (!still_holds(landing)) {
        ++books_.loads.counts.blocks_evicted;
    } else {
        const uint8_t *parts[kMaxShards] = {};
        landings_.find_parts(slot, parts);
        if (!put(landing.node, landing.group, parts)) return false;
    }
    landings_.end(slot);
    return true;
}

void CacheTier::write() {
    for (uint32_t slot = 0; landings_.count() != 0 && slot < Landings::kMost; ++slot) {
        if (!landings_.is_used(slot) || budget_ == 0) continue;
        const Landings::State state = landings_.look(slot);
        if (state == Landings::State::unused) break;
        if (state == Landings::State::landed && !end_landing(slot)) break;
    }
    while (books_.unsaved.count() != 0 && budget_ != 0 && write_front()) spend(sizeof(NodeName));
}

}  // namespace quire
