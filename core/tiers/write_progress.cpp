// SPDX-License-Identifier: Apache-2.0
//
// write_progress: copies cached blocks to the host and gives them to the store.

#include "core/tiers/cache_tier.hpp"

namespace quire {

// Queues and host memory on the devices that the cache is on.
bool CacheTier::create_shores() {
    if (cannot_copy_) return false;
    if (shores_ != nullptr) return true;
    shores_.reset(new (std::nothrow) Shores);
    if (shores_ == nullptr) return false;
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            if (!books_.shards[i].holds(g)) continue;
            const auto stride = static_cast<uint64_t>(books_.shards[i].pool(g).block_stride);
            if (stride > shores_->stride) shores_->stride = stride;
        }
    }
    const uint64_t fit = kLandingBytes / shores_->stride;
    shores_->landing_count = fit < kFewestLandings ? kFewestLandings
                             : fit > kMostLandings ? kMostLandings
                                                   : static_cast<uint32_t>(fit);
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        Shore &shore = shores_->of[i];
        shore.device = books_.shards[i].device();
        ++shores_->count;
        void *pointer = nullptr;
        Status made = shore.queue.create(shore.device, &ignored);
        if (made.ok()) {
            made = allocate_memory(*shore.device, shores_->landing_count * shores_->stride,
                                   QUIRE_BE_MEMORY_HOST, &shore.address, &pointer, &ignored);
        }
        if (!made.ok()) {
            stop_copying();
            return false;
        }
        shore.bytes = static_cast<uint8_t *>(pointer);
    }
    return true;
}

