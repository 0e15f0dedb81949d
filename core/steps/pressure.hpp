// SPDX-License-Identifier: Apache-2.0
//
// pressure: which sequences give up blocks when the pool is short, and how. Pure functions.
//
// A sequence only gives way to one that was admitted before it (or has a higher priority), so that
// the oldest always makes progress and no two sequences preempt each other for ever.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "quire/step.h"

namespace quire {

struct Candidate {
    uint64_t admitted;  // order of first admission
    int32_t priority;
    bool just_resumed;  // it came back in the step before this one
};

// True if `a` gives way before `b`: with by_priority the one of lower priority; among equals, and
// otherwise, the one admitted last.
inline bool gives_way_before(const Candidate &a, const Candidate &b, bool by_priority) {
    if (by_priority && a.priority != b.priority) return a.priority < b.priority;
    return a.admitted > b.admitted;
}

struct Victim {
    Candidate candidate;
    uint32_t sequence;
};

// The order of a heap of victims: true if `a` gives way after `b`. No two were admitted at once, so
// no two are equal.
struct VictimOrder {
    bool by_priority;
    bool operator()(const Victim &a, const Victim &b) const {
        if (a.candidate.just_resumed != b.candidate.just_resumed) return a.candidate.just_resumed;
        return gives_way_before(b.candidate, a.candidate, by_priority);
    }
};

struct SwapCost {
    double swap_bytes_per_second;
    double prefill_tokens_per_second;
};

// Chooses swap or recompute. bytes: of the victim's blocks. tokens: to compute again if the blocks
// are dropped.
inline uint32_t choose_preemption(uint32_t asked, bool host_has_room, uint64_t bytes,
                                  uint64_t tokens, const SwapCost &cost) {
    if (asked != QUIRE_PREEMPT_AUTO) return asked;
    if (!host_has_room) return QUIRE_PREEMPT_RECOMPUTE;
    if (cost.swap_bytes_per_second <= 0 || cost.prefill_tokens_per_second <= 0) {
        return QUIRE_PREEMPT_SWAP;
    }
    double swap_seconds = 2.0 * static_cast<double>(bytes) / cost.swap_bytes_per_second;
    double compute_seconds = static_cast<double>(tokens) / cost.prefill_tokens_per_second;
    return swap_seconds <= compute_seconds ? QUIRE_PREEMPT_SWAP : QUIRE_PREEMPT_RECOMPUTE;
}

}  // namespace quire
