// SPDX-License-Identifier: Apache-2.0
//
// rounds: how an attention call is divided into launches: rounds of as many tokens as have room for
// their chunks in the queue's scratch memory, and for each the kernel, by how many blocks it would
// start.
//
// The host decides by the batch's size: how many tokens each row has only the device knows. So a
// launch starts blocks for all that rows may have in its round.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "kernels.hpp"
#include "kernels/calls.hpp"

namespace quire::gpu {

struct AttendKernel {
    KernelName name;
    uint32_t queries_per_unit;
    uint32_t teams = 1;  // units of a block
};

// The queue's scratch memory, and how many tokens make a round.
struct Scratch {
    uint32_t tokens_per_round;
    uint64_t row_bytes;
    uint64_t state_bytes;
    uint64_t value_bytes;

    uint64_t bytes() const { return row_bytes + state_bytes + value_bytes; }
};

// REQUIRES: the call has tokens, and chunk_count is set.
Scratch divide(const AttendCall &call, uint32_t teams_of_prefill);

// What no call of the plan wants more than.
uint64_t scratch_bytes_of(const quire_be_plan_desc &desc);

// Makes of the call its round that begins with this token.
void begin_round(AttendCall *call, uint64_t first_token, const Scratch &scratch);

// Of a round's chunks.
AttendKernel choose_kernel(const AttendCall &round, uint32_t teams_of_prefill);
uint64_t block_count(const AttendCall &round, const AttendKernel &kernel);

// How many seats have a bundle of the round (kernels/bundle.hpp), at most: each row may begin one
// that no other's end fills, and where a round begins within a row, that row's are counted from
// another place than the round's. REQUIRES: the round has tokens.
uint64_t seat_count(const AttendCall &round, uint32_t tokens_of_bundle);

}  // namespace quire::gpu
