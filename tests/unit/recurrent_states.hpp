// SPDX-License-Identifier: Apache-2.0
//
// recurrent_states: where a sequence of a cache, whose second group is recurrent, has its states.
//
// Threads: one.
#pragma once

#include <vector>

#include "manager.hpp"

namespace quire::test {

using Entries = std::vector<uint32_t>;

// Entries of the recurrent group's table that are not null.
inline Entries states(Manager &m, quire_seq seq) {
    Entries out;
    const Blocks ids = m.table(seq, 1);
    for (uint32_t i = 0; i < ids.size(); ++i) {
        if (ids[i] != 0) out.push_back(i);
    }
    return out;
}

}  // namespace quire::test
