// SPDX-License-Identifier: Apache-2.0
//
// admission: adds one item after another, each completely or not at all.
//
// Order: the item is checked, its prefix looked up, its need measured. If blocks are missing,
// make_room() asks Preemption for victims and measures again. Only when everything that the item
// needs is available is anything changed, and from then on nothing can fail.
//
// Ownership: refers to the books and to the parts below it; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/changes.hpp"
#include "core/steps/needs.hpp"
#include "core/steps/preemption.hpp"
#include "core/steps/taking.hpp"

namespace quire {

// Items of one begin or add call, as the caller gave them; strides are checked. A caller of an
// older version has shorter items: the fields that they lack are 0.
struct ItemList {
    const uint8_t *items = nullptr;
    uint32_t count = 0;
    uint32_t stride = 0;
    const quire_token *tokens = nullptr;
    uint32_t token_count = 0;
    uint8_t *results = nullptr;
    uint32_t result_stride = 0;

    mutable quire_step_item shorter{};  // a copy of the item asked for last, if items are shorter

    // Valid until another item is asked for.
    const quire_step_item &item(uint32_t i) const {
        const uint8_t *at = items + uint64_t{i} * stride;
        if (stride >= sizeof shorter) [[likely]]
            return *reinterpret_cast<const quire_step_item *>(at);
        std::memcpy(&shorter, at, stride);
        return shorter;
    }
    quire_step_result &result(uint32_t i) const {
        return *reinterpret_cast<quire_step_result *>(results + uint64_t{i} * result_stride);
    }
};

class Admission {
 public:
    Admission(CacheBooks *books, Prefixes *prefixes, Changes *changes, Preemption *preemption,
              Needs *needs, Taking *taking)
        : books_(*books),
          prefixes_(*prefixes),
          changes_(*changes),
          preemption_(*preemption),
          needs_(*needs),
          taking_(*taking) {}

    // Adds the items to the open step, all or none; an item that is short waits.
    Status add_items(const ItemList &list);

 private:
    bool may_go_back(const quire_step_item &item) const;
    Status check_wishes(const ItemList &list, uint32_t i, uint32_t known, uint32_t computed) const;
    Status check_item(const ItemList &list, uint32_t i, uint32_t *sequence);
    Status mark_items(const ItemList &list);
    Status add_item(const ItemList &list, uint32_t i);
    Status add_planned(const ItemList &list, uint32_t i, uint32_t sequence);
    Status plan_item(const ItemList &list, uint32_t i, Plan *plan, Short *missing);
    void measure(const quire_step_item &item, Plan *plan);
    Status make_plan(const quire_step_item &item, const quire_token *tokens, uint32_t sequence,
                     Plan *plan);
    bool stays_in_place(const quire_step_item &item, uint32_t sequence) const;
    bool has_waited(const quire_step_item &item, const Sequence &s,
                    const quire_token *tokens) const;
    Status find_prefix(Plan *plan, bool has_waited, bool may_load);
    void find_load(uint32_t blocks, Plan *plan);
    Status make_room(Plan *plan, Short *missing);
    Status preempt_for(Plan *plan, VictimScope scope, Short *missing);
    Status reserve(Plan *plan);

    CacheBooks &books_;
    Prefixes &prefixes_;
    Changes &changes_;
    Preemption &preemption_;
    Needs &needs_;
    Taking &taking_;
};

}  // namespace quire
