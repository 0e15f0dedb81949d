// SPDX-License-Identifier: Apache-2.0

#include "core/blocks/scopes.hpp"

#include "core/base/hash.hpp"

namespace quire {

bool Scopes::open_account(uint32_t account, uint64_t limit_bytes) {
    while (accounts_.size() <= account) {
        if (!accounts_.push_growing(Account{})) return false;
    }
    static_assert(sizeof(Record) == 32 && sizeof(Span) == 12);  // as cache.h counts them
    QUIRE_ASSERT(accounts_[account].used_bytes == 0 && accounts_[account].oldest == kNone);
    accounts_[account].limit_bytes = limit_bytes;
    return true;
}

uint32_t Scopes::acquire(uint32_t account, uint32_t parent, const uint32_t *words, uint32_t count,
                         bool *is_new) {
    if (!records_.reserve(scopes_.used() + 1)) return kNone;
    uint32_t scope = scopes_.acquire(parent, words, count, is_new);
    if (scope == kNone) return kNone;
    if (*is_new) {
        if (scope == records_.size()) records_.push(Record{});
        Record fresh{};
        fresh.account = account;
        fresh.lists = true;
        fresh.first_node = fresh.older = fresh.newer = kNone;
        records_[scope] = fresh;
        accounts_[account].used_bytes += size_bytes(scope);
    }
    if (records_[scope].sequences++ == 0) leave_idle(scope);
    return scope;
}

uint32_t Scopes::use_root(uint32_t account, const uint32_t *words, uint32_t count, bool lists) {
    bool is_new = false;
    uint32_t root = acquire(account, kNone, words, count, &is_new);
    if (root != kNone) records_[root].lists = lists;
    return root;
}

uint32_t Scopes::use_spans(uint32_t root, const Span *list, uint32_t count) {
    constexpr uint32_t words = sizeof(Span) / sizeof(uint32_t);
    uint32_t account = records_[root].account;
    bool is_new = false;
    uint32_t scope =
        acquire(account, root, reinterpret_cast<const uint32_t *>(list), count * words, &is_new);
    if (scope != kNone && is_new) {
        share(root);
        return scope;
    }
    for (uint32_t i = 0; i < count; ++i) release_key(account, list[i].key);
    return scope;
}

uint32_t Scopes::acquire_key(uint32_t account, const uint32_t *words, uint32_t count) {
    if (!leaving_.reserve(keys_.used() + 1)) return kNone;
    bool is_new = false;
    uint32_t key = keys_.acquire(account, words, count, &is_new);
    if (key == kNone || !is_new) return key;
    if (key == leaving_.size()) leaving_.push(0);
    accounts_[account].used_bytes += keys_.size_bytes(key);
    return key;
}

void Scopes::release_key(uint32_t account, uint32_t key) {
    uint64_t size = keys_.size_bytes(key);
    if (keys_.release(key)) accounts_[account].used_bytes -= size;
}

void Scopes::use(uint32_t scope) {
    share(scope);
    if (records_[scope].sequences++ == 0) leave_idle(scope);
}

void Scopes::end_use(uint32_t scope) {
    QUIRE_ASSERT(records_[scope].sequences > 0);
    if (--records_[scope].sequences == 0) enter_idle(scope);
    release(scope);
}

// Gives up the last reference to a scope.
void Scopes::discard(uint32_t scope) {
    leave_idle(scope);
    uint32_t root = scopes_.parent(scope), account = records_[scope].account;
    for (uint32_t i = 0; i < span_count(scope); ++i) release_key(account, spans(scope)[i].key);
    accounts_[account].used_bytes -= size_bytes(scope);
    scopes_.release(scope);
    if (root != kNone) release(root);
}

void Scopes::enter_idle(uint32_t scope) {
    Record &record = records_[scope];
    Account &account = accounts_[record.account];
    record.is_idle = true;
    record.older = account.newest;
    record.newer = kNone;
    (account.newest != kNone ? records_[account.newest].newer : account.oldest) = scope;
    account.newest = scope;
}

void Scopes::leave_idle(uint32_t scope) {
    Record &record = records_[scope];
    if (!record.is_idle) return;
    Account &account = accounts_[record.account];
    record.is_idle = false;
    (record.older != kNone ? records_[record.older].newer : account.oldest) = record.newer;
    (record.newer != kNone ? records_[record.newer].older : account.newest) = record.older;
}

bool Scopes::overlaps(uint32_t scope, uint32_t begin, uint32_t end) const {
    const Span *list = spans(scope);
    for (uint32_t i = 0; i < span_count(scope); ++i) {
        if (list[i].begin < end && begin < list[i].end) return true;
    }
    return false;
}

uint64_t Scopes::hash_overlap(uint64_t previous, uint32_t scope, uint32_t begin,
                              uint32_t end) const {
    Span found[kMostSpans];
    const Span *list = spans(scope);
    uint32_t count = 0;
    for (uint32_t i = 0; i < span_count(scope); ++i) {
        if (list[i].begin < end && begin < list[i].end) found[count++] = list[i];
    }
    return chain_hash(previous, found, uint64_t{count} * sizeof(Span));
}

// Both blocks lie at the same place, so spans are compared as they are. Keys with the same number
// have the same bytes, because both scopes belong to one root and so to one account.
bool Scopes::same_overlap(uint32_t one, uint32_t other, uint32_t begin, uint32_t end) const {
    const Span *a = spans(one), *a_end = a + span_count(one);
    const Span *b = spans(other), *b_end = b + span_count(other);
    auto skip = [&](const Span **at, const Span *last) {
        while (*at != last && ((*at)->begin >= end || begin >= (*at)->end)) ++*at;
    };
    for (;; ++a, ++b) {
        skip(&a, a_end);
        skip(&b, b_end);
        if (a == a_end || b == b_end) return a == a_end && b == b_end;
        if (a->begin != b->begin || a->end != b->end || a->key != b->key) return false;
    }
}

uint64_t Scopes::mark_leaving(uint32_t scope) {
    Record &record = records_[scope];
    uint32_t leaving = record.node_count + record.leaving_scopes;  // a root's other scopes may stay
    if (!record.lists || scopes_.references(scope) != leaving) return 0;
    record.is_leaving = true;
    uint64_t bytes = size_bytes(scope);
    for (uint32_t i = 0; i < span_count(scope); ++i) {
        uint32_t key = spans(scope)[i].key;
        if (++leaving_[key] == keys_.references(key)) bytes += keys_.size_bytes(key);
    }
    uint32_t root = scopes_.parent(scope);
    if (root != kNone) ++records_[root].leaving_scopes;
    return bytes;
}

void Scopes::unmark_leaving(uint32_t scope) {
    Record &record = records_[scope];
    record.is_leaving = false;
    record.leaving_scopes = 0;
    for (uint32_t i = 0; i < span_count(scope); ++i) leaving_[spans(scope)[i].key] = 0;
    uint32_t root = scopes_.parent(scope);
    if (root != kNone) records_[root].leaving_scopes = 0;
}

void Scopes::digest(uint32_t root, uint32_t scope, uint8_t out[16]) const {
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    auto add = [&](const void *words, uint32_t count) {
        XXH3_128bits_update(&state, words, uint64_t{count} * sizeof(uint32_t));
    };
    add(words(root) + kNamespaceWords, word_count(root) - kNamespaceWords);
    for (uint32_t i = 0; scope != kNone && i < span_count(scope); ++i) {
        const Span &span = spans(scope)[i];
        const uint32_t head[] = {span.begin, span.end, keys_.count(span.key)};
        add(head, 3);
        add(keys_.words(span.key), keys_.count(span.key));
    }
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&state));
    std::memcpy(out, digest.digest, sizeof digest.digest);
}

Status Scopes::check() const {
    uint64_t used = 0, counted = 0;
    for (uint64_t i = 0; i < scopes_.used(); ++i) {
        uint32_t scope = static_cast<uint32_t>(i);
        if (scopes_.references(scope) == 0) continue;
        const Record &record = records_[i];
        if (record.is_idle != (record.sequences == 0) || record.is_leaving ||
            scopes_.references(scope) < record.sequences + record.node_count) {
            return fail(QUIRE_E_INTERNAL,
                        "scopes: scope {} has {} sequences and is on the wrong list", i,
                        record.sequences);
        }
        counted += size_bytes(scope);
    }
    for (uint64_t i = 0; i < keys_.used(); ++i) {
        uint32_t key = static_cast<uint32_t>(i);
        if (keys_.references(key) != 0) counted += keys_.size_bytes(key);
    }
    for (const Account &account : accounts_) used += account.used_bytes;
    if (used == counted) return Status{};
    return fail(QUIRE_E_INTERNAL, "scopes: {} bytes are charged, but {} are in use", used, counted);
}

}  // namespace quire
