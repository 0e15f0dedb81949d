// SPDX-License-Identifier: Apache-2.0
//
// namespace_ops: tenants, and what forgets all prefixes.
#include "cache_tier.hpp"
#include "follower.hpp"
#include "leases_only.hpp"

namespace sim {

bool World::create_namespace(const Op &op) {
    if (find_namespace(op.f[0]) != nullptr) return false;
    uint32_t key[2] = {op.f[1], op.f[1]};
    quire_namespace_desc desc{};
    desc.struct_size = sizeof desc;
    desc.key = key;
    desc.key_size_bytes = sizeof key;
    desc.quota_blocks = op.f[2];
    Namespace ns;
    ns.id = op.f[0];
    ns.quota = op.f[2];
    ns.tenant = next_tenant_++;
    // In a store two namespaces of equal keys are one tenant, and one without a key has no name.
    if (config.has(Feature::cache_tier)) {
        ns.key = op.f[1];
        if (ns.key == 0) desc.key = nullptr;
        if (ns.key == 0) desc.key_size_bytes = 0;
        ns.tenant = ns.key != 0 ? 2000 + ns.key : ns.tenant;
    }
    if (ns.tenant >= 4095) return false;
    expect(q_->namespace_create(cache_, &desc, &ns.handle, &error_), {QUIRE_OK},
           "quire_namespace_create");
    namespaces.push_back(ns);
    changed_since_begin_ = true;
    return true;
}

bool World::destroy_namespace(const Op &op) {
    Namespace *ns = find_namespace(op.f[0]);
    if (ns == nullptr) return false;
    bool lived_in = false;
    for (const auto &seq : sequences) lived_in |= seq->ns == ns->id;
    for (const auto &lease : leases) lived_in |= lease->ns == ns->id;
    const bool busy = lived_in || open;
    const Snapshot before = look(busy || ns->id == 0);
    const quire_status status = q_->namespace_destroy(cache_, ns->handle, &error_);
    if (ns->id == 0) {
        expect(status, {QUIRE_E_ARG, QUIRE_E_STALE, QUIRE_E_BUSY}, "destroying namespace 0");
        unchanged(before, "error-changes");
    } else if (busy) {
        expect(status, {QUIRE_E_BUSY}, "quire_namespace_destroy of one in use");
        unchanged(before, "error-changes");
    } else {
        expect(status, {QUIRE_OK}, "quire_namespace_destroy");
        if (lone_) lone_->destroyed(ns->tenant);
        stale_spaces_.push_back(ns->handle);
        namespaces.erase(namespaces.begin() + (ns - namespaces.data()));
    }
    return true;
}

bool World::reset() {
    const Snapshot before = look(open != nullptr);
    const quire_status status = q_->cache_reset(cache_, &error_);
    if (open) {
        expect(status, {QUIRE_E_BUSY}, "quire_cache_reset with an open step");
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_cache_reset");
    ++epoch_;
    if (lone_) lone_->reset();
    forget_loads();
    if (has_tier()) {
        tier_->dead = true;
        tier_->dead_puts = tier_->store->counts.puts_submitted;
    }
    full_blocks_.clear();
    full_pairs_.clear();
    nodes_most_ = 0;
    for (auto &seq : sequences) {
        // Nothing is said of sequences that have nothing computed: the library's answer stands.
        const quire_seq_info got = info(*seq);
        const bool unpublished = (got.flags & QUIRE_SEQ_UNPUBLISHED) != 0;
        if (seq->computed != 0 && !unpublished && (config.flags & QUIRE_CACHE_NO_PREFIX) == 0)
            fail("reset", "sequence %u has computed tokens and still publishes", seq->id);
        seq->unpublished = unpublished;
        compare(*seq, "reset");
    }
    if (committed.empty() && !on_device()) {
        quire_cache_stats s{};
        s.struct_size = sizeof s;
        expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
        if (s.blocks_cached + s.host_blocks_cached != 0)
            fail("reset", "%llu blocks and %llu host blocks are findable after a reset",
                 static_cast<unsigned long long>(s.blocks_cached),
                 static_cast<unsigned long long>(s.host_blocks_cached));
    }
    return true;
}

}  // namespace sim
