// SPDX-License-Identifier: Apache-2.0
//
// An audited cache remembers what its unfinished steps touch, and proves that no two of them
// conflict.

#include <algorithm>
#include <cinttypes>

#include "core/inspect/cache_check.hpp"

namespace quire {

// Makes room for what the commit will note. left_count: blocks that it may zero in addition.
bool Cache::reserve_witness(const StepRecord &record, uint64_t left_count) {
    uint64_t count = 2 * (record.copies.size() + left_count);
    for (const Change &change : record.changes) {
        if (change.kind != ChangeKind::item) continue;
        for (uint32_t g = 0; g < geometry_.group_count; ++g) {
            count += journal_.table(change.sequence, g).length;
        }
    }
    return witness_.begin(record.number, count);
}

void Cache::witness_table(const StepRecord &record, const Change &change, uint32_t group) {
    const Sequence &s = sequences_[change.sequence];
    const BlockTable &t = journal_.table(change.sequence, group);
    bool cross = geometry_.groups[group].cross;
    uint32_t written = cross ? 0 : change.first_position;
    uint32_t end = cross ? change.cross_tokens
                         : change.first_position + change.compute_count + s.state.lookahead;
    uint32_t known = cross ? s.cross_tokens : end;
    auto within = [&](uint32_t position, uint32_t first) {
        return std::min(position > first ? position - first : 0u, geometry_.block_tokens);
    };
    for (uint32_t k = 0; k < t.length; ++k) {
        uint32_t first = k << geometry_.block_shift;
        if (t.ids.data[k] == kNullBlock) continue;
        witness_.note(Seen{record.number, group, t.ids.data[k], change.sequence,
                           within(known, first), within(written, first), within(end, first),
                           false});
    }
}

// Counts the slots of a copy's source that are wanted. A block is copied whole, and the owner may
// still write the slots after those that the copy's sequence has computed.
uint32_t Cache::wanted_slots(const Change &change, const quire_block_copy &copy) const {
    uint32_t all = geometry_.block_tokens;
    if (copy.kind == QUIRE_COPY_ON_WRITE) return change.first_position & (all - 1);
    if (copy.kind != QUIRE_COPY_SWAP_OUT || geometry_.groups[copy.group].cross) return all;
    const BlockTable &t = journal_.table(change.sequence, copy.group);
    uint32_t k = 0;
    while (k < t.length && t.ids.data[k] != static_cast<uint32_t>(copy.dst)) ++k;
    uint32_t first = k << geometry_.block_shift, computed = change.before.computed;
    return std::min(computed > first ? computed - first : 0u, all);
}

void Cache::witness_copy(const StepRecord &record, const quire_block_copy &copy, uint32_t wanted) {
    uint32_t all = geometry_.block_tokens;
    bool one = copy.kind == QUIRE_COPY_TOKEN;
    if (copy.kind == kVoidCopy) return;
    if (copy.kind != QUIRE_COPY_ZERO) {
        witness_.note(Seen{record.number, copy.group, static_cast<uint32_t>(copy.src), kNone,
                           one ? copy.src_place + 1 : wanted, 0, 0,
                           copy.kind == QUIRE_COPY_SWAP_IN});
    }
    witness_.note(Seen{record.number, copy.group, static_cast<uint32_t>(copy.dst), kNone, 0,
                       one ? copy.dst_place : 0, one ? copy.dst_place + 1 : all,
                       copy.kind == QUIRE_COPY_SWAP_OUT});
}

// Notes what the step touches, in no particular order. REQUIRES: reserve_witness(), and the step's
// items are settled.
void Cache::witness_step(const StepRecord &record) {
    uint64_t at = 0;  // the next copy; those of no item or victim are zeroes
    auto copies_until = [&](uint64_t end, const Change *change) {
        for (; at < end; ++at) {
            const quire_block_copy &copy = record.copies[at];
            uint32_t wanted = change != nullptr ? wanted_slots(*change, copy) : 0;
            witness_copy(record, copy, wanted);
        }
    };
    for (const Change &change : record.changes) {
        if (change.kind == ChangeKind::dropped) continue;
        copies_until(change.first_copy, nullptr);
        copies_until(change.copy_end, &change);
        if (change.kind != ChangeKind::item) continue;
        for (uint32_t g = 0; g < geometry_.group_count; ++g) witness_table(record, change, g);
    }
    copies_until(record.copies.size(), nullptr);
}

// The unfinished steps that must have run before a step's work begins, as a set of slots: those on
// its queue, those that it waits for, those that have run, and what comes before any of them.
uint32_t CacheCheck::steps_before(uint64_t step) const {
    const Timeline &timeline = cache_.timeline_;
    uint32_t before[kMaxUnfinished] = {};
    for (uint64_t later = timeline.oldest(); later <= step; ++later) {
        uint32_t waited = cache_.records_[Timeline::slot(later)].waited;
        uint32_t &steps = before[Timeline::slot(later)];
        for (uint64_t one = timeline.oldest(); one < later; ++one) {
            uint32_t slot = Timeline::slot(one);
            bool same_queue = timeline.queue_of(one) == timeline.queue_of(later);
            bool comes_first = same_queue || (waited >> slot & 1) != 0 || timeline.has_run(one);
            if (comes_first) steps |= 1u << slot | before[slot];
        }
    }
    return before[Timeline::slot(step)];
}

// True if both may touch their slots at the same time and one writes what the other touches. Within
// a step the engine keeps the order: it writes before it attends, and copies come first.
bool CacheCheck::collide(const Seen &a, const Seen &b) const {
    auto overlap = [](const Seen &writer, const Seen &other) {
        bool written = writer.write_begin < other.write_end && other.write_begin < writer.write_end;
        return writer.writes() &&
               ((other.writes() && written) ||
                (writer.step != other.step && writer.write_begin < other.read_end));
    };
    if (!overlap(a, b) && !overlap(b, a)) return false;
    if (a.step == b.step) {
        return a.sequence != b.sequence && a.sequence != kNone && b.sequence != kNone;
    }
    uint64_t first = std::min(a.step, b.step), last = std::max(a.step, b.step);
    return (steps_before(last) >> Timeline::slot(first) & 1) == 0;
}

// Checks that no two writers of a slot are unordered, and that no reader is unordered with a write
// of another queue's step. Sorted by block, so only entries of one block are compared.
Status CacheCheck::check_collisions(Array<Seen> *all) const {
    auto place = [](const Seen &s) {
        return (uint64_t{s.is_host} << 63) | uint64_t{s.group} << 32 | s.block;
    };
    std::sort(all->begin(), all->end(), [&](const Seen &a, const Seen &b) {
        if (place(a) != place(b)) return place(a) < place(b);
        if (a.writes() != b.writes()) return a.writes();
        return a.step < b.step;
    });
    for (uint64_t i = 0; i < all->size(); ++i) {
        const Seen &a = (*all)[i];
        for (uint64_t k = i + 1; a.writes() && k < all->size(); ++k) {
            const Seen &b = (*all)[k];
            if (place(a) != place(b)) break;
            if (!collide(a, b)) continue;
            return wrong("%sblock %u of group %u: step %" PRIu64
                         " reads its slots up to %u and writes %u to %u, step %" PRIu64
                         " reads up to %u and writes %u to %u, and the two are unordered",
                         a.is_host ? "host " : "", a.block, a.group, a.step, a.read_end,
                         a.write_begin, a.write_end, b.step, b.read_end, b.write_begin,
                         b.write_end);
        }
    }
    return Status{};
}

Status CacheCheck::check_witness() const {
    if (!cache_.audits_) return Status{};
    const Timeline &timeline = cache_.timeline_;
    Array<Seen> all(&cache_.host_);
    for (uint64_t step = timeline.oldest(); step < timeline.next(); ++step) {
        if (!may_run(step)) continue;
        for (const Seen &seen : cache_.witness_.of(step)) {
            QUIRE_TRY(check_touched(seen.is_host, seen.group, seen.block, step,
                                    seen.writes() ? "writes" : "reads"));
            if (!all.push_growing(seen)) return no_host_memory();
        }
    }
    return check_collisions(&all);
}

}  // namespace quire
