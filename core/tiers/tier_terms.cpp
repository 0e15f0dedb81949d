// SPDX-License-Identifier: Apache-2.0

#include "core/tiers/tier_terms.hpp"

namespace quire {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kLoadTimeout = 2 * kSecond;
constexpr uint64_t kLoadExpiry = 10 * kSecond;
constexpr uint64_t kLongest = UINT64_MAX / 2;  // can be added to any time
constexpr uint64_t kMaxLoadBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxWriteBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxTold = 65'536, kMostTold = uint64_t{1} << 26;

Status check_policy(const quire_cache_tier_desc &desc, bool is_read_only) {
    if (desc.write > QUIRE_TIER_WRITE_BACK)
        return fail(QUIRE_E_ARG, "desc.write {} is not known", desc.write);
    if (is_read_only && desc.write != QUIRE_TIER_WRITE_NONE) {
        return fail(QUIRE_E_ARG,
                    "the store is open READ_ONLY: desc.write must be QUIRE_TIER_WRITE_NONE");
    }
    if (desc.max_told_blocks > kMostTold) {
        return fail(QUIRE_E_ARG, "desc.max_told_blocks is {}: at most {}", desc.max_told_blocks,
                    kMostTold);
    }
    return Status{};
}

void set_default(uint64_t *number, uint64_t value) {
    if (*number == 0) *number = value;
}

}  // namespace

Status check_terms(const CacheBooks &books, const StoredBlocks &blocks,
                   const quire_cache_tier_desc &desc, const quire_store_info &store,
                   bool is_read_only) {
    QUIRE_TRY(check_policy(desc, is_read_only));
    if (!books.has_memory)
        return fail(QUIRE_E_UNSUPPORTED, "a cache without memory has nothing to keep in a tier");
    if (books.prefix_off) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the cache finds no prefixes (QUIRE_CACHE_NO_PREFIX), so it has no use for a "
                    "tier");
    }
    for (uint32_t g = 0; g < books.geometry.group_count; ++g) {
        if (books.geometry.groups[g].cross) {
            return fail(QUIRE_E_UNSUPPORTED,
                        "group {} is one of cross attention: a prefix says nothing of its content",
                        g);
        }
        if (books.journal.host_pool(g) == nullptr) {
            return fail(QUIRE_E_UNSUPPORTED,
                        "the cache has no host tier, which a load goes through: set "
                        "quire_cache_desc.host_bytes");
        }
    }
    return blocks.check(store.max_value_bytes);
}

quire_cache_tier_desc with_defaults(const quire_cache_tier_desc &desc) {
    quire_cache_tier_desc full = desc;
    set_default(&full.load_timeout_ns, kLoadTimeout);
    set_default(&full.load_expiry_ns, kLoadExpiry);
    if (full.load_timeout_ns > kLongest) full.load_timeout_ns = kLongest;
    if (full.load_expiry_ns > kLongest) full.load_expiry_ns = kLongest;
    set_default(&full.max_load_bytes, kMaxLoadBytes);
    set_default(&full.max_write_bytes, kMaxWriteBytes);
    set_default(&full.max_told_blocks, kMaxTold);
    return full;
}

}  // namespace quire
