// SPDX-License-Identifier: Apache-2.0
//
// step: one step as the model sees it: its rows, and how the sequences were before it.
//
// Threads: none; values.  Units: tokens, unless a name says otherwise.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "lease.hpp"
#include "lease_tree.hpp"
#include "memory.hpp"
#include "sequence.hpp"

namespace sim {

// A sequence as it was before the open step touched it.
struct Undo {
    Sequence before;
    bool preempted = false;                    // as a victim, else as an item
    std::vector<std::vector<int32_t>> tables;  // of a victim, of each group
};

struct Row {
    uint32_t seq = 0;
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t hit = 0;
    uint32_t ahead = 0;
    uint32_t cross = 0;
    uint32_t mask_rows = 0;
    uint32_t gave_back = 0;  // table entries that it has less than before
    bool may_load = false;   // what it found may come from a load
};

struct Step {
    uint32_t id = 0;
    quire_step handle = 0;
    uint32_t queue = 0;
    uint32_t flags = 0;
    bool began_idle = true;  // no device had work when it began
    uint32_t bit = 0;        // of the 8, once it is committed
    uint64_t number = 0;     // of commits
    uint64_t log = 0;        // its log's number; 0: it has none
    Actor actor;
    std::vector<Row> rows;
    std::vector<Undo> undo;
    uint32_t preemptions = 0;  // seen in step_preempted
    uint32_t swaps = 0;        // of those
    uint32_t how = 0;          // QUIRE_PREEMPT_*, of what it preempts itself
    int batch = -1;
    uint64_t cached_before = 0;  // blocks, at its commit
    bool broken = false;         // its kernels were not all enqueued: it can only fail
    std::vector<Lease> leases_before;
    std::set<uint32_t> leases_changed;
    bool gave = false;              // blocks of leases
    std::map<int32_t, Used> given;  // published ones, and when they were used before
    std::vector<LeaseUse> uses;     // by its work
    std::vector<Sequence> runs;     // that leases publish
    std::vector<std::pair<uint32_t, uint32_t>> lease_hits;  // of namespaces, tokens
};

// What the statistics should say of the steps that were committed.
struct Sums {
    uint64_t hits = 0;
    uint64_t copies_on_write = 0;
    uint64_t swapped_out = 0;
    uint64_t swapped_in = 0;
    uint64_t demoted = 0;
    uint64_t promoted = 0;
    uint64_t swaps = 0;
    uint64_t recomputes = 0;
};

}  // namespace sim
