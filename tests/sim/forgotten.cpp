// SPDX-License-Identifier: Apache-2.0
//
// forgotten: what QUIRE_END_DROP_PREFIX must leave findable by no one, and which sequences may stop
// publishing because the prefix tree runs short of nodes (cache.h).
#include <algorithm>

#include "world.hpp"

namespace sim {

void World::note_first_block(const Sequence &seq, uint32_t owner) {
    if (seq.computed < config.span()) return;
    const Content content = seq.content(config.span() - 1);
    const auto [at, added] = first_blocks_.try_emplace(content, owner);
    if (!added && at->second != owner) at->second = 0;
}

// How many leading tokens of `seq` may stay findable when it is ended with its prefix: whole blocks
// that another sequence holds. ~0: the headers leave it open.
uint32_t World::kept_prefix(const Sequence &seq, uint32_t length) const {
    for (const auto &lease : leases)
        if (lease->ns == seq.ns && !lease->held.empty()) return ~0u;  // it may hold some of it
    uint32_t kept = 0;
    for (const auto &other : sequences) {
        const uint32_t end = other->swapped ? 0 : std::min(length, other->computed);
        uint32_t same = 0;
        while (same < end && other->chain[same] == seq.chain[same] && other->era[same] == epoch_)
            ++same;
        const uint32_t blocks = (same + config.span() - 1) / config.span();
        kept = std::max(kept, blocks * config.span());  // one that it holds in part, too
    }
    // Without full attention a block stays for what is published after it: only what no other
    // sequence ever had is sure to be forgotten.
    if (config.sees_all()) return kept;
    if (seq.was_cut || length < config.span()) return ~0u;
    const Content first = make_content(seq.tenant, mix(seq.chain[config.span() - 1], epoch_));
    const auto at = first_blocks_.find(first);
    return at == first_blocks_.end() || at->second != seq.id ? ~0u : kept;
}

// After QUIRE_END_DROP_PREFIX the published blocks of its tokens are forgotten, but for those that
// another sequence holds. Asked through a live sequence of the same keys that has no tokens, where
// there is one.
void World::check_forgotten(const Sequence &seq) {
    if (seq.unpublished || seq.cross_tokens != 0 || !seq.spans.empty()) return;
    for (uint32_t p = 0; p < seq.computed; ++p)
        if (seq.era[p] != epoch_) return;
    const uint32_t length = std::min(seq.known() - seq.drafts, seq.first_unknown());
    const uint32_t kept = kept_prefix(seq, length);
    if (kept == ~0u) return;
    std::vector<uint32_t> tokens(seq.tokens.begin(), seq.tokens.begin() + length);
    if (length < config.max_tokens) tokens.push_back(0);  // one is always left to compute
    for (const auto &other : sequences) {
        if (other->ns != seq.ns || other->base != seq.base || other->known() != 0 ||
            !other->spans.empty() || other->cross_tokens != 0)
            continue;
        uint32_t hit = 0;
        expect(q_->prefix_probe(cache_, other->handle, tokens.data(),
                                static_cast<uint32_t>(tokens.size()), &hit, &error_),
               {QUIRE_OK}, "quire_prefix_probe");
        ++tally_->drops_probed;
        // A part of a block may be another text's that is cached.
        if (whole_hit(hit) > kept && !tolerate("drop-prefix"))
            fail("drop-prefix",
                 "sequence %u was ended with its prefix; %u tokens are still found, and others "
                 "hold %u",
                 seq.id, hit, kept);
        return;
    }
}

// The tree has a node for each published block, and room for five per block of the pools. Each
// block was published after a row wrote to it, so the blocks that rows wrote to are the most nodes
// that there can be.
bool World::nodes_may_be_short() const {
    if (config.sees_all() || (config.flags & QUIRE_CACHE_NO_PREFIX) != 0) return false;
    uint64_t room = 0;
    for (uint32_t p = 0; p < config.pool_count(); ++p) room += uint64_t{5} * (blocks_[p] - 1);
    return nodes_most_ >= room / 2;  // "nearly full" (README.md, question 14)
}

// A commit may find the tree short of nodes: then sequences publish nothing any more.
void World::take_unpublished(const Step &step) {
    for (const Row &row : step.rows) {
        const uint32_t end = (row.first + row.count + row.ahead) / config.span();
        nodes_most_ += (end - row.first / config.span()) * blocks_.size();
    }
    if (!nodes_may_be_short()) return;
    for (auto &seq : sequences) {
        if (seq->unpublished || seq->computed < config.span()) continue;
        seq->unpublished = (info(*seq).flags & QUIRE_SEQ_UNPUBLISHED) != 0;
        tally_->short_of_nodes += seq->unpublished;
    }
}

}  // namespace sim
