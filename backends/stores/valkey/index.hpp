// SPDX-License-Identifier: Apache-2.0
//
// index: the keys that are thought to be in the cluster, at most a given number.
//
// A key comes by a put, a get, or a scan; a scan tells no label and no size. It goes when a request
// finds that the value is gone, when a whole scan did not see it, or for room, in about the order
// in which they came. Each takes about 250 bytes.
//
// Threads: none; the mutex of Books guards it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "quire/plugin/store.h"

namespace quire::valkey {

class Index {
 public:
    struct Entry {
        quire_store_label label;  // of a scan's key: only the key is known
        uint64_t size_bytes = 0;
        uint32_t generation = 0;
        bool has_label = false;
    };

    explicit Index(uint64_t capacity) : capacity_(capacity) {}

    // NULL: the key is not known.
    const Entry *find(const uint8_t key[32]) const;
    // A value is there under this label. Throws std::bad_alloc.
    void add(const quire_store_label &label, uint64_t size_bytes);
    // A scan saw the key. A full index takes no new ones so, and none that was removed since the
    // page was asked for: the node may have read it before. Throws std::bad_alloc.
    void see(const uint8_t key[32]);
    void remove(const uint8_t key[32]);
    // A page of a scan is asked for.
    void begin_page() { ++page_; }

    // A scan begins: what it does not see can be swept after it.
    void begin_scan() { ++generation_; }
    // Looks at up to `count` entries below *at, which moves down to 0, and removes those that the
    // scan did not see. True: one was removed.
    bool sweep(uint64_t count, uint64_t *at);

    uint64_t count() const { return entries_.size(); }
    uint64_t value_bytes() const { return value_bytes_; }

 private:
    using Key = std::array<uint8_t, 32>;
    struct Hash {
        size_t operator()(const Key &key) const {  // keys are digests
            size_t hash = 0;
            std::memcpy(&hash, key.data(), sizeof hash);
            return hash;
        }
    };
    static Key copy_of(const uint8_t key[32]);
    uint64_t &removed_at(const uint8_t key[32]) {
        return removed_[(key[0] << 8 | key[1]) % removed_.size()];
    }
    // The key's entry, new if it was not there; NULL: no room for it.
    Entry *entry_for(const uint8_t key[32], bool may_replace);
    void remove_at(size_t at);

    uint64_t capacity_;
    uint64_t value_bytes_ = 0;
    uint32_t generation_ = 0;
    size_t hand_ = 0;  // which entry is replaced next
    uint64_t page_ = 1;
    // By a part of the key: the page that was asked for last when such a key was removed.
    std::vector<uint64_t> removed_ = std::vector<uint64_t>(4'096);
    std::vector<Entry> entries_;
    std::unordered_map<Key, size_t, Hash> places_;
};

}  // namespace quire::valkey
