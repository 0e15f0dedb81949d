// SPDX-License-Identifier: Apache-2.0
//
// open_step: a step from its begin to its commit or abort, and the items it was given.
//
// Threads: none.
#pragma once
#include <vector>

#include "world.hpp"

namespace hybrid {

// The items of one begin or add.
struct ItemCall {
    std::vector<quire_step_item> items;
    std::vector<uint32_t> tokens;  // of all items
    std::vector<Row> rows;
    std::vector<quire_seq_info> before;
    std::vector<quire_step_result> results;  // one more than items
    uint32_t probed = 0;                     // what quire_prefix_probe found for the first item
    bool was_probed = false;
    bool opened = false;  // it began the step
};

class OpenStep {
 public:
    explicit OpenStep(World &world);
    void play();

 private:
    // items.cpp
    void draw_items(ItemCall *call);
    void draw_item(uint32_t index, ItemCall *call);
    uint32_t draw_count(const Sequence &sequence, uint32_t computed);
    void draw_limits(quire_step_item *item, uint32_t known);
    void refuse_other_queue(const Sequence &sequence);
    // False if the library does not serve lookahead here; then nothing changed.
    bool send(ItemCall *call);
    int32_t begin_or_add(const std::vector<quire_step_item> &items,
                         const std::vector<uint32_t> &tokens, quire_step_result *results,
                         uint64_t *handle);
    // results.cpp
    void check_result(ItemCall &call, size_t k);
    void check_wait(const ItemCall &call, size_t k);
    void check_pool_wait(const quire_step_item &item, const Row &row,
                         const quire_step_result &result);
    void check_hit(const ItemCall &call, size_t k);
    void check_probe(const ItemCall &call, size_t k);
    void check_predicted_hit(const Row &row, uint32_t hit);
    // step.cpp
    void between();
    void preempt();
    void drop();
    void check_preempted();
    void check_preempted_one(const quire_preemption &preemption);
    bool abort();
    void commit();
    void read_rows();
    void plant_table(Row *row);
    bool has_row(uint64_t handle) const;
    // follower.cpp
    void apply_log();
    void compare_follower(const Sequence &sequence);

    World &world_;
    Step step_;
    quire_step_desc desc_ = made<quire_step_desc>();
    bool open_ = false;
    std::vector<uint32_t> candidates_;  // indices of sequences that may get an item
    size_t next_candidate_ = 0;
    std::vector<Sequence> sequences_before_;
    std::vector<Lease> leases_before_;
    bool compare_abort_ = false;
    std::vector<uint64_t> before_;  // if compare_abort_: a snapshot
};

}  // namespace hybrid
