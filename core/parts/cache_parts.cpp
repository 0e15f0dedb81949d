// SPDX-License-Identifier: Apache-2.0

#include "core/parts/cache_parts.hpp"

namespace quire {

namespace {

constexpr uint32_t kDefaultSequences = 1024;
constexpr uint32_t kMaxSequences = 1u << 24;

Status check_calibrating(const Geometry &geometry, bool has_memory) {
    if (!has_memory) {
        return fail(QUIRE_E_ARG,
                    "flags: QUIRE_CACHE_CALIBRATE needs a device; a cache without memory writes no "
                    "K and V");
    }
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const GroupGeometry &group = geometry.groups[g];
        if (group.k_scale == QUIRE_SCALE_NONE && group.v_scale == QUIRE_SCALE_NONE) continue;
        return fail(QUIRE_E_ARG,
                    "flags: QUIRE_CACHE_CALIBRATE, but groups[{}] holds codes: calibrate with f32, "
                    "f16 or bf16",
                    g);
    }
    return Status{};
}

Status check_host_prefixes(const quire_cache_desc &desc) {
    if (desc.host_bytes == 0 && desc.host_blocks == 0) {
        return fail(QUIRE_E_ARG,
                    "flags: QUIRE_CACHE_HOST_PREFIXES needs a host tier: give host_bytes, or "
                    "host_blocks to a cache without memory");
    }
    if ((desc.flags & QUIRE_CACHE_NO_PREFIX) != 0) {
        return fail(
            QUIRE_E_ARG,
            "flags: QUIRE_CACHE_HOST_PREFIXES, but QUIRE_CACHE_NO_PREFIX publishes nothing");
    }
    if ((desc.flags & QUIRE_CACHE_FOLLOWER) != 0) {
        return fail(QUIRE_E_ARG,
                    "flags: a follower copies blocks as its leader's log says; set "
                    "QUIRE_CACHE_HOST_PREFIXES on the leader");
    }
    return Status{};
}

// Evicted blocks of a pool of several groups would need a host tier that knows all of them.
Status check_one_pool(const quire_cache_desc &desc) {
    if (desc.shard_count != 0) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "flags: QUIRE_CACHE_ONE_POOL is for caches without memory: groups with memory "
                    "have blocks of different sizes");
    }
    if (desc.pool_bytes != 0) {
        return fail(QUIRE_E_ARG,
                    "pool_bytes is {}: the blocks of QUIRE_CACHE_ONE_POOL have no size of their "
                    "own, so give blocks",
                    desc.pool_bytes);
    }
    if ((desc.flags & QUIRE_CACHE_HOST_PREFIXES) != 0) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "flags: QUIRE_CACHE_ONE_POOL is not built together with "
                    "QUIRE_CACHE_HOST_PREFIXES");
    }
    return Status{};
}

Status check_leases_only(const quire_cache_desc &desc, const Geometry &geometry) {
    constexpr uint32_t served = QUIRE_CACHE_LEASES_ONLY | QUIRE_CACHE_FIXED_HASH | QUIRE_CACHE_LOG |
                                QUIRE_CACHE_ZERO_ON_FREE | QUIRE_CACHE_AUDIT;
    if ((desc.flags & ~served) != 0) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "flags: QUIRE_CACHE_LEASES_ONLY goes together with QUIRE_CACHE_FIXED_HASH, "
                    "QUIRE_CACHE_LOG, QUIRE_CACHE_ZERO_ON_FREE and QUIRE_CACHE_AUDIT alone");
    }
    if (geometry.group_count != 1 || !geometry.any_full) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "flags: QUIRE_CACHE_LEASES_ONLY needs one group, with full attention");
    }
    if (desc.host_blocks == 0 && desc.host_bytes == 0) return Status{};
    return fail(QUIRE_E_UNSUPPORTED,
                "flags: QUIRE_CACHE_LEASES_ONLY, but a host tier is for sequences");
}

// Refuses flags that need one block per group and place: groups with sizes of their own lack that.
Status check_block_sizes(const quire_cache_desc &desc) {
    if ((desc.flags & QUIRE_CACHE_HOST_PREFIXES) == 0) return Status{};
    return fail(QUIRE_E_UNSUPPORTED,
                "flags: QUIRE_CACHE_HOST_PREFIXES is not built for groups with block_tokens of "
                "their own");
}

