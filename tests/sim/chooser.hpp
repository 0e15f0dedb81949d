// SPDX-License-Identifier: Apache-2.0
//
// chooser: the next operation of a random script, by what lives in the world now.
//
// Threads: none.
#pragma once
#include <deque>

#include "world.hpp"

namespace sim {

class Chooser {
 public:
    Chooser(const World &world, uint64_t seed);
    // The world that it chooses for, after the one before was abandoned.
    void look_at(const World &world) { world_ = &world; }
    Op next();
    // Faults stop: none is chosen any more.
    Op calm();

 private:
    void idle();      // no step is open
    void planning();  // one is
    void sequence_op();
    void cache_op();
    void make_sequence();
    bool flood();
    void recall();
    uint32_t leaving_document();
    void revisit();
    void make_items(uint32_t most);
    void make_item(const Sequence &seq);
    void limit_item(const Sequence &seq, Op &item);
    void begin_step();
    void finish_one();
    void plant_fault();
    void plant_loss();
    void move();
    void tier_op();
    void tier_recall();
    void resend();
    void lease_op();
    void lease_at_once(uint32_t id);
    void lone_op();
    void lone_planning();
    void lone_idle();
    Op &push(OpKind kind, std::initializer_list<uint32_t> fields);
    const Sequence *any();
    bool on(Feature feature) const { return world_->config.has(feature); }

    const World *world_;
    Rng rng_;
    // Apart: without its feature a seed plays what it always did.
    Rng limit_rng_;
    Rng fault_rng_;
    Rng lost_rng_;
    Rng flood_rng_;
    Rng move_rng_;
    Rng host_rng_;
    Rng tier_rng_;
    Rng lease_rng_;
    Rng partial_rng_;
    Rng at_once_rng_;
    Rng lone_rng_;
    std::deque<Op> queue_;
    uint32_t next_seq_ = 1;
    uint32_t next_step_ = 1;
    uint32_t next_ns_ = 1;
    uint32_t next_lease_ = 1;
    uint32_t lease_percent_;
    uint32_t lone_percent_;  // of operations on leases
    uint32_t revisit_percent_;
    uint32_t revisit_most_;
    uint32_t fail_percent_;
    uint32_t abort_percent_;
    uint32_t end_percent_;
    uint32_t finish_percent_;
    uint32_t bad_percent_;
    uint32_t side_percent_;
    uint32_t long_percent_;
    uint32_t advance_percent_;
    uint32_t limit_percent_;
    uint32_t fault_percent_;
    uint32_t lost_percent_;
    uint32_t flood_percent_;
    uint32_t recall_percent_;
    uint32_t recall_most_;
    uint32_t tier_percent_;
    uint32_t store_percent_;  // of answers that are not as they should be
    uint32_t load_percent_;
    uint32_t flooder_ = 0;  // the namespace that sends the most
    bool calm_ = false;
};

}  // namespace sim
