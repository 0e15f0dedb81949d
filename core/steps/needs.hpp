// SPDX-License-Identifier: Apache-2.0
//
// needs: how many blocks an item takes in every group, and whether they are there.
//
// Ownership: refers to the books; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/state_move.hpp"
#include "core/steps/plan.hpp"

namespace quire {

class Needs {
 public:
    explicit Needs(CacheBooks *books) : books_(*books) {}
    void create(const quire_cache_desc &desc) { watermark_ = desc.watermark_blocks; }

    // Fills in what the plan takes, from its position, hits and `reuses`.
    void measure(Plan *plan);
    // What is missing of the namespace's quota.
    Short quota_shortage(const Plan &plan) const;
    // What is missing in the shortest pool, or else of the quota.
    Short shortage(const Plan &plan) const;
    uint32_t watermark() const { return watermark_; }

 private:
    void measure_passed(Plan *plan, uint32_t group) const;
    void measure_found(Plan *plan, uint32_t group) const;
    void measure_state(Plan *plan, uint32_t group, uint32_t length) const;
    bool moves_state(const Plan &plan, uint32_t group) const;
    bool tail_is_writable(uint32_t sequence, uint32_t group, uint32_t position);

    CacheBooks &books_;
    uint32_t watermark_ = 0;
};

}  // namespace quire
