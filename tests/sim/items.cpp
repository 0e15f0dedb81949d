// SPDX-License-Identifier: Apache-2.0
//
// items: builds what begin and add are given, and says which errors the headers name for it.
#include "items.hpp"

#include <algorithm>

namespace sim {

namespace {

// The tree as QUIRE_MASK_BITS: the first key is the first draft; bit j of row i: draft i sees draft
// j.
void append_bits(std::vector<uint32_t> &words, const std::vector<uint32_t> &parents,
                 const std::vector<uint32_t> &position, uint32_t root) {
    words.push_back(root);
    words.insert(words.end(), position.begin(), position.end());
    for (uint32_t i = 0; i < parents.size(); ++i) {
        uint32_t bits = 1u << i;
        for (uint32_t p = parents[i]; p != QUIRE_MASK_ROOT; p = parents[p]) bits |= 1u << p;
        words.push_back(bits);
    }
}

}  // namespace

void World::build(Items &items, uint32_t queue) {
    items.loads_begun = loads_begun();
    std::vector<Op> ops;
    ops.swap(pending);
    for (const Op &op : ops)
        if (find(op.f[0]) != nullptr) build_item(items, op);
    items.results.assign(items.items.size() + 1, {});
    for (quire_step_result &result : items.results) result.outcome = ~0u;
    judge(items, queue);
}

void World::build_item(Items &items, const Op &op) {
    const auto [id, count, doc, max, drafts, ahead, tree, unknown, bad] =
        std::array{op.f[0], op.f[1], op.f[2], op.f[3], op.f[4], op.f[5], op.f[6], op.f[7], op.f[8]};
    Sequence &seq = *find(id);
    PlannedItem plan;
    plan.seq = id;
    plan.drafts = std::min(drafts, count);
    plan.ahead = ahead;
    plan.max = max;
    plan.doc = doc;
    plan.limit = op.f[10];
    plan.load = op.f[11];
    plan.op = op;
    const uint32_t root = seq.known() + count - plan.drafts;
    Rng rng(tree);
    std::vector<uint32_t> position(plan.drafts);
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t place = seq.known() + i;
        uint32_t token = document_token(doc, place);
        if (place >= root && tree != 0) {
            const uint32_t draft = place - root;
            const uint32_t parent = rng.below(draft + 1);  // 0 is the root
            plan.parents.push_back(parent == 0 ? QUIRE_MASK_ROOT : parent - 1);
            position[draft] = parent == 0 ? root : position[parent - 1] + 1;
            token = document_token(doc + draft * 101, position[draft]);
        }
        plan.tokens.push_back(token);
        plan.unknown.push_back(i + unknown >= count);
    }
    quire_step_item item{};
    item.seq = seq.handle;
    item.token_offset = static_cast<uint32_t>(items.tokens.size());
    item.token_count = count;
    item.max_compute = max;
    item.draft_count = plan.drafts;
    item.lookahead = ahead;
    item.max_hit_tokens = op.f[10];
    item.flags = op.f[11] != 0 ? QUIRE_ITEM_MAY_LOAD : 0;
    for (uint32_t i = 0; i < count; ++i)
        items.tokens.push_back(plan.unknown[i] ? QUIRE_TOKEN_UNKNOWN : plan.tokens[i]);
    if (!plan.parents.empty()) {
        item.mask_kind = op.f[9] != 0 ? QUIRE_MASK_BITS : QUIRE_MASK_PARENTS;
        item.mask_offset = static_cast<uint32_t>(items.tokens.size());
        item.mask_rows = plan.drafts;
        plan.mask_rows = plan.drafts;
        if (op.f[9] != 0)
            append_bits(items.tokens, plan.parents, position, root);
        else
            items.tokens.insert(items.tokens.end(), plan.parents.begin(), plan.parents.end());
    }
    if (bad != 0) spoil_item(items, op, item, seq);
    items.items.push_back(item);
    items.planned.push_back(std::move(plan));
    if (bad == kBadTwice) {
        items.items.push_back(item);
        items.planned.push_back(items.planned.back());
    }
}

