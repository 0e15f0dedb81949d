// SPDX-License-Identifier: Apache-2.0

#include "core/steps/tenants.hpp"

namespace quire {

namespace {

constexpr uint32_t kMaxNamespaces = 65536;  // the default one included
constexpr uint32_t kMaxNamespaceKeyBytes = 256;
constexpr uint64_t kDefaultKeyBytes = uint64_t{256} << 20;

uint64_t key_limit(uint64_t key_bytes) { return key_bytes != 0 ? key_bytes : kDefaultKeyBytes; }

static_assert(kMaxKeys <= Scopes::kMostSpans);

}  // namespace

bool Tenants::create(uint64_t key_bytes) {
    return books_.namespaces.create(kMaxNamespaces) &&
           books_.journal.tree().scopes().open_account(Namespaces::kDefault, key_limit(key_bytes));
}

Status Tenants::create_namespace(const quire_namespace_desc &desc, uint64_t *out) {
    if (desc.key_size_bytes > kMaxNamespaceKeyBytes) {
        return fail(QUIRE_E_LIMIT, "key_size_bytes is {}: at most {}", desc.key_size_bytes,
                    kMaxNamespaceKeyBytes);
    }
    if (desc.key_size_bytes != 0 && desc.key == nullptr) return fail(QUIRE_E_ARG, "key is NULL");
    uint32_t index = books_.namespaces.take();
    if (index == kNone) {
        return fail(QUIRE_E_LIMIT, "{} namespaces are alive: destroy one first",
                    kMaxNamespaces - 1);
    }
    if (!books_.journal.tree().scopes().open_account(index, key_limit(desc.key_bytes))) {
        books_.namespaces.end(index);
        return no_host_memory();
    }
    books_.namespaces[index].quota_blocks = desc.quota_blocks;
    if (desc.key_size_bytes != 0) {
        Sha256 hash;
        hash.add(desc.key, desc.key_size_bytes);
        books_.namespaces[index].digest = hash.finish();
        books_.namespaces[index].has_digest = true;
    }
    if ((desc.flags & QUIRE_NAMESPACE_EVENT_TOKENS) != 0) books_.namespaces.give_tokens(index);
    *out = books_.namespaces.handle(index);
    return Status{};
}

Status Tenants::destroy_namespace(uint64_t handle) {
    uint32_t index = books_.namespaces.find(handle);
    if (index == kNone) return fail(QUIRE_E_STALE, "no such namespace");
    if (books_.namespaces[index].sequences != 0) {
        return fail(QUIRE_E_BUSY, "{} sequences and leases live in the namespace: end them first",
                    books_.namespaces[index].sequences);
    }
    if (books_.records.is_open())
        return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    // No sequence lives in it, so all its content belongs to idle scopes.
    books_.journal.forget_account(index);
    books_.told.forget_namespace(handle);
    books_.namespaces.end(index);
    return Status{};
}

Status Tenants::namespace_info(uint64_t handle, quire_namespace_info *out) const {
    uint32_t index = handle == 0 ? Namespaces::kDefault : books_.namespaces.find(handle);
    if (index == kNone) return fail(QUIRE_E_STALE, "no such namespace");
    const Namespace &ns = books_.namespaces[index];
    out->sequences = ns.sequences - ns.leases;
    out->leases = ns.leases;
    out->blocks_held = ns.blocks_held;
    out->quota_blocks = ns.quota_blocks;
    out->prefix_cache_queries = ns.queries;
    out->prefix_cache_hits = ns.hits;
    out->key_bytes = books_.journal.tree().scopes().used_bytes(index);
    out->key_bytes_limit = books_.journal.tree().scopes().limit_bytes(index);
    return Status{};
}

void Tenants::charge(const Sequence &s, uint32_t charged_before) {
    Namespace &ns = books_.namespaces[s.name_space];
    ns.blocks_held += s.charged();
    ns.blocks_held -= charged_before;
}

void Tenants::charge_change(Change *change, uint32_t charged_before) {
    const Sequence &s = books_.sequences[change->sequence];
    charge(s, charged_before);
    uint32_t now = s.charged();
    change->returned = now < charged_before ? charged_before - now : 0;
    Namespace &ns = books_.namespaces[s.name_space];
    (change->kind == ChangeKind::item ? ns.returned : ns.given_up) += change->returned;
}

Status Tenants::use_keys(const quire_key *keys, uint32_t key_count, Sequence *fresh) {
    Scopes &scopes = books_.journal.tree().scopes();
    uint32_t account = fresh->name_space;
    words_.shrink(0);
    if (!encode_root(books_.namespaces[account].number, keys, key_count, &words_))
        return no_host_memory();
    uint32_t spans = 0;
    for (uint32_t i = 0; i < key_count; ++i) spans += is_span(keys[i]) ? 1 : 0;
    bool lists = account != Namespaces::kDefault || spans != key_count;
    fresh->root =
        scopes.use_root(account, words_.data(), static_cast<uint32_t>(words_.size()), lists);
    if (fresh->root == kNone) return no_host_memory();
    if (spans == 0) [[likely]]
        return Status{};
    fresh->scope = use_spans(fresh->root, account, keys, key_count);
    if (fresh->scope != kNone) return Status{};
    scopes.end_use(fresh->root);
    return no_host_memory();
}

// Returns kNone if memory is short; then nothing is kept.
uint32_t Tenants::use_spans(uint32_t root, uint32_t account, const quire_key *keys,
                            uint32_t key_count) {
    Scopes &scopes = books_.journal.tree().scopes();
    spans_.shrink(0);
    bool ok = spans_.reserve(key_count);
    for (uint32_t i = 0; i < key_count && ok; ++i) {
        if (!is_span(keys[i])) continue;
        words_.shrink(0);
        uint32_t key = kNone;
        if (encode_key(keys[i], &words_)) {
            key = scopes.acquire_key(account, words_.data(), static_cast<uint32_t>(words_.size()));
        }
        ok = key != kNone;
        if (ok) spans_.push(Span{keys[i].begin, keys[i].end, key});
    }
    if (ok) return scopes.use_spans(root, spans_.data(), static_cast<uint32_t>(spans_.size()));
    for (const Span &span : spans_) scopes.release_key(account, span.key);
    return kNone;
}

Status Tenants::fit_account(uint32_t account) {
    if (books_.journal.trim_account(account)) [[likely]]
        return Status{};
    const Scopes &scopes = books_.journal.tree().scopes();
    return fail(QUIRE_E_LIMIT,
                "the namespace's keys would take {} bytes of host memory, over the limit of {}: "
                "end sequences that have their own keys, or raise key_bytes",
                scopes.used_bytes(account), scopes.limit_bytes(account));
}

// The scope ends first: it stays idle as long as its root does, and is forgotten before it.
void Tenants::end_keys(const Sequence &s) {
    Scopes &scopes = books_.journal.tree().scopes();
    if (s.scope != kNone) scopes.end_use(s.scope);
    scopes.end_use(s.root);
}

Taker Tenants::taker(uint32_t sequence, bool overwrites) const {
    return Taker{sequence, books_.namespaces[books_.sequences[sequence].name_space].number,
                 overwrites};
}

}  // namespace quire
