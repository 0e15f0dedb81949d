// SPDX-License-Identifier: Apache-2.0
//
// memory: see memory.hpp.
#include "memory.hpp"

namespace sim {
namespace {

const char *tier_name(Tier tier) { return tier == kDevice ? "block" : "host block"; }

}  // namespace

void Memory::reset(const std::vector<uint32_t> &block_tokens,
                   const std::vector<uint32_t> &device_blocks,
                   const std::vector<uint32_t> &host_blocks, bool one_pool) {
    block_tokens_ = block_tokens;
    one_pool_ = one_pool;
    for (uint32_t tier = 0; tier < 2; ++tier) {
        const std::vector<uint32_t> &counts = tier == kDevice ? device_blocks : host_blocks;
        const size_t pools = one_pool ? 1 : counts.size();
        pools_[tier].assign(pools, {});
        for (size_t g = 0; g < pools; ++g) {
            const uint32_t places =
                one_pool ? *std::max_element(block_tokens.begin(), block_tokens.end())
                         : block_tokens[g];
            pools_[tier][g].blocks = counts[g];
            pools_[tier][g].places = places;
            pools_[tier][g].slots.assign(static_cast<size_t>(counts[g]) * places, {});
            pools_[tier][g].must_zero.assign(counts[g], 0);
        }
    }
}

Slot &Memory::at(Tier tier, uint32_t group, int32_t block, uint32_t place) {
    Pool &pool = this->pool(tier, group);
    if (block < 0 || static_cast<uint32_t>(block) >= pool.blocks || place >= pool.places)
        fail("id-range", "group %u: %s %d place %u lies outside a pool of %u blocks", group,
             tier_name(tier), block, place, pool.blocks);
    return pool.slots[static_cast<size_t>(block) * pool.places + place];
}

const Slot *Memory::block(Tier tier, uint32_t group, int32_t block) const {
    const Pool &pool = this->pool(tier, group);
    if (block < 0 || static_cast<uint32_t>(block) >= pool.blocks)
        fail("id-range", "group %u: %s %d lies outside a pool of %u blocks", group, tier_name(tier),
             block, pool.blocks);
    return &pool.slots[static_cast<size_t>(block) * pool.places];
}

void Memory::check_read(Slot &slot, Tier tier, uint32_t group, int32_t block, uint32_t place,
                        const Actor &actor) {
    ++accesses_;
    if (slot.write_clock > actor.clock[slot.write_queue])
        fail("race-read",
             "group %u %s %d place %u: step %u on queue %u reads it, and nothing orders that after "
             "the write of step %u on queue %u",
             group, tier_name(tier), block, place, actor.step, actor.queue, slot.writer,
             slot.write_queue);
    slot.reads[actor.queue] = actor.clock[actor.queue];
}

void Memory::check_write(Slot &slot, Tier tier, uint32_t group, int32_t block, uint32_t place,
                         const Actor &actor) {
    ++accesses_;
    if (slot.write_clock > actor.clock[slot.write_queue])
        fail(
            "race-write",
            "group %u %s %d place %u: step %u on queue %u writes it, and nothing orders that after "
            "the write of step %u on queue %u",
            group, tier_name(tier), block, place, actor.step, actor.queue, slot.writer,
            slot.write_queue);
    for (uint32_t q = 0; q < kMaxQueues; ++q)
        if (slot.reads[q] > actor.clock[q])
            fail(
                "race-overwrite",
                "group %u %s %d place %u: step %u on queue %u writes it while work on queue %u may "
                "still read what step %u put there",
                group, tier_name(tier), block, place, actor.step, actor.queue, q, slot.writer);
    spoil_copies(slot, actor);
    slot.writer = actor.step;
    slot.write_queue = actor.queue;
    slot.write_clock = actor.clock[actor.queue];
    // Two unfinished writers over a zeroing: the model forgets what it took away.
    if (slot.content != 0 && slot.writer_bit != 0 && slot.writer_bit != actor.bit) slot.under = 0;
    slot.writer_bit = actor.bit;
    slot.is_copy = false;
}

// A copy that may still run takes the old content or the new: neither is to be relied on.
void Memory::spoil_copies(Slot &slot, const Actor &actor) {
    for (uint32_t q = 0; q < kMaxQueues; ++q) {
        Slot *to = slot.copied_to[q];
        if (to == nullptr) continue;
        slot.copied_to[q] = nullptr;
        if (slot.copied[q] <= actor.clock[q]) continue;
        // Only what is still the copy's: a later write there came after the copy.
        if (to->write_queue != q || to->write_clock != slot.copied[q] || !to->is_copy) continue;
        to->content = poisoned(to->content);
        ++noise_;
    }
}

Content Memory::read(uint32_t group, int32_t block, uint32_t place, const Actor &actor) {
    Slot &slot = at(kDevice, group, block, place);
    check_read(slot, kDevice, group, block, place, actor);
    return has_of(slot, group) ? slot.content : poisoned(slot.content);
}

void Memory::write(uint32_t group, int32_t block, uint32_t place, Content content, uint8_t depends,
                   const Actor &actor) {
    Slot &slot = at(kDevice, group, block, place);
    check_write(slot, kDevice, group, block, place, actor);
    slot.content = content;
    slot.group = static_cast<uint8_t>(group);
    slot.depends = depends;
}

void Memory::copy_place(Tier to, Tier from, uint32_t group, int32_t src, uint32_t src_place,
                        int32_t dst, uint32_t dst_place, const Actor &actor) {
    Slot &source = at(from, group, src, src_place);
    Slot &target = at(to, group, dst, dst_place);
    check_read(source, from, group, src, src_place, actor);
    check_write(target, to, group, dst, dst_place, actor);
    target.content = source.content;
    target.group = source.group;
    // Copies of a step that fails may not have run (README.md, question 2).
    target.depends = source.depends | (distrust_copies_ ? actor.bit : 0);
    target.has_token = true;
    target.token_by = static_cast<uint8_t>(source.token_by | actor.bit);
}

void Memory::copy_block(Tier to, Tier from, uint32_t group, int32_t src, int32_t dst,
                        const Actor &actor) {
    for (uint32_t place = 0; place < pool(to, group).places; ++place) {
        Slot &source = at(from, group, src, place);
        Slot &target = at(to, group, dst, place);
        ++accesses_;
        const Content before = target.content;
        check_write(target, to, group, dst, place, actor);
        const bool raced = source.write_clock > actor.clock[source.write_queue];
        noise_ += raced;
        target.content = raced ? poisoned(source.content) : source.content;
        target.group = source.group;
        target.depends = source.depends | (distrust_copies_ ? actor.bit : 0);
        // What a zeroing leaves that does not happen is copied along.
        const bool along = source.zero_by != 0 && !source.has_token && source.under != 0;
        target.zeroed_by |= static_cast<uint8_t>(actor.bit | source.zeroed_by);
        target.heirs = source.heirs;
        target.has_token = false;
        target.token_by = static_cast<uint8_t>(source.token_by | actor.bit);
        target.zero_by = along ? source.zero_by : actor.bit;
        target.under = along ? source.under : before;
        target.is_copy = true;
        source.copied[actor.queue] = actor.clock[actor.queue];
        source.copied_to[actor.queue] = &target;
    }
    if (to == kDevice) must_zero(group, dst) = 0;  // nothing of it is left to be seen
}

void Memory::zero_block(uint32_t group, int32_t block, const Actor &actor) {
    for (uint32_t place = 0; place < pool(kDevice, group).places; ++place) {
        Slot &slot = at(kDevice, group, block, place);
        const Content before = slot.content;
        write(group, block, place, 0, distrust_copies_ ? actor.bit : 0, actor);
        slot.under = before;
        slot.zero_by = actor.bit;
        slot.zeroed_by |= actor.bit;
        slot.heirs = 0;
        slot.has_token = false;
        slot.token_by = 0;
    }
    must_zero(group, block) = 0;
}

void Memory::hold_none() {
    for (auto &tier : pools_)
        for (Pool &pool : tier)
            for (Slot &slot : pool.slots) slot.held = Held::no;
}

void Memory::hold_contents(uint32_t group, const std::set<Content> &contents) {
    for (Slot &slot : pool(kDevice, group).slots)
        if (slot.held == Held::no && has_of(slot, group) && contents.count(slot.content) != 0)
            slot.held = Held::maybe;
}

Zeros Memory::zeros_owed(Tier tier, uint32_t group, int32_t block, uint8_t bit) {
    Zeros owed = Zeros::none;
    for (uint32_t place = 0; place < block_tokens_[group]; ++place) {
        const Slot &slot = at(tier, group, block, place);
        const bool failed = (slot.token_by & bit) != 0;
        const Held held = failed ? Held::no : slot.held;
        if (((slot.zeroed_by | slot.heirs) & bit) == 0 || held == Held::yes) continue;
        const bool unsure = held == Held::maybe || (slot.zero_by & bit) == 0;
        owed = std::max(owed, unsure ? Zeros::unsure : Zeros::owed);
    }
    return owed;
}

bool Memory::given_up(uint32_t group, int32_t block, uint8_t bit) {
    bool some = false;
    for (uint32_t place = 0; place < block_tokens_[group]; ++place) {
        const Slot &slot = at(kDevice, group, block, place);
        if ((slot.zero_by & bit) == 0 || slot.held != Held::no) continue;
        if (!slot.has_token || (slot.token_by & bit) != 0) return false;
        some = true;
    }
    return some;
}

void Memory::poison_slot(Slot &slot, uint8_t bit) {
    const bool wrote = slot.writer_bit == bit;
    if (wrote) slot.writer_bit = 0;
    const bool written = slot.held != Held::no && (slot.token_by & bit) == 0;
    slot.token_by &= static_cast<uint8_t>(~bit);
    // Where a token was written since, its unfinished steps decide now whether the slot is left.
    const uint8_t heir = slot.has_token ? slot.token_by : uint8_t{0};
    if (written && ((slot.zeroed_by | slot.heirs) & bit) != 0) slot.heirs |= slot.token_by;
    slot.zeroed_by &= static_cast<uint8_t>(~bit);
    slot.heirs &= static_cast<uint8_t>(~bit);
    const bool not_zeroed = (slot.zero_by & bit) != 0;
    if (not_zeroed) {
        slot.zero_by = heir;
        if (!distrust_copies_) slot.under = 0;
    }
    if ((slot.depends & bit) == 0) return;
    slot.depends &= static_cast<uint8_t>(~bit);
    if (slot.content == 0 && slot.zero_by != 0) return;  // another step's zeroing decides
    if (!wrote && (slot.content != 0 || !not_zeroed)) {
        slot.content = poisoned(slot.content);
        return;
    }
    slot.has_token = false;
    if (slot.zero_by != 0) {  // what is there now depends on the zeroing
        slot.content = poisoned(slot.content);
        slot.writer_bit = slot.zero_by;
        slot.depends = distrust_copies_ ? slot.zero_by : 0;
        return;
    }
    slot.content = poisoned(slot.under != 0 ? slot.under : slot.content);
    slot.under = 0;
}

void Memory::poison(uint8_t bit) {
    for (auto &tier : pools_)
        for (Pool &pool : tier)
            for (Slot &slot : pool.slots) poison_slot(slot, bit);
}

void Memory::settle(uint8_t bit) {
    for (auto &tier : pools_)
        for (Pool &pool : tier)
            for (Slot &slot : pool.slots) {
                slot.depends &= static_cast<uint8_t>(~bit);
                slot.zeroed_by &= static_cast<uint8_t>(~bit);
                slot.heirs &= static_cast<uint8_t>(~bit);
                slot.token_by &= static_cast<uint8_t>(~bit);
                if (slot.writer_bit == bit) {
                    slot.writer_bit = 0;
                    if (slot.content != 0) slot.under = 0;
                }
                if (slot.zero_by == bit) {
                    slot.zero_by = 0;
                    slot.under = 0;
                }
            }
}

std::string Memory::describe(const Slot &slot) {
    char text[128];
    if (slot.content == 0)
        snprintf(text, sizeof text, "zeros (step %u)", slot.writer);
    else
        snprintf(text, sizeof text, "%s of tenant %u, written by step %u",
                 slot.content & kPoison ? "what a failed step left" : "content",
                 tenant_of(slot.content), slot.writer);
    return text;
}

}  // namespace sim
