// SPDX-License-Identifier: Apache-2.0
//
// random_walk: random items, forks, truncations, ends and aborts of up to five sequences; the
// library checks itself after each.
//
// Threads: none.
#pragma once

#include <random>
#include <vector>

#include "leased.hpp"

namespace quire::test {

struct Walk {
    uint32_t most_tokens;         // of an item
    bool drops_prefixes = false;  // half of the ends do
    bool forks_whole = false;     // most forks share all tokens
    uint32_t most_lookahead = 0;  // of an item
};

inline void walk_randomly(Manager &m, uint32_t seed, const Walk &walk) {
    std::mt19937 generator(seed);
    auto below = [&](uint32_t end) { return static_cast<uint32_t>(generator() % end); };
    std::vector<quire_seq> all;
    for (uint32_t i = 0; i < 300; ++i) {
        if (all.size() < 5 && below(3) == 0) all.push_back(m.sequence());
        if (all.empty()) continue;
        const uint32_t at = below(static_cast<uint32_t>(all.size()));
        const uint32_t known = m.info(all[at]).known_tokens;
        switch (below(8)) {
            case 0:
                m.end(all[at],
                      walk.drops_prefixes && below(2) == 0 ? uint32_t{QUIRE_END_DROP_PREFIX} : 0u);
                all.erase(all.begin() + at);
                break;
            case 1:
                if (all.size() == 5 || (m.info(all[at]).flags & QUIRE_SEQ_SWAPPED) != 0) break;
                all.push_back(
                    m.fork(all[at], walk.forks_whole && below(3) != 0 ? known : below(known + 1)));
                break;
            case 2:
                EXPECT_EQ(m.api().seq_truncate(m.cache(), all[at], below(known + 1), m.error()),
                          QUIRE_OK);
                m.check();
                break;
            default: {
                m.begin({.may_preempt = true});
                const uint32_t lookahead =
                    walk.most_lookahead != 0 ? below(walk.most_lookahead + 1) : 0;
                m.add(all[at], tokens_from(1 + known, 1 + below(walk.most_tokens)),
                      {.lookahead = lookahead});
                m.check();
                if (below(5) == 0) {
                    m.abort();
                } else {
                    m.finish(m.commit(), below(8) == 0 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
                }
                m.check();
            }
        }
    }
}

}  // namespace quire::test
