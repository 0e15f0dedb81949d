// SPDX-License-Identifier: Apache-2.0
//
// lease_tree: see lease_tree.hpp.
#include "lease_tree.hpp"

namespace sim {

std::vector<int32_t> LeaseTree::find(const std::vector<std::vector<Content>> &run) const {
    std::vector<int32_t> blocks;
    for (const std::vector<Content> &contents : run) {
        const auto at = by_end_.find(contents.back());
        if (at == by_end_.end()) break;
        blocks.push_back(at->second);
    }
    return blocks;
}

void LeaseTree::add(int32_t block, int32_t parent, uint32_t tenant,
                    const std::vector<Content> &contents) {
    Place place;
    place.parent = parent;
    place.tenant = tenant;
    place.end = contents.back();
    place.contents = contents;
    by_end_[place.end] = block;
    places_[block] = place;
}

void LeaseTree::remove(int32_t block) {
    const auto at = places_.find(block);
    if (at == places_.end()) return;
    std::vector<int32_t> lost{block};
    for (size_t i = 0; i < lost.size(); ++i)
        for (auto &[id, place] : places_) {
            if (!place.found || (id != lost[i] && place.parent != lost[i])) continue;
            place.found = false;
            place.parent = 0;
            by_end_.erase(place.end);
            if (id != lost[i]) lost.push_back(id);
        }
    places_.erase(at);
}

void LeaseTree::clear() {
    places_.clear();
    by_end_.clear();
}

void LeaseTree::use(int32_t block) { places_.at(block).used = {now_, now()}; }

void LeaseTree::use_at(int32_t block, uint32_t at) {
    places_.at(block).used = {now_ + at, now_ + at};
}

void LeaseTree::use_since(int32_t block) { places_.at(block).used.to = now(); }

void LeaseTree::rename(const std::map<int32_t, int32_t> &ids) {
    std::vector<int32_t> gone;
    for (const auto &[block, place] : places_)
        if (ids.count(block) == 0) gone.push_back(block);
    for (const int32_t block : gone) remove(block);
    const std::map<int32_t, Place> before = places_;
    clear();
    for (const auto &[block, place] : before) {
        const int32_t to = ids.at(block);
        places_[to] = place;
        if (!place.found) continue;
        if (place.parent != 0) places_[to].parent = ids.at(place.parent);
        by_end_[place.end] = to;
    }
}

}  // namespace sim
