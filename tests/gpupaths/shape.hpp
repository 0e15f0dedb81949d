// SPDX-License-Identifier: Apache-2.0
//
// shape: what one seed's cache looks like, and how its engine drives it.
//
// Threads: none; values.
#pragma once

#include <quire/cache.h>

#include <string>
#include <vector>

#include "content.hpp"

namespace gpupaths {

constexpr uint32_t kMostText = 44;    // tokens of a text, its drafts included
constexpr uint32_t kMostTokens = 40;  // of a step
constexpr uint32_t kMostRows = 6;
constexpr uint32_t kDim = 16;
constexpr uint32_t kMostHeads = 2;

struct GroupShape {
    uint32_t kind = QUIRE_GROUP_FULL, window = 0, sinks = 0, layers = 1, heads = 1;
    uint32_t dtype = QUIRE_DTYPE_F32;

    // The first places before `length` that a token at `next` sees lie in [0, sinks) and from here.
    uint32_t first_seen(uint32_t next) const {
        if (kind != QUIRE_GROUP_WINDOW) return 0;
        return next + 1 > window ? next + 1 - window : 0;
    }
};

// One shard: where it is, and which part of the model it holds.
struct ShardShape {
    std::string backend;
    uint32_t layer_begin = 0, layer_count = 0, head_begin = 0, head_count = 0;
};

struct Shape {
    std::string family;
    std::vector<GroupShape> groups;
    std::vector<ShardShape> shards;
    uint32_t block_tokens = 4, blocks = 24, queues = 1, flags = 0;
    uint32_t host_blocks = 0;
    uint32_t spaces = 1;   // namespaces
    uint32_t given = 0;    // type of the K and V that kv_write is given
    bool attends = false;  // steps also compute attention
    bool trees = false;    // drafts form trees
    bool streams = false;  // queues are bound to streams of the engine, where there are such
    bool graphs = false;   // steps are captured and replayed there
    bool faults = false;
    uint32_t dawdle_us = 0;

    static Shape drawn(const std::string &family, Rng &rng);
    // Shards of another kind, to migrate to.
    std::vector<ShardShape> other_shards(Rng &rng) const;
    uint32_t layers() const {
        uint32_t count = 0;
        for (const GroupShape &group : groups) count += group.layers;
        return count;
    }
    std::string text() const;
};

}  // namespace gpupaths
