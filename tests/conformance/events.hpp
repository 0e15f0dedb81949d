// SPDX-License-Identifier: Apache-2.0
//
// events: what a child process reports about its cases while they run, one JSON object per line.
//
//   {"begin": "Suite.case"}
//   {"end": "Suite.case", "outcome": "passed|failed|skipped", "seconds": 0.1, "text": "...",
//    "figures": {...}}
//   {"subject": {...}}            describe()
//   {"cannot": "the reason"}      the plugin cannot be loaded
//
// Why a separate pipe: standard output belongs to GoogleTest and to whatever a plugin prints.
//
// Threads: none.
#pragma once

#include <string>

#include "describe.hpp"
#include "verdict.hpp"

namespace quire::conformance {

void send(int pipe, const Json &event);

// Makes GoogleTest report its cases to `pipe` instead of printing them.
void tell_cases_to(int pipe);

CaseResult case_of(const Json &end_event);

}  // namespace quire::conformance
