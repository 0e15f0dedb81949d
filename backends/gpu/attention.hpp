// SPDX-License-Identifier: Apache-2.0
//
// attention: attention calls and merges.
//
// A call becomes a check of its rows, and rounds of two kernels: one computes, for each query and
// each chunk of 512 places of its row, the softmax over the chunk and what it weighs; the other
// folds a query's chunks, in their order. Chunks lie at fixed places, so the bits of a row do not
// depend on what else is in the batch; a long row is computed by as many workgroups as it has
// chunks, which is what is called split-KV. What makes a round says rounds.hpp.
//
// Threads: as queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::gpu {

quire_status attention(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                       quire_error *error);

quire_status merge(quire_be_queue *queue, const quire_be_merge *args, quire_error *error);

}  // namespace quire::gpu
