// SPDX-License-Identifier: Apache-2.0
//
// failure: how a benchmark gives up: one exception whose sentence says what and what to do.
#pragma once

#include <stdexcept>

namespace quire::bench {

class Failure : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

// What is measured is not offered by the library, which said why. Others may be.
class Unsupported : public Failure {
 public:
    using Failure::Failure;
};

}  // namespace quire::bench
