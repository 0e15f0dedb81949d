// SPDX-License-Identifier: Apache-2.0
//
// breaker: leaves a node alone that failed several times in a row.
//
// closed: requests go to the node. After `limit` failures in a row it opens: requests fail at once.
// After the cool-down one request may go as a probe; its answer closes the breaker, its failure
// opens it again. A probe that ends without either is followed by another after a cool-down.
//
// Threads: none; a lane's thread.
#pragma once

#include <cstdint>

namespace quire::valkey {

class Breaker {
 public:
    Breaker(uint32_t limit, uint64_t cooldown_ns) : limit_(limit), cooldown_ns_(cooldown_ns) {}

    // True if a request may go to the node now. Where the breaker is open, it is the probe.
    bool allows(uint64_t now_ns) {
        if (!is_open_) return true;
        if (now_ns < until_ns_) return false;
        until_ns_ = now_ns + cooldown_ns_;
        return true;
    }
    void succeeded() {
        is_open_ = false;
        failure_count_ = 0;
    }
    // True if this failure opens the breaker.
    bool failed(uint64_t now_ns) {
        failure_count_ += failure_count_ < limit_;
        if (failure_count_ < limit_) return false;
        const bool was_open = is_open_;
        is_open_ = true;
        until_ns_ = now_ns + cooldown_ns_;
        return !was_open;
    }
    bool is_open() const { return is_open_; }
    bool has_failed() const { return failure_count_ != 0; }

 private:
    uint32_t limit_;
    uint64_t cooldown_ns_;
    uint32_t failure_count_ = 0;
    bool is_open_ = false;
    uint64_t until_ns_ = 0;
};

}  // namespace quire::valkey
