// SPDX-License-Identifier: Apache-2.0
//
// direct: the work alone: the same steps as in client.c, by calls of the core's own functions,
// linked into the program, without table, guard, lock or struct checks.
//
// Threads: none.
#pragma once

#include "core/cache.hpp"

namespace quire::bench {

class Direct {
 public:
    Direct();
    Direct(const Direct &) = delete;
    Direct &operator=(const Direct &) = delete;

    void run_empty(uint32_t steps);
    void start();
    void run_decode(uint32_t steps);
    void end();

 private:
    void run_step(const uint32_t *tokens, uint32_t count);

    Cache cache_;
    StepOptions options_;
    quire_step_item item_{};
    quire_error error_{};
    uint32_t next_token_ = 0;
};

}  // namespace quire::bench
