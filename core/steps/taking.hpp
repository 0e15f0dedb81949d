// SPDX-License-Identifier: Apache-2.0
//
// taking: takes what a plan found: hits, blocks from the host tier, a copied tail, fresh blocks. By
// now nothing can fail.
//
// Ownership: refers to the books, Tenants and Prefixes; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/plan.hpp"
#include "core/steps/tenants.hpp"

namespace quire {

class Taking {
 public:
    Taking(CacheBooks *books, Tenants *tenants, Prefixes *prefixes)
        : books_(*books), tenants_(*tenants), prefixes_(*prefixes) {}

    // Room for what run_item() records before it publishes.
    Room take_room(const Plan &plan) const;
    // Appends the item's tokens to the known ones. REQUIRES: room for them.
    void note_tokens(const quire_step_item &item, const quire_token *tokens, Sequence *s);
    // Takes what the plan found. words: the tokens given with all items.
    void run_item(const quire_step_item &item, const uint32_t *words, Plan *plan, Change *change,
                  quire_step_result *result);
    // For an item that takes and publishes nothing.
    void run_in_place(const quire_step_item &item, const quire_token *tokens, uint32_t sequence,
                      quire_step_result *result);

 private:
    void give_back_passed(const Plan &plan, uint32_t group);
    void note_hit(Change *change, uint32_t group, uint32_t block, uint32_t index);
    void take_hit(Change *change, uint32_t group, uint32_t block, uint32_t index);
    uint32_t take_found(const Plan &plan, Change *change, uint32_t group, uint32_t index);
    uint32_t found_block(const Plan &plan, uint32_t group, uint32_t index) const;
    void hold_found(const Plan &plan, Change *change, uint32_t group);
    void take_hits(const Plan &plan, Change *change, uint32_t group);
    void swap_in(const Plan &plan, Change *change, uint32_t group);
    uint32_t bring_in(uint32_t sequence, Change *change, uint32_t group, uint32_t index,
                      uint32_t host_block);
    void take_beside_load(const Plan &plan, Change *change, uint32_t group);
    void take_loaded(const Plan &plan, Change *change, uint32_t group);
    void let_load_go(const Plan &plan, Change *change, uint32_t group);
    void copy_tail(const Plan &plan, uint32_t group);
    void own_tail(const Plan &plan, uint32_t group);
    void take_rest(const Plan &plan, uint32_t group);
    void take_state(const Plan &plan, uint32_t group);
    void take_all(Plan *plan, Change *change);
    void open_change(Change *change, uint32_t position, uint32_t count);
    void note_drafts(const quire_step_item &item, const Change &change, Sequence *s);
    void move_tokens(uint32_t sequence, Change *change);
    void note_mask(const quire_step_item &item, const uint32_t *words, Change *change);
    void note_item(const quire_step_item &item, const Change &change, quire_step_result *result);

    CacheBooks &books_;
    Tenants &tenants_;
    Prefixes &prefixes_;
};

}  // namespace quire
