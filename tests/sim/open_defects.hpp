// SPDX-License-Identifier: Apache-2.0
//
// open_defects: the promises that the library is known to break today, in one list. Each entry is
// a defect that is known and open (README.md, "Known and open"); whoever mends one takes it out.
//
// Threads: none; constants.
#pragma once

namespace sim {

// Passed over: the model goes on from what the library did.
constexpr const char *kKnown = "";

// The seed ends there and does not count: the model knows no way on.
constexpr const char *kIgnored = "";

}  // namespace sim
