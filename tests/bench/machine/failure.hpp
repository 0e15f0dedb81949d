// SPDX-License-Identifier: Apache-2.0
//
// failure: how a benchmark gives up: one exception whose message says what failed and what to do.
#pragma once

#include <stdexcept>

namespace quire::bench {

class Failure : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

// The library does not support the case, and said why. Other cases may work.
class Unsupported : public Failure {
 public:
    using Failure::Failure;
};

}  // namespace quire::bench