Status check_partial_hits(const quire_cache_desc &desc, const Geometry &geometry) {
    if ((desc.flags & QUIRE_CACHE_NO_PREFIX) != 0) {
        return fail(QUIRE_E_ARG,
                    "flags: QUIRE_CACHE_PARTIAL_HITS, but QUIRE_CACHE_NO_PREFIX publishes nothing");
    }
    if ((desc.flags & QUIRE_CACHE_FOLLOWER) != 0) {
        return fail(QUIRE_E_ARG,
                    "flags: a follower finds nothing; set QUIRE_CACHE_PARTIAL_HITS on the leader");
    }
    if (geometry.any_recurrent) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "flags: QUIRE_CACHE_PARTIAL_HITS, but a group is recurrent: a state stands for "
                    "one place, not for those before it");
    }
    if (!geometry.uniform) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "flags: QUIRE_CACHE_PARTIAL_HITS is not built for groups with block_tokens of "
                    "their own");
    }
    return Status{};
}

Status check_desc(const quire_cache_desc &desc) {
    constexpr uint32_t both = QUIRE_CACHE_LOG | QUIRE_CACHE_FOLLOWER;
    if ((desc.flags & both) == both) {
        return fail(QUIRE_E_ARG, "flags: a cache leads or follows, not both");
    }
    if ((desc.flags & QUIRE_CACHE_FOLLOWER) != 0 && (desc.flags & QUIRE_CACHE_ZERO_ON_FREE) != 0) {
        return fail(QUIRE_E_ARG,
                    "flags: a follower zeroes blocks as its leader's log says; set "
                    "QUIRE_CACHE_ZERO_ON_FREE on the leader");
    }
    if ((desc.flags & QUIRE_CACHE_FOLLOWER) != 0 && (desc.flags & QUIRE_CACHE_AUDIT) != 0) {
        return fail(
            QUIRE_E_ARG,
            "flags: a follower makes no decisions to audit; set QUIRE_CACHE_AUDIT on the leader");
    }
    if ((desc.flags & QUIRE_CACHE_FOLLOWER) != 0 && (desc.flags & QUIRE_CACHE_EVENTS) != 0) {
        return fail(QUIRE_E_ARG,
                    "flags: a follower finds nothing, so it has no events; set "
                    "QUIRE_CACHE_EVENTS on the leader");
    }
    if ((desc.flags & QUIRE_CACHE_EVENT_TOKENS) != 0 && (desc.flags & QUIRE_CACHE_EVENTS) == 0) {
        return fail(QUIRE_E_ARG, "flags: QUIRE_CACHE_EVENT_TOKENS needs QUIRE_CACHE_EVENTS");
    }
    if (desc.eviction != QUIRE_EVICT_LRU) {
        return fail(QUIRE_E_UNSUPPORTED, "eviction {} is not known", desc.eviction);
    }
    if (desc.victim != QUIRE_VICTIM_NEWEST && desc.victim != QUIRE_VICTIM_PRIORITY) {
        return fail(QUIRE_E_UNSUPPORTED, "victim {} is not known", desc.victim);
    }
    if ((desc.flags & QUIRE_CACHE_HOST_PREFIXES) != 0) QUIRE_TRY(check_host_prefixes(desc));
    if ((desc.flags & QUIRE_CACHE_ONE_POOL) != 0) QUIRE_TRY(check_one_pool(desc));
    if (desc.shard_count == 0 && (desc.host_bytes != 0 || desc.pool_fraction != 0)) {
        return fail(QUIRE_E_ARG,
                    "host_bytes and pool_fraction need a device: give counts of blocks");
    }
    return Status{};
}

}  // namespace

