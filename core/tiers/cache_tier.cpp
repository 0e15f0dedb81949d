// SPDX-License-Identifier: Apache-2.0

#include "core/tiers/cache_tier.hpp"

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

}  // namespace

Status CacheTier::check(const quire_cache_tier_desc &desc, const quire_store_info &store,
                        bool is_read_only) const {
    if (link_ != nullptr) return fail(QUIRE_E_BUSY, "the cache has a tier: detach that first");
    QUIRE_TRY(check_policy(desc, is_read_only));
    const Geometry &geometry = books_.geometry;
    if (!books_.has_memory)
        return fail(QUIRE_E_UNSUPPORTED, "a cache without memory has nothing to keep in a tier");
    if (books_.prefix_off) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the cache finds no prefixes (QUIRE_CACHE_NO_PREFIX), so it has no use for a "
                    "tier");
    }
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        if (geometry.groups[g].cross) {
            return fail(QUIRE_E_UNSUPPORTED,
                        "group {} is one of cross attention: a prefix says nothing of its content",
                        g);
        }
        if (books_.journal.host_pool(g) == nullptr) {
            return fail(QUIRE_E_UNSUPPORTED,
                        "the cache has no host tier, which a load goes through: set "
                        "quire_cache_desc.host_bytes");
        }
        CanonicalBlock form;
        QUIRE_TRY(
            CanonicalBlock::describe(whole_header(geometry, g, 0, geometry.block_tokens), &form));
        if (form.size_bytes() > store.max_value_bytes) {
            return fail(QUIRE_E_ARG,
                        "a block takes {} bytes, and the store takes values of at most {}",
                        form.size_bytes(), store.max_value_bytes);
        }
    }
    return Status{};
}

Status CacheTier::attach(const quire_cache_tier_desc &desc, const quire_store_info &store,
                         StoreLink *link) {
    desc_ = desc;
    if (desc_.load_timeout_ns == 0) desc_.load_timeout_ns = kLoadTimeout;
    if (desc_.load_expiry_ns == 0) desc_.load_expiry_ns = kLoadExpiry;
    if (desc_.load_timeout_ns > kLongest) desc_.load_timeout_ns = kLongest;
    if (desc_.load_expiry_ns > kLongest) desc_.load_expiry_ns = kLongest;
    if (desc_.max_load_bytes == 0) desc_.max_load_bytes = kMaxLoadBytes;
    if (desc_.max_write_bytes == 0) desc_.max_write_bytes = kMaxWriteBytes;
    if (desc_.max_told_blocks == 0) desc_.max_told_blocks = kMaxTold;
    const Geometry &geometry = books_.geometry;
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        CanonicalBlock form;
        QUIRE_TRY(
            CanonicalBlock::describe(whole_header(geometry, g, 0, geometry.block_tokens), &form));
        form_bytes_[g] = form.size_bytes();
    }
    bool ok = keys_.open(desc.fingerprint);
    ok = ok && (desc.write == QUIRE_TIER_WRITE_NONE ||
                books_.unsaved.open(desc.write == QUIRE_TIER_WRITE_THROUGH,
                                    desc.write == QUIRE_TIER_WRITE_SELECTIVE));
    ok = ok &&
         books_.loads.open(this, &books_.geometry, static_cast<uint32_t>(books_.sequences.size()),
                           desc_.load_expiry_ns);
    is_remote_ = (store.flags & QUIRE_STORE_REMOTE) != 0;
    lie_ = quire_error{};
    lie_.struct_size = sizeof lie_;
    ok = ok && books_.told.open(this, static_cast<uint32_t>(desc_.max_told_blocks),
                                is_remote_ ? QUIRE_LEVEL_REMOTE : QUIRE_LEVEL_STORE);
    if (!ok) {
        keys_.close();
        books_.unsaved.close();
        books_.loads.close();
        return no_host_memory();
    }
    link_ = link;
    books_.journal.watch_losses(desc.write == QUIRE_TIER_WRITE_BACK ? this : nullptr);
    for (Sweep &sweep : sweeps_) sweep = Sweep{};
    is_detaching_ = is_flushing_ = is_flushed_ = is_asleep_ = lied_ = cannot_copy_ = false;
    return Status{};
}

void CacheTier::note_lie(const Status &status) {
    if (lied_) return;
    lied_ = true;
    if (lie_.message[0] == '\0' && status.text != nullptr) {
        for (uint32_t i = 0; i + 1 < sizeof lie_.message && status.text[i] != '\0'; ++i)
            lie_.message[i] = status.text[i];
    }
    books_.loads.stop();
    books_.unsaved.stop();
    books_.told.close();
    for (uint32_t slot = 0; slot < Loads::kMost; ++slot) {
        Load &load = books_.loads[slot];
        if (load.handle == 0 || load.is_ready) continue;
        ++books_.loads.counts.loads_failed;
        books_.loads.fail(&load);
    }
}

Status CacheTier::check_store(quire_error *error) const {
    if (!lied_) return Status{};
    const uint32_t size = error->struct_size;
    *error = lie_;
    error->struct_size = size;
    return fail(QUIRE_E_BACKEND, nullptr);
}

