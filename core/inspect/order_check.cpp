// SPDX-License-Identifier: Apache-2.0
//
// What unfinished steps touch, in a cache that is audited: no two of them may conflict.

#include <algorithm>
#include <cinttypes>

#include "core/inspect/cache_check.hpp"

namespace quire {

// The unfinished steps that must have run before a step's work begins, as a set of ring indices:
// those on its queue, those that it waits for, those that have run, and what comes before any of
// them.
uint32_t CacheCheck::steps_before(uint64_t step) const {
    const Timeline &timeline = books_.timeline;
    uint32_t before[kMaxUnfinished] = {};
    for (uint64_t later = timeline.oldest(); later <= step; ++later) {
        uint32_t waited = books_.records[Timeline::ring_index(later)].waited;
        uint32_t &steps = before[Timeline::ring_index(later)];
        for (uint64_t one = timeline.oldest(); one < later; ++one) {
            uint32_t index = Timeline::ring_index(one);
            bool same_queue = timeline.queue_of(one) == timeline.queue_of(later);
            bool comes_first = same_queue || (waited >> index & 1) != 0 || timeline.has_run(one);
            if (comes_first) steps |= 1u << index | before[index];
        }
    }
    return before[Timeline::ring_index(step)];
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
    return (steps_before(last) >> Timeline::ring_index(first) & 1) == 0;
}

// Checks that no two writers of a slot are unordered, and that no reader is unordered with a write
// of another queue's step. Sorted by block, so only entries of one block are compared.
Status CacheCheck::check_collisions(Array<Seen> *all) const {
    auto order_of = [&](const Seen &s) {
        return (uint64_t{s.is_host} << 63) | uint64_t{pool_of(s.group)} << 32 | s.block;
    };
    std::sort(all->begin(), all->end(), [&](const Seen &a, const Seen &b) {
        if (order_of(a) != order_of(b)) return order_of(a) < order_of(b);
        if (a.writes() != b.writes()) return a.writes();
        return a.step < b.step;
    });
    for (uint64_t i = 0; i < all->size(); ++i) {
        const Seen &a = (*all)[i];
        for (uint64_t k = i + 1; a.writes() && k < all->size(); ++k) {
            const Seen &b = (*all)[k];
            if (order_of(a) != order_of(b)) break;
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
    if (!books_.audits) return Status{};
    const Timeline &timeline = books_.timeline;
    Array<Seen> all(&books_.host);
    for (uint64_t step = timeline.oldest(); step < timeline.next(); ++step) {
        if (!may_run(step)) continue;
        for (const Seen &seen : parts_.witness.of(step)) {
            QUIRE_TRY(check_touched(seen.is_host, seen.group, seen.block, step,
                                    seen.writes() ? "writes" : "reads"));
            if (!all.push_growing(seen)) return no_host_memory();
        }
    }
    return check_collisions(&all);
}

}  // namespace quire
