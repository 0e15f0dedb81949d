// SPDX-License-Identifier: Apache-2.0
//
// answers: finished requests and notices that wait to be reaped, and the descriptor that tells.
//
// Invariants
//   (1) the descriptor is readable exactly while something waits
//   (2) at most kMostNotices notices are kept; once one had to be dropped, all are, and LOST is
//       told in their place
//
// Threads: none; the store's mutex guards it. Nothing here waits.
#pragma once

#include <cstdint>
#include <vector>

#include "disk/request.hpp"

namespace quire::disk {

class Answers {
 public:
    static constexpr uint32_t kMostNotices = 4096;

    // 0 or a negative errno. Throws std::bad_alloc.
    int open();
    Answers() = default;
    Answers(const Answers &) = delete;
    Answers &operator=(const Answers &) = delete;
    ~Answers();

    void add(Request *finished);
    void add_gone(const quire_store_label &label);

    // The next one that waits; false: none does. `freed` receives the request that it answers, or
    // NULL for a notice.
    bool take(quire_store_answer *out, Request **freed);

    int descriptor() const { return descriptor_; }

 private:
    bool is_empty() const { return finished_.is_empty() && gone_count_ == 0 && !has_lost_; }
    void update();

    int descriptor_ = -1;
    bool is_readable_ = false;
    RequestQueue finished_;
    std::vector<quire_store_label> gone_;  // a ring
    uint32_t first_gone_ = 0;
    uint32_t gone_count_ = 0;
    bool has_lost_ = false;
};

}  // namespace quire::disk
