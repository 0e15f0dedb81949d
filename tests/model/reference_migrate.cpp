// SPDX-License-Identifier: Apache-2.0
//
// The effect of a migration on the books: blocks get new numbers, cached ones leave if there is no
// room, and everything else stays.

#include <algorithm>

#include "reference.hpp"

namespace quire::model {

namespace {

// Packs the used blocks, followed by fresh ones; returns each old block's new place.
std::vector<int> pack(std::vector<Block> *blocks, int count) {
    std::vector<int> places(blocks->size(), -1);
    std::vector<Block> packed;
    for (size_t i = 0; i < blocks->size(); ++i) {
        const Block &b = (*blocks)[i];
        if (b.refs == 0 && b.node < 0) continue;
        places[i] = static_cast<int>(packed.size());
        packed.push_back(b);
    }
    packed.resize(static_cast<size_t>(count));
    *blocks = packed;
    return places;
}

void rename(std::vector<int> *blocks, const std::vector<int> &places) {
    for (int &block : *blocks) {
        if (block >= 0) block = places[static_cast<size_t>(block)];
    }
}

}  // namespace

// The cached block that was given back longest ago leaves, like an evicted one.
void Reference::drop_oldest(int group) {
    auto &blocks = blocks_[static_cast<size_t>(group)];
    int best = -1;
    for (size_t i = 0; i < blocks.size(); ++i) {
        const Block &b = blocks[i];
        if (b.refs != 0 || b.node < 0) continue;
        if (best < 0 || b.stamp < blocks[static_cast<size_t>(best)].stamp)
            best = static_cast<int>(i);
    }
    Block &b = blocks[static_cast<size_t>(best)];
    int node = b.node;
    if (config_.groups[static_cast<size_t>(group)].keeps_all()) return kill(node);
    nodes_[static_cast<size_t>(node)].blocks[static_cast<size_t>(group)] = -1;
    b.node = -1;
    free_if_bare(node);
}

int Reference::migrate(const std::vector<int> &blocks, int host_blocks) {
    if (open_ || !unfinished_.empty()) return -1;
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int host_held = 0;
        for (const Block &b : host_[g]) host_held += b.refs;
        if (count_held(static_cast<int>(g)) > blocks[g] || host_held > host_blocks) return 0;
    }
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int group = static_cast<int>(g);
        while (count_held(group) + count_cached(group) > blocks[g]) drop_oldest(group);
    }
    for (size_t g = 0; g < blocks_.size(); ++g) {
        std::vector<int> places = pack(&blocks_[g], blocks[g]);
        std::vector<int> host_places = pack(&host_[g], host_blocks);
        for (Seq &s : seqs_) {
            if (s.live) rename(&s.tables[g], s.swapped ? host_places : places);
        }
        for (Node &node : nodes_) {
            int &block = node.blocks[g];
            if (node.alive && block >= 0) block = places[static_cast<size_t>(block)];
        }
        config_.groups[g].blocks = blocks[g];
    }
    config_.host_blocks = host_blocks;
    return 1;
}

}  // namespace quire::model
