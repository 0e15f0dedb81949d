// SPDX-License-Identifier: Apache-2.0
//
// scopes: everything besides tokens that decides content, and what it costs its namespace.
//
// A root is one namespace and one list of whole-sequence keys. A span scope is one root and one
// list of spans {begin, end, key}. The bytes of a span's key are stored once per namespace, however
// many spans, sequences and blocks name them; a list is stored once too. So a sequence and a node
// of the prefix tree name one scope each, and hold nothing of their own.
//
// A scope lives while a sequence or a node uses it. A scope that only nodes use is idle: it exists
// for cached content alone, and is on its namespace's idle list, the longest idle first. A scope
// lists its nodes, so that a namespace's content is found without looking at other namespaces. Only
// the default namespace's root without keys lists none: it is never removed, its own 128 bytes are
// all that its nodes keep alive, and an engine without tenants and keys does not pay for lists.
//
// An account counts the host memory of a namespace's roots, scopes and keys, as it is allocated.
//
// Invariants: (1) a scope is on its account's idle list iff no sequence uses it; (2) an account's
// bytes are those of its entries; (3) a scope comes before its root on the idle list.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/word_table.hpp"

namespace quire {

// A span of a sequence's tokens [begin, end) and the number of its key.
struct Span {
    uint32_t begin;
    uint32_t end;
    uint32_t key;
};

class Scopes {
 public:
    static constexpr uint32_t kNone = WordTable::kNone;
    // The most spans that can overlap one block; they are hashed together.
    static constexpr uint32_t kMostSpans = 64;

    Scopes(const HostAllocator *host, BufferPool *buffers)
        : scopes_(host, buffers),
          keys_(host, buffers),
          records_(host),
          leaving_(host),
          accounts_(host) {}

    [[nodiscard]] bool create(uint64_t seed) { return scopes_.create(seed) && keys_.create(~seed); }

    // Lets a namespace take `limit_bytes` from now on. False: no memory.
    [[nodiscard]] bool open_account(uint32_t account, uint64_t limit_bytes);
    uint64_t used_bytes(uint32_t account) const { return accounts_[account].used_bytes; }
    uint64_t limit_bytes(uint32_t account) const { return accounts_[account].limit_bytes; }

    // For a sequence, which gives each back with end_use(). kNone: no memory, and nothing changed.
    // They charge the account even past its limit: the caller checks that.
    // lists: the root lists its nodes, so that they can be forgotten; always the same for equal
    // words.
    uint32_t use_root(uint32_t account, const uint32_t *words, uint32_t count, bool lists);
    // spans: [count] with a reference to each key, which this call takes over or gives back.
    uint32_t use_spans(uint32_t root, const Span *spans, uint32_t count);
    uint32_t acquire_key(uint32_t account, const uint32_t *words, uint32_t count);
    void release_key(uint32_t account, uint32_t key);
    // Another sequence begins to use the scope, or ceases to.
    void use(uint32_t scope);
    void end_use(uint32_t scope);

    // Keeps the scope alive until release().
    void share(uint32_t scope) { scopes_.share(scope); }
    void release(uint32_t scope) {
        if (scopes_.references(scope) == 1) [[unlikely]]
            return discard(scope);
        scopes_.release(scope);
    }
    // The tree adds a node to the scope, or removes one.
    void add_node(uint32_t scope) { add_nodes(scope, 1); }
    void add_nodes(uint32_t scope, uint32_t count) {
        scopes_.share(scope, count);
        records_[scope].node_count += count;
    }
    void remove_node(uint32_t scope) { --records_[scope].node_count, release(scope); }

    uint32_t root_of(uint32_t scope) const {
        uint32_t parent = scopes_.parent(scope);
        return parent == kNone ? scope : parent;
    }
    uint64_t hash(uint32_t scope) const { return scopes_.hash(scope); }
    const uint32_t *words(uint32_t scope) const { return scopes_.words(scope); }

    // True if a span of the scope overlaps tokens [begin, end).
    bool overlaps(uint32_t scope, uint32_t begin, uint32_t end) const;
    // The hash of the scope's spans that overlap tokens [begin, end), chained to `previous`.
    uint64_t hash_overlap(uint64_t previous, uint32_t scope, uint32_t begin, uint32_t end) const;
    // True if two scopes have the same spans over tokens [begin, end).
    bool same_overlap(uint32_t one, uint32_t other, uint32_t begin, uint32_t end) const;

