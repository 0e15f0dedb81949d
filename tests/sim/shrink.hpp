// SPDX-License-Identifier: Apache-2.0
//
// shrink: makes a script that finds something short, by leaving operations out.
//
// Each attempt is played by a process of its own, so a crash of the library is a finding like
// others.
//
// Threads: none; call it when the others have ended.
#pragma once
#include <string>

#include "runner.hpp"

namespace sim {

// Plays `script` in another process and returns the promise that it finds broken; empty: none.
// known: as World's.
std::string play_apart(const Script &script, const std::string &path, const std::string &known);
Script shrink(Script script, const std::string &promise, const std::string &path,
              const std::string &known);

}  // namespace sim
