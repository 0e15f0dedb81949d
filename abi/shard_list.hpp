// SPDX-License-Identifier: Apache-2.0
//
// shard_list: converts an array of quire_shard_desc for the core, and lists the devices it names.
#pragma once

#include "abi/objects.hpp"

namespace quire::abi {

// Writes one range and one device per shard. ranges: [kMaxShards].
inline Status read_shards(const quire_shard_desc *shards, uint32_t count, uint32_t stride,
                          ShardRange *ranges, std::vector<quire_device *> *devices) {
    if (count > kMaxShards) {
        return fail(QUIRE_E_LIMIT, "shard_count is {}: at most {}", count, kMaxShards);
    }
    for (uint32_t i = 0; i < count; ++i) {
        quire_shard_desc shard;
        QUIRE_TRY(read_element(shards, i, stride, &shard));
        if (shard.device == nullptr) return fail(QUIRE_E_ARG, "shards[{}].device is NULL", i);
        ranges[i] = ShardRange{&shard.device->core, shard.layer_begin, shard.layer_count,
                               shard.head_begin, shard.head_count};
        devices->push_back(shard.device);
    }
    return Status{};
}

}  // namespace quire::abi
