// SPDX-License-Identifier: Apache-2.0
//
// child: runs this program again in a child process, with a bound on its silence.
//
// Why: a plugin that crashes or hangs is a result to report, not the end of the run.
//
// Threads: none. The child dies with this process.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace quire::conformance {

struct ChildEnd {
    bool is_clean = false;  // exited by itself with 0 or 1, GoogleTest's "some case failed"
    std::string how;        // otherwise, in words: "was killed by signal 11 (Segmentation fault)"
    std::string output;     // the last that it printed
};

// `on_line` gets each line of the event pipe; the child finds the pipe's number in --events=N. A
// child that sends no line for `silence_s` seconds is killed with everything that it started.
// Throws std::system_error if no child can be created.
ChildEnd run_child(std::vector<std::string> arguments, uint32_t silence_s,
                   const std::function<void(const std::string &)> &on_line);

}  // namespace quire::conformance
