// SPDX-License-Identifier: Apache-2.0

#include "shape.hpp"

#include <algorithm>

namespace gpupaths {

namespace {

// Where shards of this family may be; most often on the family's own backend.
const std::string &backend_of(const std::string &family, Rng &rng) {
    static const std::string names[] = {"cpu", "cuda", "hip", "vulkan"};
    if (family == "cpu" || rng.percent(65)) return family;
    if (family == "vulkan") return names[0];
    return names[rng.below(3)];
}

std::vector<ShardShape> drawn_shards(const Shape &shape, Rng &rng) {
    std::vector<ShardShape> shards(1);
    shards[0].backend = backend_of(shape.family, rng);
    if (rng.percent(55)) return shards;
    shards.push_back({backend_of(shape.family, rng)});
    bool by_heads = shape.groups[0].heads == 2 && (shape.layers() == 1 || rng.percent(50));
    if (!by_heads && shape.layers() == 1) {
        shards.pop_back();
    } else if (by_heads) {
        shards[0].head_count = 1;
        shards[1].head_begin = 1;
    } else {
        shards[0].layer_count = 1;
        shards[1].layer_begin = 1;
    }
    return shards;
}

}  // namespace

Shape Shape::drawn(const std::string &family, Rng &rng) {
    constexpr uint32_t kTypes[] = {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16};
    Shape shape;
    shape.family = family;
    shape.block_tokens = 2u << rng.below(3);
    GroupShape full;
    full.layers = 1 + rng.below(2);
    full.heads = 1 + rng.below(kMostHeads);
    full.dtype = kTypes[rng.below(3)];
    shape.groups.push_back(full);
    shape.trees = rng.percent(25);
    if (!shape.trees && rng.percent(30)) {
        GroupShape window = full;
        window.kind = QUIRE_GROUP_WINDOW;
        window.window = rng.range(3, 14);
        window.sinks = rng.percent(50) ? rng.range(1, 5) : 0;
        window.layers = 1;
        shape.groups.push_back(window);
    }
    shape.given = rng.percent(50) ? uint32_t{QUIRE_DTYPE_F32} : full.dtype;
    shape.shards = drawn_shards(shape, rng);
    shape.queues = rng.range(1, 3);
    uint32_t of_one = kMostText / shape.block_tokens + 2;
    shape.blocks = of_one + rng.range(2, 2 * of_one);
    shape.host_blocks = rng.percent(70) ? rng.range(of_one / 2, 2 * of_one) : 0;
    shape.flags = QUIRE_CACHE_AUDIT;
    if (rng.percent(25)) shape.flags |= QUIRE_CACHE_ZERO_ON_FREE;
    if (rng.percent(8)) shape.flags |= QUIRE_CACHE_NO_PREFIX;
    shape.spaces = rng.percent(45) ? 2 : 1;
    shape.attends = rng.percent(35);
    bool has_streams = family == "cuda" || family == "hip";
    shape.streams = has_streams && rng.percent(55);
    shape.graphs = shape.streams && !shape.trees && rng.percent(70);
    shape.faults = rng.percent(80);
    shape.dawdle_us = rng.percent(50) ? 300 : 0;
    return shape;
}

std::vector<ShardShape> Shape::other_shards(Rng &rng) const { return drawn_shards(*this, rng); }

std::string Shape::text() const {
    std::string out = family + ":";
    for (const ShardShape &shard : shards) {
        out += ' ' + shard.backend + "[l" + std::to_string(shard.layer_begin) + '+' +
               std::to_string(shard.layer_count) + " h" + std::to_string(shard.head_begin) + '+' +
               std::to_string(shard.head_count) + ']';
    }
    for (const GroupShape &group : groups) {
        out += ", " + std::to_string(group.layers) + " layers of " + std::to_string(group.heads) +
               " heads of " + std::to_string(bytes_of(group.dtype)) + " bytes";
        if (group.window != 0) out += " with a window of " + std::to_string(group.window);
    }
    out += ", " + std::to_string(blocks) + " blocks of " + std::to_string(block_tokens) + ", " +
           std::to_string(host_blocks) + " host blocks, " + std::to_string(queues) + " queues, " +
           std::to_string(spaces) + " namespaces";
    if (attends) out += ", attends";
    if (trees) out += ", trees";
    if (streams) out += ", streams";
    if (graphs) out += ", graphs";
    if ((flags & QUIRE_CACHE_ZERO_ON_FREE) != 0) out += ", zero on free";
    return out;
}

}  // namespace gpupaths
