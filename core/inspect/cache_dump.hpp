// SPDX-License-Identifier: Apache-2.0
//
// cache_dump: everything that decides what a cache does next, as text; docs/dump.md describes each
// record.
//
//   cache_dump.cpp  the cache, its steps and what they change
//   books_dump.cpp  pools, blocks, tree, namespaces, sequences, tables and loads
//
// Equal books give equal bytes: nothing here depends on an address. The books may be broken, since
// that is when a dump is wanted, so no list is followed, and no index is used before it is compared
// with the length of the array that it points into.
//
// Tokens and keys belong to tenants: only their hashes are written, under the cache's own random
// key, unless the caller asks for tokens.
//
// Threads: none; Cache holds its lock. Changes nothing of the cache, and allocates nothing.
#pragma once

#include "core/inspect/dump_writer.hpp"
#include "core/parts/cache_parts.hpp"

namespace quire {

constexpr uint32_t kDumpVersion = 1;

// Writes the dump, or nothing if it does not fit: QUIRE_S_INCOMPLETE. *size_bytes: of all of it.
Status dump_cache(const CacheParts &parts, bool with_tokens, char *buffer, uint64_t capacity,
                  uint64_t *size_bytes);

class CacheDump {
 public:
    CacheDump(const CacheParts &parts, bool with_tokens, char *out, uint64_t capacity)
        : parts_(parts), books_(parts.books), with_tokens_(with_tokens), out_(out, capacity) {}

    // Returns the size of the whole text in bytes; what did not fit was left out.
    uint64_t write();

 private:
    // cache_dump.cpp
    void write_cache();
    void write_state();
    void write_stats();
    void write_ranks();
    void write_step(const StepRecord &record);
    void write_change(const StepRecord &record, uint64_t index);
    void write_edit(const StepRecord &record, uint64_t index);
    void write_copy(const StepRecord &record, uint64_t index);
    void write_preemption(const StepRecord &record, uint64_t index);
    void write_seen(const StepRecord &record);
    void write_sequence_state(const SequenceState &state);

    // books_dump.cpp
    void write_group(uint32_t group);
    void write_lists(const BlockPool &pool, uint32_t group, const char *tier);
    void write_list(const BlockPool &pool, uint32_t list);
    void write_blocks(const BlockPool &pool, uint32_t group, const char *tier);
    void write_tenant(const char *name, uint64_t tenant);
    void write_tree();
    void write_scopes();
    void write_nodes();
    void write_places();
    void write_namespaces();
    void write_sequence(uint32_t index);
    void write_tokens(const char *name, const Buffer &buffer, uint32_t count);
    void write_table(uint32_t index, uint32_t group);
    void write_loads();
    void write_orders();
    void write_told();
    uint64_t hash(const uint32_t *words, uint64_t count) const;

    const CacheParts &parts_;
    const CacheBooks &books_;
    bool with_tokens_;
    DumpWriter out_;
};

}  // namespace quire