void World::spoil_item(Items &items, const Op &op, quire_step_item &item, Sequence &seq) {
    const uint32_t rows = item.draft_count;
    switch (op.f[8]) {
        case kBadHandle:
            item.seq =
                stale_.empty() ? seq.handle ^ 0x5A5A00000000ull : stale_[op.f[2] % stale_.size()];
            items.errors.push_back(QUIRE_E_STALE);
            return;
        case kBadReserved:
            item.flags = 2u << op.f[2] % 31;
            items.errors.push_back(QUIRE_E_STRUCT);
            return;
        case kBadTwice:
            break;
        case kBadDrafts:
            item.draft_count = seq.known() + item.token_count + 1;
            break;
        case kBadOffset:
            item.token_offset = 0xFFFFFFF0u;
            break;
        case kBadLength:
            item.token_count = config.max_tokens + 1;
            item.token_offset = 0;
            items.tokens.resize(std::max<size_t>(items.tokens.size(), item.token_count), 1);
            items.errors.push_back(QUIRE_E_LIMIT);
            return;
        case kBadMask:
            item.mask_kind = 77;
            break;
        case kBadParent:
            if (rows == 0 || item.mask_kind != QUIRE_MASK_PARENTS) {
                item.mask_kind = 77;
                break;
            }
            items.tokens[item.mask_offset + rows - 1] = rows;
            break;
        case kBadRows:
            item.mask_kind = QUIRE_MASK_PARENTS;
            item.mask_rows = rows + 1;
            item.mask_offset = 0;
            items.tokens.resize(std::max<size_t>(items.tokens.size(), rows + 1), 0);
            break;
        case kBadWords:
            item.mask_kind = QUIRE_MASK_BITS;
            item.mask_rows = 1;
            item.mask_offset = 0xFFFFFF00u;
            break;
        default:
            item.token_count = 0x7FFFFFFFu;
            break;
    }
    // A wrong count may be found by its range or by the limit.
    items.errors.push_back(QUIRE_E_ARG);
    bool any_recurrent = false;
    for (uint32_t g = 0; g < config.groups.size(); ++g) any_recurrent |= config.recurrent(g);
    const bool goes_back = item.draft_count != 0 || item.mask_kind != 0 ||
                           (item.lookahead != 0 && config.dense_states());
    if (item.mask_kind == 77 || (any_recurrent && goes_back))
        items.errors.push_back(QUIRE_E_UNSUPPORTED);
    if (op.f[8] == kBadOffset || op.f[8] >= kBadCount) items.errors.push_back(QUIRE_E_LIMIT);
    if (op.f[8] == kBadOffset && item.token_count == 0) items.unsure = true;
}

void World::judge(Items &items, uint32_t queue) {
    for (size_t i = 0; i < items.planned.size(); ++i) {
        const PlannedItem &plan = items.planned[i];
        const Sequence &seq = *find(plan.seq);
        const uint32_t total = seq.known() + static_cast<uint32_t>(plan.tokens.size());
        // Its last step is unfinished, and on another queue (README.md, question 1).
        for (const Step &other : committed)
            if (seq.last_steps >> other.bit & 1 && (queue == ~0u || other.queue != queue))
                items.may_be_busy = true;
        if (seq.drafts != 0) items.errors.push_back(QUIRE_E_BUSY);
        if (seq.has_item) {
            items.errors.push_back(QUIRE_E_BUSY);
            items.errors.push_back(QUIRE_E_ARG);
        } else if (seq.in_step) {  // preempted in this step
            items.unsure = items.may_be_busy = true;
        }
        for (size_t j = 0; j < i; ++j)
            if (items.planned[j].seq == plan.seq) {
                items.errors.push_back(QUIRE_E_ARG);
                items.errors.push_back(QUIRE_E_BUSY);
            }
        if (total > config.max_tokens) items.errors.push_back(QUIRE_E_LIMIT);
        if (total + plan.ahead > config.max_tokens) items.unsure = true;
        if (total == seq.computed) items.unsure = true;
        if (plan.drafts != 0 && plan.max != 0) items.unsure = true;
        for (size_t t = plan.tokens.size() - plan.drafts; t < plan.tokens.size(); ++t)
            if (plan.unknown[t]) items.unsure = true;
    }
}

}  // namespace sim