// Begins to write the node's block of a group. False: not now.
bool CacheTier::write_block(uint32_t node, NodeName *name, uint32_t group) {
    quire_cache_tier_stats &counts = books_.loads.counts;
    const uint32_t named = books_.journal.tree().blocks(node)[group];
    const bool is_host = is_on_host(named);
    const Block &block = is_host ? (*books_.journal.host_pool(group))[number_of(named)]
                                 : books_.journal.pool(group)[named];
    if (!books_.timeline.done(block.ready)) {
        if (!is_detaching_) return false;
        ++counts.blocks_dropped;
        return true;
    }
    quire_store_label label = keys_.label(name->name, group, *keys_.tenant(keys_.root_of(node)));
    // A value that other processes may have removed is put again; the store looks for it first.
    if (!is_remote_ && find_now(label) == QUIRE_STORE_PRESENT) {
        ++counts.blocks_known;
        name->groups |= 1u << group;
        books_.told.add(node, name->name, group, label.key);
        return true;
    }
    return is_host ? write_host_block(node, name, group) : begin_landing(node, name, group);
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
    quire_cache_tier_stats &counts = books_.loads.counts;
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    if (!create_shores()) {
        ++counts.blocks_dropped;
        name->groups |= 1u << group;
        return true;
    }
    if (landings_used_ == shores_->landing_count) return false;
    uint32_t at = 0;
    while (shores_->landings[at].is_used) ++at;
    Landing &landing = shores_->landings[at];
    landing = Landing{};
    for (uint32_t i = 0; i < shores_->count; ++i) {
        const Binding &binding = books_.shards[i];
        if (!binding.holds(group)) continue;
        quire_be_copy copy{};
        copy.dst = shores_->of[i].address + at * shores_->stride;
        copy.src = binding.block_address(group, block);
        copy.size_bytes = static_cast<uint64_t>(binding.pool(group).block_stride);
        copy.kind = QUIRE_BE_COPY_D2H;
        Status copied = shores_->of[i].queue.copy(&copy, 1, &ignored);
        if (copied.ok()) copied = shores_->of[i].queue.mark(&landing.reached[i], &ignored);
        if (!copied.ok()) {
            ++counts.blocks_dropped;
            stop_copying();
            return true;
        }
    }
    landing.is_used = true;
    landing.group = group;
    landing.node = node;
    landing.block = block;
    landing.generation = books_.journal.tree().generation(node);
    landing.ready = books_.journal.pool(group)[block].ready;
    ++landings_used_;
    name->groups |= 1u << group;
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
    } else if (is_asleep_ || lied_) {
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

// *has_failed: a device did, and all landings are gone.
bool CacheTier::has_landed(const Landing &landing, bool *has_failed) {
    for (uint32_t i = 0; i < shores_->count; ++i) {
        bool reached = false;
        quire_error ignored{};
        ignored.struct_size = sizeof ignored;
        if (!shores_->of[i].queue.look(landing.reached[i], &reached, &ignored).ok()) {
            stop_copying();
            *has_failed = true;
            return false;
        }
        if (!reached) return false;
    }
    return true;
}

// True if the block has been what it is now since before it was copied. Whoever writes to a block
// takes it out of the tree first, and a block that comes back has another `ready`.
bool CacheTier::still_holds(const Landing &landing) const {
    const PrefixTree &tree = books_.journal.tree();
    if (tree.generation(landing.node) != landing.generation || !tree.in_use(landing.node))
        return false;
    if (tree.blocks(landing.node)[landing.group] != landing.block) return false;
    const Block &b = books_.journal.pool(landing.group)[landing.block];
    return b.node == landing.node && b.ready == landing.ready;
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
    const uint64_t size = form_bytes_[group];
    const uint64_t under_way = link_->transfers.bytes(QUIRE_STORE_PUT);
    if (under_way != 0 && under_way + size > desc_.max_write_bytes) return false;
    const PrefixTree &tree = books_.journal.tree();
    NodeName *name = keys_.of_node(node);
    QUIRE_ASSERT(name != nullptr);
    const Digest &tenant = *keys_.tenant(keys_.root_of(node));
    CanonicalHeader header =
        whole_header(books_.geometry, group, name->index, books_.geometry.block_tokens);
    std::memcpy(header.namespace_digest, tenant.bytes, sizeof header.namespace_digest);
    std::memcpy(header.content_digest, name->name.bytes, sizeof header.content_digest);
    CanonicalBlock form;
    Transfer *t = link_->transfers.take(QUIRE_STORE_PUT, size);
    if (t == nullptr) return false;
    Status described = CanonicalBlock::describe(header, &form);
    QUIRE_ASSERT(described.ok() && form.size_bytes() == size);
    form.begin(tree.tokens(node), t->bytes.data());
    for (uint32_t i = 0; i < books_.shards.count(); ++i) {
        if (books_.shards[i].holds(group))
            gather(books_.shards[i], form, parts[i], t->bytes.data());
    }
    write_scales(books_.scales, form, t->bytes.data());
    form.seal(t->bytes.data());
    spend(size);
    t->load = node;
    t->serial = tree.generation(node);
    t->entry = group;
    quire_store_request request{};
    request.kind = QUIRE_STORE_PUT;
    request.cookie = t->cookie;
    request.label = keys_.label(name->name, group, tenant);
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
        lie_ = why;
        note_lie(given);
    }
    return !given.ok();
}

bool CacheTier::put_landing(const Landing &landing, uint32_t at) {
    const uint8_t *parts[kMaxShards] = {};
    for (uint32_t i = 0; i < shores_->count; ++i)
        parts[i] = shores_->of[i].bytes + at * shores_->stride;
    return put(landing.node, landing.group, parts);
}

void CacheTier::write() {
    for (uint32_t at = 0; landings_used_ != 0 && at < shores_->landing_count; ++at) {
        Landing &landing = shores_->landings[at];
        if (!landing.is_used || budget_ == 0) continue;
        bool has_failed = false;
        if (!has_landed(landing, &has_failed)) {
            if (has_failed) break;
            continue;
        }
        if (lied_ || is_asleep_) {
            ++books_.loads.counts.blocks_dropped;
        } else if (!still_holds(landing)) {
            ++books_.loads.counts.blocks_evicted;
        } else if (!put_landing(landing, at)) {
            break;
        }
        landing.is_used = false;
        --landings_used_;
    }
    while (books_.unsaved.count() != 0 && budget_ != 0 && write_front()) spend(sizeof(NodeName));
}

}  // namespace quire