    // A digest of the whole-sequence keys of `root` and of the spans of `scope`, which may be
    // kNone; the same in every process, and whatever the namespace.
    void digest(uint32_t root, uint32_t scope, uint8_t out[16]) const;

    // Calls visit(span, its key's words, their count) for each span of the scope that overlaps
    // tokens [begin, end), in their order.
    template <typename Visit>
    void each_overlap(uint32_t scope, uint32_t begin, uint32_t end, Visit visit) const {
        for (uint32_t i = 0; i < span_count(scope); ++i) {
            const Span &span = spans(scope)[i];
            if (span.begin >= end || begin >= span.end) continue;
            visit(span, keys_.words(span.key), keys_.count(span.key));
        }
    }
    // Words of a root before its keys: its namespace's number, another one in each process.
    static constexpr uint32_t kNamespaceWords = 2;
    uint32_t account(uint32_t scope) const { return records_[scope].account; }

    bool lists(uint32_t scope) const { return records_[scope].lists; }
    // The first of the scope's nodes, as the tree links them.
    uint32_t first_node(uint32_t scope) const { return records_[scope].first_node; }
    void set_first_node(uint32_t scope, uint32_t node) { records_[scope].first_node = node; }

    // Idle scopes of the account, the longest idle first.
    uint32_t oldest_idle(uint32_t account) const { return accounts_[account].oldest; }
    uint32_t next_idle(uint32_t scope) const { return records_[scope].newer; }
    // Marks an idle scope whose nodes will all be forgotten. Returns how many more bytes will then
    // be free, given the scopes marked before. A scope that something else needs, or that does not
    // list its nodes, is not marked: 0.
    uint64_t mark_leaving(uint32_t scope);
    bool is_leaving(uint32_t scope) const { return records_[scope].is_leaving; }
    void unmark_leaving(uint32_t scope);

    // For checks and dumps. All numbers that were ever given out are below used().
    uint64_t used() const { return scopes_.used(); }
    uint64_t seed() const { return scopes_.seed(); }
    uint32_t references(uint32_t scope) const { return scopes_.references(scope); }
    uint32_t word_count(uint32_t scope) const { return scopes_.count(scope); }
    uint32_t sequence_count(uint32_t scope) const { return records_[scope].sequences; }
    uint32_t node_count(uint32_t scope) const { return records_[scope].node_count; }
    bool is_idle(uint32_t scope) const { return records_[scope].is_idle; }

    Status check() const;

 private:
    friend struct Inside;  // tests, which break what is checked

    struct Record {
        uint32_t account;
        uint32_t sequences;
        uint32_t first_node;
        uint32_t node_count;
        uint32_t older;  // idle ones of the account
        uint32_t newer;
        uint32_t leaving_scopes;  // of a root: its span scopes that are leaving
        bool is_idle;             // and on the account's list
        bool is_leaving;
        bool lists;
    };
    struct Account {
        uint64_t used_bytes = 0;
        uint64_t limit_bytes = 0;
        uint32_t oldest = WordTable::kNone;
        uint32_t newest = WordTable::kNone;
    };

    const Span *spans(uint32_t scope) const {
        return reinterpret_cast<const Span *>(scopes_.words(scope));
    }
    uint32_t span_count(uint32_t scope) const {
        constexpr uint32_t words = sizeof(Span) / sizeof(uint32_t);
        return scopes_.parent(scope) == kNone ? 0 : scopes_.count(scope) / words;
    }
    uint64_t size_bytes(uint32_t scope) const { return scopes_.size_bytes(scope) + sizeof(Record); }
    uint32_t acquire(uint32_t account, uint32_t parent, const uint32_t *words, uint32_t count,
                     bool *is_new);
    void discard(uint32_t scope);
    void enter_idle(uint32_t scope);
    void leave_idle(uint32_t scope);

    WordTable scopes_;  // parent: the root of a span scope, kNone of a root
    WordTable keys_;    // parent: the account
    Array<Record> records_;
    Array<uint32_t> leaving_;  // by key: how many spans of leaving scopes name it
    Array<Account> accounts_;
};

}  // namespace quire
