// SPDX-License-Identifier: Apache-2.0
//
// followed: a leader's committed step, applied by a follower.
//
// Threads: none.
#pragma once

#include "manager.hpp"

namespace quire::test {

// Applies the log of the leader's step. Returns the follower's step, which is to be finished.
inline quire_step apply_log(Manager &follower, Manager &leader, quire_step step) {
    std::vector<uint8_t> log(1 << 16);
    uint64_t size = 0;
    EXPECT_EQ(
        leader.api().step_log(leader.cache(), step, log.data(), log.size(), &size, leader.error()),
        QUIRE_OK)
        << leader.message();
    auto desc = described<quire_step_desc>();
    quire_step applied = 0;
    EXPECT_GE(follower.api().log_apply(follower.cache(), log.data(), size, &desc, nullptr, &applied,
                                       follower.error()),
              0)
        << follower.message();
    return applied;
}

inline void finish_applied(Manager &follower, quire_step applied) {
    EXPECT_EQ(follower.api().step_finish(follower.cache(), applied, nullptr, QUIRE_STEP_OK,
                                         follower.error()),
              QUIRE_OK)
        << follower.message();
    follower.check();
}

}  // namespace quire::test
