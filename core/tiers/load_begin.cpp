// SPDX-License-Identifier: Apache-2.0
//
// load_begin: which blocks a load brings, decided from memory alone.

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
        const uint32_t begin = i << books_.geometry.block_shift;
        NodeName *known = i < request.matched ? keys_.of_node(request.nodes[i]) : nullptr;
        previous = known != nullptr
                       ? known->name
                       : keys_.next_name(previous, books_.token_pages.at(s.tokens, begin),
                                         books_.journal.tree().extra(s.scope, begin));
        load->names[i] = previous;
    }
    return true;
}

// How many blocks from the first one on the device and the store have together in every group that
// keeps all of them. The names of these are then in the load.
uint32_t CacheTier::stored_run(const LoadRequest &request, uint32_t from, Load *load) {
    const Geometry &geometry = books_.geometry;
    const Digest &tenant = *keys_.tenant(request.s->root);
    const uint32_t first_asked = request.from_front ? 0 : request.hit;
    for (uint32_t i = from; i < request.blocks;) {
        const uint32_t end = i + kAtOnce < request.blocks ? i + kAtOnce : request.blocks;
        if (!name_blocks(request, i, end, load)) return 0;
        uint32_t whole = end;
        for (uint32_t g = 0; g < geometry.group_count; ++g) {
            if (geometry.groups[g].windowed) continue;
            quire_store_label labels[kAtOnce];
            uint8_t found[kAtOnce] = {};
            for (uint32_t k = i; k < end; ++k)
                labels[k - i] = keys_.label(load->names[k], g, tenant);
            quire_error ignored{};
            ignored.struct_size = sizeof ignored;
            if (!link_->find(labels, end - i, found, &ignored).ok()) return 0;
            for (uint32_t k = i; k < whole; ++k) {
                if (k >= first_asked && found[k - i] != QUIRE_STORE_PRESENT) whole = k;
            }
        }
        if (whole != end) return whole;
        i = end;
    }
    return request.blocks;
}

// Sums up over blocks [0, end) which of them the store has in a window group.
bool CacheTier::count_stored(uint32_t group, uint32_t end, const Load &load, const Digest &tenant) {
    if (!counts_.reserve(uint64_t{end} + 1)) return false;
    counts_.resize_within(uint64_t{end} + 1);
    counts_[0] = 0;
    for (uint32_t i = 0; i < end; ++i) {
        quire_store_label label = keys_.label(load.names[i], group, tenant);
        uint8_t found = 0;
        quire_error ignored{};
        ignored.struct_size = sizeof ignored;
        bool has = link_->find(&label, 1, &found, &ignored).ok() && found == QUIRE_STORE_PRESENT;
        counts_[i + 1] = counts_[i] + (has ? 1 : 0);
    }
    return true;
}

// True if the store has all that the group needs for a hit of `length` blocks, by counts_.
bool CacheTier::is_whole(uint32_t group, uint32_t length) const {
    const GroupGeometry &g = books_.geometry.groups[group];
    const uint32_t kept = g.kept_blocks < length ? g.kept_blocks : length;
    uint32_t first =
        g.first_visible_block(length << books_.geometry.block_shift, books_.geometry.block_tokens);
    if (first < kept) first = kept;
    return counts_[kept] == kept && counts_[length] - counts_[first] == length - first;
}

// The longest hit of at most `end` blocks for which every window is whole.
uint32_t CacheTier::best_length(const LoadRequest &request, uint32_t end, const Load &load) {
    const Digest &tenant = *keys_.tenant(request.s->root);
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        if (!books_.geometry.groups[g].windowed) continue;
        if (!count_stored(g, end, load, tenant)) return 0;
        const uint32_t before = end;
        while (end > request.hit && !is_whole(g, end)) --end;
        if (end <= request.hit) return 0;
        // A shorter hit needs other blocks of the groups before.
        if (end != before) g = UINT32_MAX;
    }
    return end;
}

bool CacheTier::take_blocks(const LoadRequest &request, Load *load) {
    const Geometry &geometry = books_.geometry;
    const uint32_t position = load->length << geometry.block_shift;
    auto is_needed = [&](uint32_t g, uint32_t i) {
        const GroupGeometry &group = geometry.groups[g];
        if (group.windowed)
            return !group.is_null(i, group.first_visible_block(position, geometry.block_tokens));
        return i >= load->first;
    };
    load->awaited = 0;
    uint32_t most[kMaxGroups] = {};
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        for (uint32_t i = 0; i < load->length; ++i) most[g] += is_needed(g, i) ? 1 : 0;
        const BlockPool &host = *books_.journal.host_pool(g);
        if (most[g] > uint64_t{host.idle_count()} + host.cached_count()) {
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
        load->awaited += needed;
    }
    if (load->awaited == 0) return false;  // windows that have passed: nothing has to be loaded
    const uint64_t entries = uint64_t{geometry.group_count} * load->length;
    if (!load->blocks.reserve(entries) || !load->tokens.reserve(position)) return false;
    load->blocks.resize_within(entries);
    load->tokens.resize_within(position);
    quire_token *to = load->tokens.data();
    books_.token_pages.each_page(request.s->tokens, position,
                                 [&](const uint32_t *tokens, uint32_t count) {
                                     std::memcpy(to, tokens, uint64_t{count} * sizeof *to);
                                     to += count;
                                 });
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        for (uint32_t i = 0; i < load->length; ++i) {
            load->blocks[uint64_t{g} * load->stride + i] =
                is_needed(g, i) ? books_.journal.take_idle_host(g) : kNullBlock;
        }
    }
    return true;
}

// True if a hit of `length` blocks is worth a load where `found` blocks need none.
bool CacheTier::is_enough(uint32_t length, uint32_t found) const {
    return length > found &&
           (length - found) << books_.geometry.block_shift >= desc_.min_load_tokens;
}

bool CacheTier::begin_load(const LoadRequest &request, Load *load) {
    if (lied_ || keys_.tenant(request.s->root) == nullptr) return false;
    const bool all = books_.geometry.any_window || request.from_front;
    const uint32_t from = all ? 0 : request.hit;
    if (request.blocks <= request.hit) return false;
    uint32_t length = stored_run(request, from, load);
    if (length > request.hit && books_.geometry.any_window)
        length = best_length(request, length, *load);
    if (!is_enough(length, request.hit)) return false;
    load->length = load->stride = length;
    load->found = request.hit;
    load->first = request.from_front ? 0 : request.hit;
    load->next = 0;
    load->names.shrink(length);
    if (!take_blocks(request, load)) return false;
    load->deadline_ns = now_ns() + desc_.load_timeout_ns;
    return true;
}

}  // namespace quire
