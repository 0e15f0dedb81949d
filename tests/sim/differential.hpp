// SPDX-License-Identifier: Apache-2.0
//
// differential: a cache whose evicted blocks live on in the host tier, beside one with a pool of
// both sizes: "together they hold as much as one pool of both sizes, less one block".
//
// Threads: none.
#pragma once
#include <string>

#include "quire/quire.h"

namespace sim {

// Plays one seed on both caches, one sequence at a time. Throws Finding.
void play_both(const quire_api *api, quire_instance *instance, uint64_t seed, uint32_t ops);

}  // namespace sim
