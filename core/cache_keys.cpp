// SPDX-License-Identifier: Apache-2.0
//
// A sequence's keys: where they are stored, and how much its namespace may spend on them.

#include "core/cache.hpp"

namespace quire {

static_assert(kMaxKeys <= Scopes::kMostSpans);

// Finds or makes the sequence's root and the scope of its spans; its namespace pays for both.
Status Cache::use_keys(const quire_key *keys, uint32_t key_count, Sequence *fresh) {
    Scopes &scopes = journal_.tree().scopes();
    uint32_t account = fresh->name_space;
    words_.shrink(0);
    if (!encode_root(namespaces_[account].number, keys, key_count, &words_))
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
uint32_t Cache::use_spans(uint32_t root, uint32_t account, const quire_key *keys,
                          uint32_t key_count) {
    Scopes &scopes = journal_.tree().scopes();
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

// Brings the namespace's keys within its limit by forgetting cached content, the longest unused
// first; forgets nothing if that is not enough.
Status Cache::fit_account(uint32_t account) {
    if (journal_.trim_account(account)) [[likely]]
        return Status{};
    const Scopes &scopes = journal_.tree().scopes();
    return fail(QUIRE_E_LIMIT,
                "the namespace's keys would take {} bytes of host memory, over the limit of {}: "
                "end sequences that have their own keys, or raise key_bytes",
                scopes.used_bytes(account), scopes.limit_bytes(account));
}

// The scope ends first: it stays idle as long as its root does, and is forgotten before it.
void Cache::end_keys(const Sequence &s) {
    Scopes &scopes = journal_.tree().scopes();
    if (s.scope != kNone) scopes.end_use(s.scope);
    scopes.end_use(s.root);
}

}  // namespace quire