void CacheTier::make_progress(uint64_t most_bytes) {
    budget_ = most_bytes;
    if (!lied_) reap();
    if (!lied_) cancel_orphans();
    if (books_.loads.count() != 0) expire();
    ask_for_loads();
    sweep();
    write();
}

void CacheTier::tell(quire_cache_tier_progress *out) const {
    for (uint32_t slot = 0; slot < Loads::kMost; ++slot) {
        const Load &load = books_.loads[slot];
        if (load.handle == 0) continue;
        ++(load.is_ready ? out->loads_ready : out->loads_running);
    }
    out->loads_ended = books_.loads.ended;
    out->blocks_queued = books_.unsaved.count() + landings_used_;
    for (uint32_t slot = 0; slot < Transfers::kMost; ++slot) {
        const Transfer &t = link_->transfers[slot];
        out->blocks_queued += t.cookie != 0 && t.kind == QUIRE_STORE_PUT ? 1 : 0;
    }
}

void CacheTier::stats(quire_cache_tier_stats *out) const {
    *out = books_.loads.counts;
    out->blocks_dropped += books_.unsaved.dropped();
}

void CacheTier::begin_detach() {
    is_detaching_ = true;
    books_.loads.stop();
    books_.loads.drop_all();
    books_.unsaved.stop();
    books_.told.close();
    if (desc_.write == QUIRE_TIER_WRITE_BACK && !is_asleep_ && !lied_) note_all_cached();
}

// A store that broke its contract may never answer: what it has stays with the link.
bool CacheTier::is_drained() {
    if (lied_) return true;
    if (books_.unsaved.count() != 0 || landings_used_ != 0) return false;
    if (!is_flushing_ && link_->transfers.count() == 0) {
        Transfer *flush = link_->transfers.take(QUIRE_STORE_FLUSH, 0);
        quire_store_request request{};
        request.kind = QUIRE_STORE_FLUSH;
        request.cookie = flush->cookie;
        uint32_t taken = 0;
        Status given = link_->submit(&request, 1, &taken, &lie_);
        is_flushing_ = given.ok() && taken == 1;
        if (taken == 0) link_->transfers.end(flush);
        if (!given.ok()) return true;  // a store without it, or one that takes no more
    }
    return is_flushed_ && link_->transfers.count() == 0;
}

void CacheTier::end_detach() {
    leave_devices();
    books_.journal.watch_losses(nullptr);
    books_.loads.close();
    books_.unsaved.close();
    keys_.close();
    link_ = nullptr;
}

// A device refused. Its queue is left at the detach, because only then a call may wait for it.
void CacheTier::stop_copying() {
    cannot_copy_ = true;
    drop_landings();
}

void CacheTier::drop_landings() {
    books_.loads.counts.blocks_dropped += landings_used_;
    landings_used_ = 0;
}

void CacheTier::leave_devices() {
    drop_landings();
    if (shores_ == nullptr) return;
    for (uint32_t i = 0; i < shores_->count; ++i) {
        Shore &shore = shores_->of[i];
        shore.queue.settle();
        if (shore.address == 0) continue;
        free_memory(*shore.device, shore.address, shores_->landing_count * shores_->stride,
                    QUIRE_BE_MEMORY_HOST);
    }
    shores_.reset();
}

void CacheTier::fall_asleep() {
    if (link_ == nullptr) return;
    is_asleep_ = true;
    books_.loads.drop_all();
    books_.loads.stop();
    books_.unsaved.stop();
    books_.told.close();
}

// The store has what a load brought: that is not written back, and a reader of events learns it,
// unless the store does not say so any more.
void CacheTier::note_used(const Load &load) {
    const Digest &tenant = *keys_.tenant(books_.sequences[load.sequence].root);
    for (uint32_t i = 0; i < load.length; ++i) {
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            const BlockTable &t = books_.journal.table(load.sequence, g);
            const uint32_t block = i < t.length ? t.ids.data[i] : kNullBlock;
            if (load.block(g, i) == kNullBlock || block == kNullBlock) continue;
            const uint32_t node = books_.journal.pool(g)[block].node;
            if (node == kNone) continue;
            if (NodeName *name = keys_.of_node(node); name != nullptr) name->groups |= 1u << g;
            if (!books_.told.is_open()) continue;
            const quire_store_label label = keys_.label(load.names[i], g, tenant);
            if (find_now(label) == QUIRE_STORE_PRESENT)
                books_.told.add(node, load.names[i], g, label.key);
        }
    }
}

// QUIRE_STORE_*.
uint8_t CacheTier::find_now(const quire_store_label &label) {
    uint8_t found = QUIRE_STORE_UNKNOWN;
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    return link_->find(&label, 1, &found, &ignored).ok() ? found : uint8_t{QUIRE_STORE_UNKNOWN};
}

bool CacheTier::name_of(uint32_t node, Digest *name) {
    const NodeName *known = keys_.of_node(node);
    if (known != nullptr) *name = known->name;
    return known != nullptr;
}

}  // namespace quire
