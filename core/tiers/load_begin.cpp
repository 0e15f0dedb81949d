// SPDX-License-Identifier: Apache-2.0
//
// load_begin: which blocks a load brings, as far as the store knows from memory.

#include "core/tiers/cache_tier.hpp"

namespace quire {

// Names the request's blocks [from, end), and as many before them as that needs.
bool CacheTier::name_blocks(const LoadRequest &request, uint32_t from, uint32_t end, Load *load) {
    const Sequence &s = *request.s;
    Digest previous;
    if (from == 0) {
        previous = keys_.root_name(s.root);
    } else if (load->names.size() >= from && from > request.hit) {
        previous = load->names[from - 1];
    } else {
        NodeName *before = keys_.of_node(request.nodes[from - 1]);
        if (before == nullptr) return false;
        previous = before->name;
    }
    if (!load->names.reserve(end)) return false;
    load->names.resize_within(end);
    for (uint32_t i = from; i < end; ++i) {
        const uint32_t begin = books_.geometry.span.first_token(i);
        NodeName *known = i < request.matched ? keys_.of_node(request.nodes[i]) : nullptr;
        previous = known != nullptr
                       ? known->name
                       : keys_.next_name(previous, books_.token_pages.at(s.tokens, begin),
                                         books_.journal.tree().extra(s.scope, begin));
        load->names[i] = previous;
    }
    return true;
}

// Finds out what the store's memory knows of the group's blocks [from, end).
bool CacheTier::look_up(uint32_t group, uint32_t from, uint32_t end, const Digest &tenant,
                        Load *load) {
    if (!blocks_.holds(group)) {  // followers say what there is
        std::memset(load->found_in_store.data() + uint64_t{group} * load->stride + from,
                    QUIRE_STORE_PRESENT, end - from);
        return true;
    }
    for (uint32_t i = from; i < end; i += kAtOnce) {
        const uint32_t count = end - i < kAtOnce ? end - i : kAtOnce;
        quire_store_label labels[kAtOnce];
        for (uint32_t k = 0; k < count; ++k)
            labels[k] = blocks_.label(load->names[i + k], group, tenant);
        uint8_t *found = load->found_in_store.data() + uint64_t{group} * load->stride + i;
        std::memset(found, QUIRE_STORE_ABSENT, count);
        quire_error ignored{};
        ignored.struct_size = sizeof ignored;
        if (!link_->find(labels, count, found, &ignored).ok()) return false;
        for (uint32_t k = 0; k < count; ++k) {
            if (found[k] > QUIRE_STORE_UNKNOWN) found[k] = QUIRE_STORE_ABSENT;
            if (found[k] == QUIRE_STORE_ABSENT) books_.told.remove(labels[k].key);
        }
    }
    return true;
}

// How many blocks from the first one on the device and the store may have together in every group
// that keeps all of them. The names of these are then in the load.
uint32_t CacheTier::stored_run(const LoadRequest &request, uint32_t from, Load *load) {
    const Geometry &geometry = books_.geometry;
    const Digest &tenant = *keys_.tenant(request.s->root);
    for (uint32_t i = from; i < request.blocks;) {
        const uint32_t end = i + kAtOnce < request.blocks ? i + kAtOnce : request.blocks;
        if (!name_blocks(request, i, end, load)) return 0;
        uint32_t whole = end;
        for (uint32_t g = 0; g < geometry.group_count; ++g) {
            if (geometry.groups[g].windowed) continue;
            if (!look_up(g, i, end, tenant, load)) return 0;
            for (uint32_t k = i > load->first ? i : load->first; k < whole; ++k)
                if (load->known(g, k) == QUIRE_STORE_ABSENT) whole = k;
        }
        if (whole != end) return whole;
        i = end;
    }
    return request.blocks;
}

// Sums up over blocks [0, end) which of them the store has in a window group.
bool CacheTier::count_stored(uint32_t group, uint32_t end, const Load &load) {
    if (!counts_.reserve(uint64_t{end} + 1)) return false;
    counts_.resize_within(uint64_t{end} + 1);
    counts_[0] = 0;
    for (uint32_t i = 0; i < end; ++i)
        counts_[i + 1] = counts_[i] + (load.known(group, i) == QUIRE_STORE_PRESENT ? 1 : 0);
    return true;
}

// True if the store has all that the group needs for a hit of `length` blocks, by counts_.
bool CacheTier::is_whole(uint32_t group, uint32_t length) const {
    const GroupGeometry &g = books_.geometry.groups[group];
    const uint32_t kept = g.kept_blocks < length ? g.kept_blocks : length;
    uint32_t first = g.first_visible_block(books_.geometry.span.first_token(length));
    if (first < kept) first = kept;
    return counts_[kept] == kept && counts_[length] - counts_[first] == length - first;
}

// The longest hit of the load for which every window is whole.
uint32_t CacheTier::best_length(const Load &load) {
    uint32_t end = load.length;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        if (!books_.geometry.groups[g].windowed) continue;
        if (!count_stored(g, end, load)) return 0;
        const uint32_t before = end;
        while (end > load.found && !is_whole(g, end)) --end;
        if (end <= load.found) return 0;
        // A shorter hit needs other blocks of the groups before.
        if (end != before) g = UINT32_MAX;
    }
    return end;
}

