// SPDX-License-Identifier: Apache-2.0
//
// rounds: how often a measurement is repeated.
#pragma once

#include <chrono>
#include <cstdint>

namespace quire::bench {

// Until the time is over, at least 2 and at most 25 times:  for (Rounds r(2.0); r.next();) ...
class Rounds {
 public:
    explicit Rounds(double seconds)
        : end_(std::chrono::steady_clock::now() +
               std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                   std::chrono::duration<double>(seconds))) {}

    bool next() {
        if (count_ >= 25 || (count_ >= 2 && std::chrono::steady_clock::now() >= end_)) return false;
        ++count_;
        return true;
    }
    uint32_t count() const { return count_; }

 private:
    std::chrono::steady_clock::time_point end_;
    uint32_t count_ = 0;
};

}  // namespace quire::bench
