// SPDX-License-Identifier: Apache-2.0

#include "valkey/index.hpp"

namespace quire::valkey {

Index::Key Index::copy_of(const uint8_t key[32]) {
    Key copy;
    std::memcpy(copy.data(), key, copy.size());
    return copy;
}

const Index::Entry *Index::find(const uint8_t key[32]) const {
    auto at = places_.find(copy_of(key));
    return at == places_.end() ? nullptr : &entries_[at->second];
}

Index::Entry *Index::entry_for(const uint8_t key[32], bool may_replace) {
    const Key wanted = copy_of(key);
    if (auto at = places_.find(wanted); at != places_.end()) return &entries_[at->second];
    if (entries_.size() >= capacity_) {
        if (!may_replace || entries_.empty()) return nullptr;
        remove_at(hand_++ % entries_.size());
    }
    if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size() + 64);
    places_.emplace(wanted, entries_.size());
    Entry entry{};
    std::memcpy(entry.label.key, key, sizeof entry.label.key);
    entries_.push_back(entry);
    return &entries_.back();
}

void Index::add(const quire_store_label &label, uint64_t size_bytes) {
    Entry *entry = entry_for(label.key, true);
    if (entry == nullptr) return;
    value_bytes_ += size_bytes - entry->size_bytes;
    *entry = {label, size_bytes, generation_, true};
}

void Index::see(const uint8_t key[32]) {
    if (removed_at(key) == page_ && find(key) == nullptr) return;
    if (Entry *entry = entry_for(key, false)) entry->generation = generation_;
}

void Index::remove(const uint8_t key[32]) {
    removed_at(key) = page_;
    auto at = places_.find(copy_of(key));
    if (at != places_.end()) remove_at(at->second);
}

void Index::remove_at(size_t at) {
    value_bytes_ -= entries_[at].size_bytes;
    places_.erase(copy_of(entries_[at].label.key));
    if (at + 1 != entries_.size()) {
        entries_[at] = entries_.back();
        places_[copy_of(entries_[at].label.key)] = at;
    }
    entries_.pop_back();
}

bool Index::sweep(uint64_t count, uint64_t *at) {
    bool has_removed = false;
    if (*at > entries_.size()) *at = entries_.size();
    for (; count != 0 && *at != 0; --count) {
        --*at;
        if (entries_[*at].generation == generation_) continue;
        remove_at(*at);
        has_removed = true;
    }
    return has_removed;
}

}  // namespace quire::valkey
