// SPDX-License-Identifier: Apache-2.0
//
// handover_stream: what both ends of a hand-over know of its bytes, in the format of
// docs/session-format.md: a session's head, then its blocks in parts and in any order, then the
// tail, which says that they are right.
//
// A cell is one layer of one block. A part holds consecutive layers of a block, so a range of
// cells.
//
// Threads: any; the bytes are the object's.
#pragma once

#include <cstddef>

#include "core/base/hash.hpp"
#include "core/session/session_blocks.hpp"

namespace quire {

constexpr uint64_t kHandoverMagic = 0x564F484552495551;      // "QUIREHOV"
constexpr uint64_t kHandoverTailMagic = 0x444E454552495551;  // "QUIREEND"

struct HandoverTail {
    uint64_t magic;
    uint64_t parts;          // between head and tail
    uint64_t size_bytes;     // of the hand-over, this tail included
    uint64_t head_checksum;  // the head's own
    uint64_t reserved0[3];
    uint64_t checksum;  // XXH3, 64 bits, of what comes before it

    uint64_t sum() const { return XXH3_64bits(this, offsetof(HandoverTail, checksum)); }
};
static_assert(sizeof(HandoverTail) == 64);

// Some layers of a block.
struct HandoverPart {
    uint32_t group;
    uint32_t index;  // table entry
    uint32_t first_layer;
    uint32_t layer_count;
};

// The cells that are still to come.
class HandoverCells {
 public:
    explicit HandoverCells(const HostAllocator *host) : done_(host) {}

    // REQUIRES: the head is checked.
    [[nodiscard]] bool create(const Geometry &geometry, const SessionHead &head) {
        uint64_t count = 0;
        for (uint32_t g = 0; g < geometry.group_count; ++g) {
            const GroupGeometry &group = geometry.groups[g];
            const SessionGroup &table = head.group(g);
            first_[g] = count;
            layers_[g] = group.layer_count;
            kept_[g] = group.kept_blocks;
            uint32_t held = group.held_entries(table.length, table.null_front);
            gap_[g] = table.length - held;
            count += uint64_t{held} * group.layer_count;
        }
        left_ = count;
        return done_.create(count);
    }
    uint64_t count() const { return done_.size(); }
    uint64_t left() const { return left_; }
    // The first layer from `layer` on that is still to come; the group's layer_count: none.
    uint32_t next_open(uint32_t group, uint32_t index, uint32_t layer) const {
        while (layer < layers_[group] && done_[cell(group, index, layer)] != 0) ++layer;
        return layer;
    }
    // The layers from `layer` on, before `end`, that are all still to come.
    uint32_t open_run(uint32_t group, uint32_t index, uint32_t layer, uint32_t end) const {
        uint32_t count = 0;
        while (layer + count < end && done_[cell(group, index, layer + count)] == 0) ++count;
        return count;
    }
    // REQUIRES: they are still to come.
    void close(const HandoverPart &part) {
        uint64_t at = cell(part.group, part.index, part.first_layer);
        std::memset(done_.data() + at, 1, part.layer_count);
        left_ -= part.layer_count;
    }
    // They are still to come after all.
    void reopen(const HandoverPart &part) {
        uint64_t at = cell(part.group, part.index, part.first_layer);
        std::memset(done_.data() + at, 0, part.layer_count);
        left_ += part.layer_count;
    }

 private:
    // REQUIRES: the entry is not null.
    uint64_t cell(uint32_t group, uint32_t index, uint32_t layer) const {
        uint32_t held = index < kept_[group] ? index : index - gap_[group];
        return first_[group] + uint64_t{held} * layers_[group] + layer;
    }

    uint64_t first_[kMaxGroups] = {};
    uint32_t layers_[kMaxGroups] = {};
    uint32_t kept_[kMaxGroups] = {};
    uint32_t gap_[kMaxGroups] = {};
    Array<uint8_t> done_;
    uint64_t left_ = 0;
};

}  // namespace quire
