// SPDX-License-Identifier: Apache-2.0
//
// records: what the model remembers of namespaces, sequences, leases and steps.
//
// Threads: none.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "content.hpp"

namespace hybrid {

struct Namespace {
    quire_namespace handle = 0;
    uint32_t serial = 0;
    uint32_t quota = 0;
    bool alive = false;
};

struct Sequence {
    uint64_t handle = 0;
    uint32_t ns = 0;  // index
    uint32_t key_set = no_key;
    uint32_t media_begin = 0, media_end = 0;
    std::vector<uint32_t> tokens;
    std::vector<char> named;  // per token: whether the library was given it
    uint32_t drafts = 0;
    std::vector<uint32_t> lookahead;  // tokens that its last step wrote past its known ones
    bool lookahead_kept = false;
    uint32_t last_step = 0;
    uint64_t last_queue = 0;
    uint32_t priority = 0;
    uint64_t admitted = 0;  // order of first commits; 0: not yet
    bool alive = true;
    std::set<uint32_t> snapshots;  // lengths at which every interval group kept its state
};

using GroupBlock = std::pair<uint32_t, int32_t>;

struct LeaseBlock {
    uint32_t holds = 0;
    bool owned = false;
    bool known = false;  // whether `content` is
    std::vector<uint64_t> content;
    uint32_t filled_in = 0;  // step
    uint64_t filled_on = 0;  // its queue
    uint32_t published_in = 0;
};

struct Lease {
    uint64_t handle = 0;
    uint32_t ns = 0;
    uint32_t key_set = no_key;
    std::set<uint32_t> steps;  // that used it
    std::map<GroupBlock, LeaseBlock> blocks;
    bool alive = true;
    uint64_t lost = 0;
};

// An item that runs.
struct Row {
    uint32_t sequence = 0;  // index
    uint64_t handle = 0;
    uint32_t tenant = 0;
    uint32_t first = 0, count = 0, known = 0;
    std::vector<uint64_t> chain;
    std::vector<std::vector<int32_t>> tables;  // per group, after the commit
    uint32_t lookahead = 0;
    bool writes_lookahead = false;
    uint32_t hit = 0;
    Sequence before;
};

// A leased block that the step writes, or whose content it checks.
struct LeasedContent {
    uint32_t group;
    int32_t block;
    std::vector<uint64_t> content;
    uint32_t tenant;
    uint32_t lease;  // index
};

// How the model damages the writes of a step that will fail.
enum class Damage : uint32_t { unwritten = 0, garbage = 1, none = 2 };

struct Step {
    uint32_t id = 0;
    uint64_t handle = 0;
    uint64_t follower_handle = 0;
    uint64_t queue = 0;
    std::vector<quire_block_copy> copies;
    std::vector<Row> rows;
    std::vector<LeasedContent> fills;
    std::vector<LeasedContent> checks;
    bool will_fail = false;
    Damage damage = Damage::unwritten;
    int mark = -1;
    bool executed = false, finished = false;
    uint64_t committed_at = 0;
};

}  // namespace hybrid
