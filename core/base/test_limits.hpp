// SPDX-License-Identifier: Apache-2.0
//
// test_limits: limits that a test build can lower at run time, so that cases which are rare in a
// shipped library happen all the time.
//
// In a shipped library each limit is a constant, which the compiler folds.
// A build with -Dtest_limits=true reads them from the environment when an instance is created:
// QUIRE_TEST_LIMITS="hash_bits=4,copy_runs=3".
//
// Threads: set before the first cache is made, then only read.
#pragma once

#include <cstdint>

namespace quire {

struct TestLimits {
    uint32_t hash_bits = 64;           // bits kept of a prefix hash
    uint32_t handle_bits = 56;         // of a handle's number: 2^handle_bits of each type
    uint32_t copy_runs = 0xFFFFFFFFu;  // runs of copies until their numbers start again
};

#ifdef QUIRE_TEST_LIMITS
inline TestLimits test_limits;

// "name=number", separated by commas. False if `text` is anything else; nothing is set then.
bool set_test_limits(const char *text);
#else
inline constexpr TestLimits test_limits;
#endif

}  // namespace quire