// The pools come before the books: a size that the device cannot hold is refused first.
Status CacheParts::create_memory(const quire_cache_desc &desc, const ShardRange *shards,
                                 quire_error *error) {
    Geometry &geometry = books.geometry;
    if (!books.places.create(geometry.layer_count)) return no_host_memory();
    LayerInGroup *places = books.places.data();
    QUIRE_TRY(place_layers(desc.layer_groups, geometry, places));
    books.has_memory = desc.shard_count != 0;
    books.calibrates = (desc.flags & QUIRE_CACHE_CALIBRATE) != 0;
    if (books.calibrates) QUIRE_TRY(check_calibrating(geometry, books.has_memory));
    QUIRE_TRY(books.scales.create(desc, geometry, places));
    QUIRE_TRY(books.shards.divide(desc, shards, desc.shard_count, places, &geometry));
    QUIRE_TRY(books.shards.create(books.scales, books.calibrates, error));
    books.can_move = books.shards.can_move();
    return Status{};
}

Status CacheParts::create_ranks(const quire_cache_desc &desc, const CacheSeeds &seeds,
                                uint32_t max_sequences) {
    identity = seeds.identity;
    uint64_t digest =
        digest_geometry(books.geometry, books.places.data(), max_sequences, books.scales.numbers());
    if ((desc.flags & QUIRE_CACHE_FOLLOWER) != 0) {
        QUIRE_TRY(follower.create(digest, max_sequences));
    }
    if ((desc.flags & QUIRE_CACHE_LOG) == 0) return Status{};
    return log_writer.create(seeds.identity, digest, max_sequences);
}

Status CacheParts::create(const quire_cache_desc &desc, const quire_group_desc *groups,
                          const ShardRange *shards, const CacheSeeds &seeds, quire_error *error) {
    QUIRE_TRY(compute_shape(desc, groups, &books.geometry));
    QUIRE_TRY(check_desc(desc));
    if (!books.geometry.uniform) QUIRE_TRY(check_block_sizes(desc));
    const bool leases_only = (desc.flags & QUIRE_CACHE_LEASES_ONLY) != 0;
    if (leases_only) QUIRE_TRY(check_leases_only(desc, books.geometry));
    if (books.geometry.partial_hits) QUIRE_TRY(check_partial_hits(desc, books.geometry));
    books.token_pages.set_span(books.geometry.span);
    uint32_t max_sequences = desc.max_sequences != 0 ? desc.max_sequences : kDefaultSequences;
    if (max_sequences > kMaxSequences) {
        return fail(QUIRE_E_LIMIT, "max_sequences is {}: at most {}", max_sequences, kMaxSequences);
    }
    QUIRE_TRY(create_memory(desc, shards, error));
    bool keeps_on_host = (desc.flags & QUIRE_CACHE_HOST_PREFIXES) != 0;
    if (keeps_on_host && !books.geometry.any_full) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "flags: QUIRE_CACHE_HOST_PREFIXES needs a group with full attention");
    }
    if (keeps_on_host && books.geometry.groups[0].host_blocks == 0) {
        return fail(QUIRE_E_ARG,
                    "flags: QUIRE_CACHE_HOST_PREFIXES, but host_bytes has no room for a block");
    }
    QUIRE_TRY(books.journal.create(books.geometry,
                                   {.max_sequences = max_sequences,
                                    .seed = seeds.hash,
                                    .has_tree = (desc.flags & QUIRE_CACHE_FOLLOWER) == 0,
                                    .scrubs = (desc.flags & QUIRE_CACHE_ZERO_ON_FREE) != 0,
                                    .keeps_on_host = keeps_on_host,
                                    .leases_only = leases_only}));
    QUIRE_TRY(create_ranks(desc, seeds, max_sequences));
    g_sequence_numbers.start_at(seeds.handles);
    bool ok = books.handles.create(max_sequences) && books.sequences.create(max_sequences) &&
              prefixes.create(max_sequences) && tenants.create(desc.key_bytes);
    if (!ok) return no_host_memory();
    for (Sequence &s : books.sequences) s = Sequence{};
    if ((desc.flags & QUIRE_CACHE_EVENT_TOKENS) != 0)
        books.namespaces.give_tokens(Namespaces::kDefault);
    if ((desc.flags & QUIRE_CACHE_EVENTS) != 0) QUIRE_TRY(announcer.create());
    books.prefix_off = (desc.flags & QUIRE_CACHE_NO_PREFIX) != 0;
    books.audits = (desc.flags & QUIRE_CACHE_AUDIT) != 0;
    needs.create(desc);
    preemption.create(desc);
    return Status{};
}

}  // namespace quire