// Keeps the tokens of the load's blocks, which an item is compared with.
bool CacheTier::keep_tokens(const Sequence &s, Load *load) {
    const uint32_t position = books_.geometry.span.first_token(load->length);
    if (!load->tokens.reserve(position)) return false;
    load->tokens.resize_within(position);
    quire_token *to = load->tokens.data();
    books_.token_pages.each_page(s.tokens, position, [&](const uint32_t *tokens, uint32_t count) {
        std::memcpy(to, tokens, uint64_t{count} * sizeof *to);
        to += count;
    });
    return true;
}

// Takes host blocks for a load of `length` blocks, all of which the store has.
bool CacheTier::take_blocks(uint32_t length, Load *load) {
    const Geometry &geometry = books_.geometry;
    const uint32_t position = geometry.span.first_token(length);
    auto is_needed = [&](uint32_t g, uint32_t i) {
        const GroupGeometry &group = geometry.groups[g];
        if (group.windowed) return !group.is_null(i, group.first_visible_block(position));
        return i >= load->first;
    };
    load->awaited = load->next = 0;
    uint64_t blocks = 0;
    uint32_t most[kMaxGroups] = {};
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        for (uint32_t i = 0; i < length; ++i) most[g] += is_needed(g, i) ? 1 : 0;
        const BlockPool *host = books_.journal.host_pool(g);
        // A migration may have left no host tier since the store was asked.
        if (host == nullptr || most[g] > uint64_t{host->idle_count()} + host->cached_count()) {
            ++books_.loads.counts.loads_short;
            return false;
        }
    }
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const uint32_t needed = most[g];
        books_.journal.make_idle_host(g, needed);  // cached blocks give way
        if (needed > books_.journal.host_pool(g)->idle_count()) {
            ++books_.loads.counts.loads_short;
            return false;
        }
        blocks += needed;
        load->awaited += blocks_.holds(g) ? needed : 0;
    }
    if (blocks == 0) return false;  // windows that have passed: nothing has to be loaded
    const uint64_t entries = uint64_t{geometry.group_count} * length;
    if (!load->blocks.reserve(entries)) return false;
    load->length = load->stride = length;
    load->names.shrink(length);
    load->tokens.shrink(position);
    load->found_in_store.shrink(0);
    load->blocks.resize_within(entries);
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        for (uint32_t i = 0; i < length; ++i) {
            load->blocks[uint64_t{g} * length + i] =
                is_needed(g, i) ? books_.loads.take_block(g) : kNullBlock;
        }
    }
    load->unreported = desc_.followers;
    load->awaited += desc_.followers;
    return true;
}

// True if a hit of `length` blocks is worth a load where `found` blocks need none.
bool CacheTier::is_enough(uint32_t length, uint32_t found) const {
    return length > found &&
           books_.geometry.span.first_token(length - found) >= desc_.min_load_tokens;
}

bool CacheTier::begin_load(const LoadRequest &request, Load *load) {
    const Geometry &geometry = books_.geometry;
    if (fault_.is_broken() || keys_.tenant(request.s->root) == nullptr) return false;
    if (books_.journal.host_pool(0) == nullptr) return false;  // a migration left no host tier
    if (request.blocks <= request.hit || request.blocks > UINT32_MAX / geometry.group_count)
        return false;
    const uint64_t entries = uint64_t{geometry.group_count} * request.blocks;
    if (!load->found_in_store.reserve(entries)) return false;
    load->found_in_store.resize_within(entries);
    load->stride = request.blocks;
    load->found = request.hit;
    load->first = request.from_front ? 0 : request.hit;
    load->next = load->awaited = 0;
    const bool all = geometry.any_window || request.from_front;
    load->length = stored_run(request, all ? 0 : request.hit, load);
    if (!is_enough(load->length, load->found)) return false;
    load->names.shrink(load->length);
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        if (!geometry.groups[g].windowed) continue;
        if (!look_up(g, 0, load->length, *keys_.tenant(request.s->root), load)) return false;
    }
    if (!keep_tokens(*request.s, load)) return false;
    load->tenant = *keys_.tenant(request.s->root);
    load->deadline_ns = now_ns() + desc_.load_timeout_ns;
    load->is_asking = has_to_ask(load);
    if (load->is_asking) return true;
    const uint32_t length = best_length(*load);
    return is_enough(length, load->found) && take_blocks(length, load);
}

}  // namespace quire
