// SPDX-License-Identifier: Apache-2.0
//
// capabilities: what a backend must have and what it may have, as data, and the cases that show it.
//
// Why a list and not what the cases happen to cover: a case that skips itself looks like one that
// passed. Here a capability that is not proven is named, and a `must` among those fails the run.
//
// Invariants (list_problems(); a test asks for it)
//   (1) every case of the suite belongs to at least one capability
//   (2) every pattern of a capability names at least one case
//
// Threads: any; constant data.
#pragma once

#include <string>
#include <vector>

#include "shapes.hpp"

namespace quire::conformance {

enum class Need { must, may };

struct Capability {
    const char *name;
    Need need;
    const char *sentence;
    const char *slots;  // all of them make it offered; separated by blanks
    const char *cases;  // patterns of GoogleTest names, separated by colons
    // Attention: offered when the answer to a swept shape that fits is not no. NULL: the slots say.
    bool (*fits)(const SweptShape &swept);
    // Of one backend alone; NULL: of all.
    const char *backend;
};

const std::vector<Capability> &capabilities();

// One of the patterns fits the name; `*` stands for any characters.
bool matches(const std::string &patterns, const std::string &name);

// What is wrong with such a list for a suite of these cases; empty: nothing.
std::vector<std::string> list_problems(const std::vector<Capability> &list,
                                       const std::vector<std::string> &cases);

}  // namespace quire::conformance
