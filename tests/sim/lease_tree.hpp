// SPDX-License-Identifier: Apache-2.0
//
// lease_tree: what a cache with QUIRE_CACHE_LEASES_ONLY must have published, place by place.
//
// There nothing but quire_lease_insert publishes, and what takes a published block away is a call
// that says so. So the model is whole: it names the block that each run finds, and says which of
// two cached blocks was used last.
//
// A place that loses the block before it is lost: nothing finds it any more. Its block counts as
// cached until it is evicted.
//
// Threads: none; values.  Units: a moment is a call's number and a place within it.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "content.hpp"
#include "sequence.hpp"

namespace sim {

// When a block was used last: between two moments, which are equal where the order is known.
struct Used {
    uint64_t from = 0;
    uint64_t to = 0;
    bool before(const Used &other) const { return to < other.from; }
};

struct Place {
    int32_t parent = 0;  // the block before it; 0: it is a first one
    uint32_t tenant = 0;
    Content end = 0;                // of its last token, which decides all tokens before it
    std::vector<Content> contents;  // [block_tokens]
    bool found = true;              // false: lost
    Used used;
};

class LeaseTree {
 public:
    const std::map<int32_t, Place> &places() const { return places_; }
    bool has(int32_t block) const { return places_.count(block) != 0; }
    // The blocks of the run's leading places that are found.
    std::vector<int32_t> find(const std::vector<std::vector<Content>> &run) const;
    // REQUIRES: the parent is found.
    void add(int32_t block, int32_t parent, uint32_t tenant, const std::vector<Content> &contents);
    // Nothing after it is found any more.
    void remove(int32_t block);
    void clear();

    // Begins a call.
    void tick() { now_ += kMoments; }
    // The block was used in this call, before or after others of it; at: in this order.
    void use(int32_t block);
    void use_at(int32_t block, uint32_t at);
    // Its use may be any moment since the one that is noted.
    void use_since(int32_t block);
    Used used(int32_t block) const { return places_.at(block).used; }
    void set_used(int32_t block, Used used) { places_.at(block).used = used; }
    uint64_t now() const { return now_ + kMoments - 1; }

    // The same places under the ids that they have now; those without one are lost.
    void rename(const std::map<int32_t, int32_t> &ids);

 private:
    static constexpr uint64_t kMoments = 1u << 16;  // of a call
    std::map<int32_t, Place> places_;
    std::map<Content, int32_t> by_end_;  // those that are found
    uint64_t now_ = 0;
};

}  // namespace sim
