// SPDX-License-Identifier: Apache-2.0
//
// rounds: divides an attention call into launches, except one for the decode kernels (decode.hpp).
// A round takes as many tokens as have room for their chunks in the queue's scratch memory; its
// kernel is chosen by how many blocks it would start.
//
// The host decides by the batch's size, since only the device knows how many tokens each row has.
// So a launch starts enough blocks for anything its rows may have in the round.
//
// Threads: any; stateless.
#pragma once

#include <cstdint>

#include "kernels.hpp"
#include "kernels/calls.hpp"

namespace quire::gpu {

struct AttendKernel {
    KernelName name;
    uint32_t queries_per_unit;
    uint32_t teams = 1;  // units per block
};

// The layout of the queue's scratch memory, and how many tokens a round has.
struct Scratch {
    uint32_t tokens_per_round;
    uint64_t row_bytes;
    uint64_t state_bytes;
    uint64_t value_bytes;

    uint64_t bytes() const { return row_bytes + state_bytes + value_bytes; }
};

// REQUIRES: the call has tokens, and chunk_count is set.
Scratch divide(const AttendCall &call, uint32_t teams_of_prefill);

// An upper bound on what any call of the plan needs.
uint64_t scratch_bytes_of(const quire_be_plan_desc &desc);

// Sets the call to its round that begins with this token, and how its blocks are numbered.
void begin_round(AttendCall *call, uint64_t first_token, const Scratch &scratch);

// The kernel that computes a round's chunks.
AttendKernel choose_kernel(const AttendCall &round, uint32_t teams_of_prefill);
uint64_t block_count(const AttendCall &round, const AttendKernel &kernel);

// An upper bound on the seats of the round's bundles (kernels/bundle.hpp): each row may begin a
// bundle that no other row's end shares, and if the round begins within a row, that row's bundles
// are counted from a different origin than the round's. REQUIRES: the round has tokens.
uint64_t seat_count(const AttendCall &round, uint32_t tokens_of_bundle);

}  // namespace quire::gpu
