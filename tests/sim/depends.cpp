// SPDX-License-Identifier: Apache-2.0
//
// depends: on which unfinished steps a sequence's tokens depend, from what its blocks hold.
#include <algorithm>

#include "world.hpp"

namespace sim {

// What a sequence's blocks depend on, copies of this step included, its tokens depend on.
void World::inherit(const Step &step, Sequence &seq) {
    const uint32_t end = std::min(static_cast<uint32_t>(seq.depends.size()), seq.computed);
    follow_blocks(seq);
    // The table of a swapped sequence is not shown: all of it went through this step's copies.
    for (uint32_t p = 0; seq.swapped && config.has(Feature::failed_copies) && p < end; ++p)
        seq.depends[p] |= step.actor.bit;
}

uint8_t World::block_depends(Tier tier, uint32_t group, int32_t block) {
    uint8_t depends = 0;
    for (uint32_t place = 0; place < config.places(group); ++place)
        depends |= memory_.at(tier, group, block, place).depends;
    return depends;
}

// A token depends on what its slots do, in a found block on what any of its slots does,
// and on what those before it do. Where the library has put another block of the same content in
// place of one, what lies there counts: those tokens "were computed anew". What is out of all
// windows has no slots: there it depends on what it did when it was made.
void World::follow_blocks(Sequence &seq) {
    const uint32_t end = std::min(static_cast<uint32_t>(seq.depends.size()), seq.computed);
    std::vector<uint8_t> found(end, 0);
    std::vector<uint8_t> has_block(end, 0);
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
        table(seq, g);
        for (uint32_t p = 0; p < end; ++p) {
            const uint32_t at = p / config.block_size(g);
            if (at >= table_.size() || (table_[at] == 0 && !seq.swapped)) continue;
            const Tier tier = seq.swapped ? kHost : kDevice;
            has_block[p] = 1;
            found[p] |= p < seq.found_end
                            ? block_depends(tier, g, table_[at])
                            : memory_.at(tier, g, table_[at], config.place_of(g, p)).depends;
        }
    }
    uint8_t before = 0;
    for (uint32_t p = 0; p < end; ++p) {
        if (!seq.swapped) seq.depends[p] = has_block[p] ? uint8_t{0} : seq.made[p];
        seq.depends[p] |= static_cast<uint8_t>(found[p] | before);
        before = seq.depends[p];
    }
}

// Tokens before `end` that are whole blocks in every group.
uint32_t World::whole_blocks(uint32_t end) const {
    uint32_t whole = end;
    for (uint32_t g = 0; g < blocks_.size(); ++g)
        if (config.groups[g].kind != QUIRE_GROUP_CROSS)
            whole = std::min(whole, end - end % config.block_size(g));
    return whole;
}

// It is about to write into a found block, or a copy of one, whose other slots are not its own: the
// library knows what a found block depends on as a whole, so its tokens there may be lost with it.
void World::note_beside(Sequence &seq, const Row &row) {
    const uint32_t whole = whole_blocks(row.first);
    uint8_t depends = 0;
    const bool in_part = row.hit != 0 && whole != row.first;  // a copy
    if (in_part || (row.hit == 0 && (seq.unsure_end > whole || seq.found_end > whole)))
        for (uint32_t g = 0; g < blocks_.size(); ++g) {
            if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
            const std::vector<int32_t> &ids = table(seq, g);
            const uint32_t size = config.block_size(g);
            for (uint32_t at = whole / size; at < ids.size() && at * size <= row.first; ++at)
                if (ids[at] != 0) depends |= block_depends(kDevice, g, ids[at]);
        }
    const uint32_t anew = in_part ? row.first : row.first - row.hit;
    if (in_part) std::fill(seq.beside.begin(), seq.beside.end(), uint8_t{0});
    for (uint32_t p = whole; p < row.first; ++p) seq.beside[p] |= depends;
    std::fill(seq.beside.begin() + anew, seq.beside.end(), uint8_t{0});
}

// Which of its blocks are, or may be, found ones when the row writes its tokens.
void World::note_found(Sequence &seq, const Row &row, bool was_swapped) {
    note_beside(seq, row);
    const uint32_t whole = whole_blocks(row.first);
    seq.unsure_end = was_swapped ? row.first : std::min(seq.unsure_end, whole);
    seq.found_end = row.hit != 0 ? whole : std::min(seq.found_end, whole);
    // The end of a hit within a block is the sequence's, in a copy of a found one.
    if (row.hit != 0 && whole != row.first) seq.unsure_end = row.first;
}

}  // namespace sim
