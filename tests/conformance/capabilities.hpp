// SPDX-License-Identifier: Apache-2.0
//
// capabilities: what a backend must have and may have, as data, and the cases that prove it.
//
// Why a list, and not just what the cases happen to cover: a case that skips itself looks like one
// that passed. Here a capability that is not proven is named, and an unproven `must` fails the run.
//
// Invariants (list_problems(), which a test calls)
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
    const char *slots;  // offered only if all are present; separated by blanks
    const char *cases;  // patterns of GoogleTest names, separated by colons
    // Attention: offered if the answer to some swept shape that fits is not no. NULL: functions
    // decide.
    bool (*fits)(const SweptShape &swept);
    // Specific to this backend; NULL: applies to all.
    const char *backend;
};

const std::vector<Capability> &capabilities();

// True if one of the patterns matches the name; `*` stands for any characters.
bool matches(const std::string &patterns, const std::string &name);

// The problems of such a list for a suite of these cases; empty if there are none.
std::vector<std::string> list_problems(const std::vector<Capability> &list,
                                       const std::vector<std::string> &cases);

}  // namespace quire::conformance
