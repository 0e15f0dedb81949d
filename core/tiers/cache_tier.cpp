// SPDX-License-Identifier: Apache-2.0

#include "core/tiers/cache_tier.hpp"

#include "core/tiers/tier_terms.hpp"

namespace quire {

Status CacheTier::check(const quire_cache_tier_desc &desc, const quire_store_info &store,
                        bool is_read_only) const {
    if (link_ != nullptr) return fail(QUIRE_E_BUSY, "the cache has a tier: detach that first");
    return check_terms(books_, blocks_, desc, store, is_read_only);
}

Status CacheTier::attach(const quire_cache_tier_desc &desc, const quire_store_info &store,
                         StoreLink *link) {
    desc_ = with_defaults(desc);
    blocks_.open(desc.fingerprint);
    bool ok = keys_.open(desc.fingerprint);
    ok = ok && (desc.write == QUIRE_TIER_WRITE_NONE ||
                books_.unsaved.open(desc.write == QUIRE_TIER_WRITE_THROUGH,
                                    desc.write == QUIRE_TIER_WRITE_SELECTIVE));
    ok = ok &&
         books_.loads.open(this, &books_.geometry, static_cast<uint32_t>(books_.sequences.size()),
                           desc_.load_expiry_ns);
    is_remote_ = (store.flags & QUIRE_STORE_REMOTE) != 0;
    fault_.clear();
    flush_.clear();
    landings_.open();
    ok = ok && books_.told.open(this, static_cast<uint32_t>(desc_.max_told_blocks),
                                is_remote_ ? QUIRE_LEVEL_REMOTE : QUIRE_LEVEL_STORE);
    if (!ok) {
        keys_.close();
        books_.unsaved.close();
        books_.loads.close();
        return no_host_memory();
    }
    link_ = link;
    books_.write_orders.open(desc_.followers != 0 && desc_.write != QUIRE_TIER_WRITE_NONE);
    books_.journal.watch_losses(desc.write == QUIRE_TIER_WRITE_BACK ? this : nullptr);
    for (Sweep &sweep : sweeps_) sweep = Sweep{};
    is_detaching_ = is_asleep_ = false;
    return Status{};
}

void CacheTier::note_fault(const Status &status, const quire_error *words) {
    if (!fault_.note(status, words)) return;
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

void CacheTier::make_progress(uint64_t most_bytes) {
    budget_ = most_bytes;
    if (!fault_.is_broken()) reap();
    if (!fault_.is_broken()) cancel_orphans();
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
    out->blocks_queued = books_.unsaved.count() + landings_.count();
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
    if (desc_.write == QUIRE_TIER_WRITE_BACK && !is_asleep_ && !fault_.is_broken())
        note_all_cached();
}

bool CacheTier::is_drained() {
    if (fault_.is_broken()) return true;
    if (books_.unsaved.count() != 0 || landings_.count() != 0) return false;
    return flush_.is_over(link_, fault_.words());
}

void CacheTier::end_detach() {
    leave_devices();
    books_.journal.watch_losses(nullptr);
    books_.loads.close();
    books_.unsaved.close();
    books_.write_orders.close();
    keys_.close();
    link_ = nullptr;
}

void CacheTier::fall_asleep() {
    if (link_ == nullptr) return;
    is_asleep_ = true;
    books_.loads.drop_all();
    books_.loads.stop();
    books_.unsaved.stop();
    books_.write_orders.close();
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
            const quire_store_label label = blocks_.label(load.names[i], g, tenant);
            if (!blocks_.holds(g) || find_now(label) == QUIRE_STORE_PRESENT)
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
