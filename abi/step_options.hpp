// SPDX-License-Identifier: Apache-2.0
//
// step_options: converts a step's description for the core; its queues must be those of the shards.
#pragma once

#include "abi/objects.hpp"

namespace quire::abi {

inline Status make_options(const quire_cache *cache, const quire_step_desc &desc,
                           StepOptions *out) {
    if (desc.preempt > QUIRE_PREEMPT_RECOMPUTE) {
        return fail(QUIRE_E_ARG, "preempt {} is not known", desc.preempt);
    }
    out->flags = desc.flags;
    out->preempt = desc.preempt;
    uint32_t shards = static_cast<uint32_t>(cache->devices.size());
    out->queue_count = shards;
    if (shards == 0) {
        if (desc.queue_count != 0) {
            return fail(QUIRE_E_ARG,
                        "the cache has no device memory: leave queues empty and set queue_tag");
        }
        if (desc.queue_tag == kAnyQueue) return fail(QUIRE_E_ARG, "queue_tag 2^64-1 is reserved");
        out->queue_tag = desc.queue_tag;
        return Status{};
    }
    if (desc.queues == nullptr) {
        return fail(QUIRE_E_ARG, "queues is NULL: needs one queue per shard, here {}", shards);
    }
    if (desc.queue_count != shards) {
        return fail(QUIRE_E_ARG, "queue_count is {}: needs one queue per shard, here {}",
                    desc.queue_count, shards);
    }
    for (uint32_t i = 0; i < shards; ++i) {
        if (desc.queues[i] == nullptr) return fail(QUIRE_E_ARG, "queues[{}] is NULL", i);
        if (desc.queues[i]->device != cache->devices[i]) {
            return fail(QUIRE_E_ARG, "queues[{}] is on another device than shard {}", i, i);
        }
        if (desc.queues[i]->core.lock.is_abandoned()) {
            return fail(QUIRE_E_STALE, "queues[{}] was abandoned", i);
        }
        out->queues[i] = &desc.queues[i]->core;
    }
    return Status{};
}

}  // namespace quire::abi
