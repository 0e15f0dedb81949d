// SPDX-License-Identifier: Apache-2.0
//
// pool_calls: validates KV writes, moves, attention calls and merges.
//
// These checks cover what a call shows at once: pointers, strides, the pool, the plan. Slots,
// tables and lengths are in device memory, which earlier work may still write.
//
// A resolved call is a copy of the caller's in which strides of 0 have become dense.
//
// Threads: any; nothing is kept.
#pragma once

#include "quire/plugin/backend.h"
#include "shared/plan_options.hpp"

namespace quire {

quire_status resolve_kv_write(const quire_be_kv_write *args, quire_be_kv_write *resolved,
                              quire_error *error);
// Validates what the plan's rope, if it has one, needs from the call.
quire_status resolve_rope(const PlanOptions &options, quire_be_kv_write *resolved,
                          quire_error *error);

quire_status check_moves(const quire_be_pool *pool, const quire_be_move *moves, uint32_t count,
                         quire_error *error);

quire_status resolve_attention(const PlanOptions &options, const quire_be_attention *args,
                               quire_be_attention *resolved, quire_error *error);

quire_status check_merge(const quire_be_merge *args, quire_error *error);

}  // namespace quire
