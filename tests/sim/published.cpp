// SPDX-License-Identifier: Apache-2.0
//
// published: which blocks the prefix cache has when a step fails.
//
// The model knows which blocks may be published: those that hold a full block of computed and named
// tokens. Which of these are (one of two with the same content, one that was not evicted or
// forgotten) it asks of quire_cache_dump, for the headers leave that open (README.md, question 16).
#include <algorithm>
#include <string_view>

#include "leases_only.hpp"
#include "records.hpp"
#include "world.hpp"

namespace sim {

// Full blocks of computed and named tokens are published, drafts only once they are accepted.
void World::note_full_blocks(const Sequence &seq) {
    if ((config.flags & QUIRE_CACHE_NO_PREFIX) != 0 || seq.cross_tokens != 0 || seq.unpublished)
        return;
    const uint32_t end = std::min({seq.computed, seq.known() - seq.drafts, seq.first_unknown()});
    uint32_t in_era = 0;
    while (in_era < end && seq.era[in_era] == epoch_) ++in_era;
    name_blocks(seq, in_era);
    const std::vector<uint32_t> sizes = config.block_sizes();
    for (const uint32_t size : std::set<uint32_t>{sizes.begin(), sizes.end()}) {
        uint64_t hash = kFullBlock;
        uint64_t before = kFullBlock;
        for (uint32_t p = 0; p < in_era / config.span() * config.span(); ++p) {
            hash = mix(hash, seq.content(p));
            if ((p + 1) % size != 0) continue;
            full_blocks_.insert(hash);
            if (under_span(seq, p + 1 - size)) under_spans_.insert(hash);
            full_blocks_.insert(mix(kFullBlock, seq.content(p)));  // a state's
            full_pairs_.insert(mix(before, hash));
            before = hash;
            hash = kFullBlock;
        }
    }
}

// True if the block holds what was published since the last reset, in a namespace that still lives.
bool World::may_be_published(uint32_t group, int32_t block) const {
    const uint32_t tenant = tenant_of(memory_.block(kDevice, group, block)[0].content);
    const uint32_t of = memory_.group_of(kDevice, group, block);
    return full_blocks_.count(block_hash(kDevice, of, block)) != 0 &&
           std::any_of(namespaces.begin(), namespaces.end(),
                       [tenant](const Namespace &ns) { return ns.tenant == tenant; });
}

// The records of quire_cache_dump, one per line. REQUIRES: the library has it.
std::string_view World::dump() {
    uint64_t size = 0;
    quire_status status = q_->cache_dump(cache_, 0, dump_.data(), dump_.size(), &size, &error_);
    if (status == QUIRE_S_INCOMPLETE) {
        dump_.resize(size);
        status = q_->cache_dump(cache_, 0, dump_.data(), dump_.size(), &size, &error_);
    }
    expect(status, {QUIRE_OK}, "quire_cache_dump");
    return {dump_.data(), size};
}

// Steps that are open, or committed and not done; 0 with an older library.
uint64_t World::unfinished_steps() {
    if (q_->cache_dump == nullptr) return 0;
    uint64_t count = 0;
    const std::string_view records = dump();
    const std::string_view wanted = "{\"record\":\"step\"";
    for (size_t at = 0; (at = records.find(wanted, at)) != records.npos; ++at) ++count;
    return count;
}

// The device blocks of each pool that the prefix cache has, by the library's dump. Maybe: the dump
// is not there, or says that the block's node cannot be found.
std::vector<std::vector<Held>> World::published_blocks() {
    std::vector<std::vector<Held>> held;
    for (uint32_t g = 0; g < config.pool_count(); ++g) {
        held.emplace_back(blocks_[g], Held::no);
        for (uint32_t id = 1; id < blocks_[g]; ++id)
            if (may_be_published(g, static_cast<int32_t>(id))) held[g][id] = Held::maybe;
    }
    // What is inserted was written by no unfinished step.
    if (lone_) return {std::vector<Held>(blocks_[0], Held::no)};
    if (q_->cache_dump == nullptr) return held;     // an older library
    std::set<int64_t> linked;                       // nodes that can be found
    std::vector<std::array<int64_t, 3>> published;  // group, block and node
    each_record(dump(), [&](std::string_view record) {
        if (has(record, "\"record\":\"node\"") && has(record, "\"linked\":true"))
            linked.insert(number_in(record, "id"));
        if (has(record, "\"record\":\"block\"") && has(record, "\"tier\":\"device\"") &&
            number_in(record, "node") >= 0)
            published.push_back(
                {number_in(record, "group"), number_in(record, "id"), number_in(record, "node")});
    });
    const std::vector<std::vector<Held>> allowed = held;
    for (std::vector<Held> &group : held) std::fill(group.begin(), group.end(), Held::no);
    for (const auto &[group, id, node] : published) {
        const size_t g = static_cast<size_t>(group);
        const size_t at = static_cast<size_t>(id);
        if (allowed[g][at] == Held::no)
            fail("published",
                 "block %zu of group %zu is published, and is no full block of computed and named "
                 "tokens",
                 at, g);
        held[g][at] = linked.count(node) != 0 ? Held::yes : Held::maybe;
    }
    return held;
}

// The prefix cache has a token in each slot of a published block. The dump is long: it is asked for
// only where the step `bit` was to zero a block or to copy over it, and that decides something.
void World::hold_published(uint8_t bit) {
    std::vector<std::vector<Held>> held;
    for (uint32_t g = 0; g < config.pool_count(); ++g)
        for (uint32_t at = 1; at < blocks_[g]; ++at) {
            const int32_t id = static_cast<int32_t>(at);
            const uint32_t of = memory_.group_of(kDevice, g, id);
            if (memory_.zeros_owed(kDevice, of, id, bit) == Zeros::none) continue;
            if (held.empty()) held = published_blocks();
            if (zeros_cost() == Zeros::owed && memory_.given_up(of, id, bit)) {
                ++tally_->given_up;
                tally_->given_up_published += held[g][at] == Held::yes;
                tally_->given_up_unsure += held[g][at] == Held::maybe;
            }
            for (uint32_t place = 0; place < config.places(of); ++place)
                memory_.hold(kDevice, g, id, place, held[g][at]);
        }
}

}  // namespace sim
