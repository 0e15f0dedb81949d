// SPDX-License-Identifier: Apache-2.0
//
// pressure: who gives up blocks when the pool is short, and how. Pure functions of what they are
// given.
//
// A sequence only gives way to one that was admitted before it (or has a higher priority), so
// that the oldest always gets through and no two sequences push each other out for ever.
//
// Threads: any.
#pragma once

#include "step.hpp"

namespace quire {

struct Candidate {
    uint64_t admitted;  // order of first admission
    int32_t priority;
    bool just_resumed;  // it came back in the step before this one
};

// Does `a` give way before `b`? newest: by admission alone; else by priority first.
inline bool gives_way_before(const Candidate &a, const Candidate &b, bool by_priority) {
    if (by_priority && a.priority != b.priority) return a.priority < b.priority;
    return a.admitted > b.admitted;
}

struct Victim {
    Candidate candidate;
    uint32_t sequence;
};

// For a heap of victims: does `a` go after `b`? Two were never admitted at once, so that no two are
// equal.
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

// Swap or compute again? bytes: of its blocks. tokens: to compute again if they are dropped.
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
