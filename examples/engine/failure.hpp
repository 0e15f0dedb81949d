// SPDX-License-Identifier: Apache-2.0
//
// failure: how the engine gives up: one exception whose message says what, where and what to do.
//
// Why an exception: this is a program, not a library. Everything it calls through Quire's C ABI
// returns a status; `cache` turns a status that cannot be handled into a Failure, and main prints
// it.

#pragma once

#include <stdexcept>

namespace engine {

class Failure : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

}  // namespace engine
