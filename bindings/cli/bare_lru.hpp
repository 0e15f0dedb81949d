// SPDX-License-Identifier: Apache-2.0
//
// bare_lru: the least that a replay can cost: blocks known by a number, a hash table, one list by
// age; no tokens, no steps, no verification. Only a yardstick for `quire replay --baseline`.
#pragma once

#include <cstdint>

#include "trace.hpp"

namespace quire::cli {

// Returns CPU seconds; *hit_tokens receives the hits in tokens.
double run_bare_lru(const Trace &trace, uint32_t blocks, uint32_t block_tokens,
                    uint64_t *hit_tokens);

// CPU time of the whole process, all threads, in seconds.
double process_seconds();

}  // namespace quire::cli
