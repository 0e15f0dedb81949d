// SPDX-License-Identifier: Apache-2.0
//
// sequence_ops: the calls on one sequence, outside steps.
#include <algorithm>
#include <cstring>

#include "world.hpp"

namespace sim {
namespace {

// The bytes of a key are its number, four times.
struct KeyBytes {
    uint32_t words[4];
    explicit KeyBytes(uint32_t number) {
        for (uint32_t &word : words) word = number;
    }
};

}  // namespace

bool World::create(const Op &op) {
    const auto [id, ns, adapter, salt, spans, priority, cross, doc] =
        std::array{op.f[0], op.f[1], op.f[2], op.f[3], op.f[4], op.f[5], op.f[6], op.f[7]};
    Namespace *space = find_namespace(ns);
    if (space == nullptr || find(id) != nullptr) return false;
    auto seq = std::make_unique<Sequence>();
    seq->id = id;
    seq->ns = ns;
    seq->tenant = space->tenant;
    seq->doc = doc;
    seq->priority = static_cast<int32_t>(priority) - 2;
    seq->cross_tokens = config.cross() ? std::min(cross, config.max_tokens) : 0;
    seq->adapter = adapter;
    seq->salt = salt;
    seq->base = mix(mix(space->tenant, adapter), salt);
    if (seq->cross_tokens != 0) seq->base = mix(seq->base, mix(id, 0xC805));
    std::vector<KeyBytes> bytes;
    std::vector<quire_key> keys;
    bytes.reserve(8);
    if (adapter != 0) {
        bytes.emplace_back(adapter);
        keys.push_back({QUIRE_KEY_ADAPTER, sizeof(KeyBytes), &bytes.back(), 0, 0});
    }
    if (salt != 0) {
        bytes.emplace_back(salt);
        keys.push_back({QUIRE_KEY_SALT, sizeof(KeyBytes), &bytes.back(), 0, 0});
    }
    // Spans are drawn from few images, begins and lengths, so that sequences differ in one of them.
    Rng rng(spans);
    uint32_t at = 0;
    for (uint32_t i = 0; spans != 0 && i < 1 + spans % 3; ++i) {
        const uint32_t begin = at + rng.below(3);
        const uint32_t end = begin + 1 + rng.below(config.block_tokens + 1);
        bytes.emplace_back(1 + rng.below(2));
        keys.push_back({QUIRE_KEY_MEDIA, sizeof(KeyBytes), &bytes.back(), begin, end});
        seq->spans.push_back({bytes.back().words[0], begin, end});
        at = end;
    }
    quire_seq_desc desc{};
    desc.struct_size = sizeof desc;
    desc.ns = space->handle;
    desc.keys = keys.data();
    desc.key_count = static_cast<uint32_t>(keys.size());
    desc.key_stride = sizeof(quire_key);
    desc.priority = seq->priority;
    desc.cross_tokens = seq->cross_tokens;
    const bool full = sequences.size() + leases.size() >= config.max_sequences;
    Snapshot before;
    if (full) before = snapshot();
    const quire_status status = q_->seq_create(cache_, &desc, &seq->handle, &error_);
    if (full) {
        expect(status, {QUIRE_E_LIMIT}, "quire_seq_create past max_sequences");
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_seq_create");
    sequences.push_back(std::move(seq));
    compare(*sequences.back(), "create");
    changed_since_begin_ = true;
    return true;
}

bool World::end(const Op &op) {
    Sequence *seq = find(op.f[0]);
    if (seq == nullptr) return false;
    const uint32_t flags = op.f[1] ? QUIRE_END_DROP_PREFIX : 0;
    bool victim = false;
    if (open)
        for (const Undo &undo : open->undo) victim |= undo.before.id == seq->id;
    Snapshot before;
    if (victim || seq->in_step) before = snapshot();
    const quire_status status = q_->seq_end(cache_, seq->handle, flags, &error_);
    if (seq->in_step)
        expect(status, {QUIRE_E_BUSY}, "quire_seq_end of a sequence in the open step");
    else if (victim)
        expect(status, {QUIRE_OK, QUIRE_E_BUSY}, "quire_seq_end of a preempted sequence");
    else
        expect(status, {QUIRE_OK}, "quire_seq_end");
    if (status < 0) {
        unchanged(before, "error-changes");
        return true;
    }
    changed_since_begin_ = true;
    if (stale_.size() < 64)
        stale_.push_back(seq->handle);
    else
        stale_[ops_ % 64] = seq->handle;
    if (victim) std::erase_if(open->undo, [&](const Undo &u) { return u.before.id == op.f[0]; });
    const Sequence ended = *seq;
    erase(op.f[0]);
    if (op.f[1] != 0 && !open) check_forgotten(ended);
    return true;
}

bool World::fork(const Op &op) {
    Sequence *seq = find(op.f[0]);
    const uint32_t child_id = op.f[2];
    if (seq == nullptr || find(child_id) != nullptr) return false;
    const uint32_t count = op.f[1];
    const bool busy = seq->in_step || seq->swapped || seq->drafts != 0;
    const bool bad = count > seq->known();
    const bool full = sequences.size() + leases.size() >= config.max_sequences;
    const Snapshot before = look(true);
    auto child = std::make_unique<Sequence>(*seq);
    const quire_status status = q_->seq_fork(cache_, seq->handle, count, &child->handle, &error_);
    if (busy || bad || full) {
        const bool allowed = (busy && status == QUIRE_E_BUSY) || (bad && status == QUIRE_E_ARG) ||
                             (full && status == QUIRE_E_LIMIT);
        if (!allowed) expect(status, {QUIRE_E_BUSY}, "quire_seq_fork that cannot be");
        unchanged(before, "error-changes");
        ++tally_->refused_calls;
        return true;
    }
    const Namespace *space = find_namespace(seq->ns);
    if (space->quota != 0 && status == QUIRE_E_LIMIT) {
        unchanged(before, "error-changes");
        ++tally_->full_forks_limit;
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_seq_fork");
    child->id = child_id;
    child->load = {};
    child->cut(count);
    child->leave_found(count, whole_blocks(count));
    child->ahead = 0;
    child->lost = child->preempted = child->swapped = false;
    child->in_step = child->has_item = child->ahead_written = false;
    child->preemptions = 0;
    const quire_seq_info got = info(*child);
    // A fork takes only what comes before the first token that has to be moved.
    if (seq->may_move && got.computed_tokens < child->computed)
        child->computed = got.computed_tokens;
    if (!config.exact()) child->computed = std::min(child->computed, got.computed_tokens);
    child->may_move = false;
    child->unpublished = (got.flags & QUIRE_SEQ_UNPUBLISHED) != 0;
    if (seq->unpublished && !child->unpublished && child->computed != 0)
        fail("reset", "sequence %u, a fork of one that publishes nothing any more, publishes",
             child_id);
    ++forks_;
    note_first_block(*child, 0);
    tally_->forks_computed += child->computed != 0;
    sequences.push_back(std::move(child));
    changed_since_begin_ = true;
    Sequence &made = *sequences.back();
    compare(made, "fork");
    made.admitted = made.computed != 0 ? ++admissions_ : 0;
    compare(*find(op.f[0]), "fork of it");
    return true;
}

bool World::truncate(const Op &op) {
    Sequence *seq = find(op.f[0]);
    if (seq == nullptr) return false;
    const uint32_t count = op.f[1];
    const bool bad = count > seq->known();
    const bool unsure = seq->drafts != 0 || seq->swapped || seq->may_move;
    bool victim = false;
    if (open)
        for (const Undo &undo : open->undo) victim |= undo.before.id == seq->id;
    const Snapshot before = look(true);
    const quire_status status = q_->seq_truncate(cache_, seq->handle, count, &error_);
    if (seq->in_step || bad) {
        expect(status,
               {seq->in_step ? QUIRE_E_BUSY : QUIRE_E_ARG, bad ? QUIRE_E_ARG : QUIRE_E_BUSY},
               "quire_seq_truncate that cannot be");
    } else if (unsure || victim) {
        expect(status, {QUIRE_OK, QUIRE_E_BUSY}, "quire_seq_truncate");
    } else {
        expect(status, {QUIRE_OK}, "quire_seq_truncate");
    }
    if (status < 0) {
        unchanged(before, "error-changes");
        return true;
    }
    changed_since_begin_ = true;
    const quire_seq_info got = info(*seq);
    if (count < seq->known()) seq->may_move &= got.computed_tokens == count;
    seq->was_cut |= count < seq->known() && seq->known() >= config.span();
    seq->cut(count);
    seq->leave_found(count, whole_blocks(count));
    if (unsure) {
        seq->drafts = std::min(seq->drafts, got.draft_tokens);
        seq->computed = std::min(seq->computed, got.computed_tokens);
        seq->swapped = seq->swapped && (got.flags & QUIRE_SEQ_SWAPPED) != 0;
        seq->preempted = seq->preempted && (got.flags & QUIRE_SEQ_PREEMPTED) != 0;
    }
    if (seq->parents.size() > seq->drafts) seq->parents.resize(seq->drafts);
    seq->ahead = std::min(seq->ahead, got.lookahead_tokens);
    compare(*seq, "truncate");
    return true;
}

bool World::accept(const Op &op) {
    Sequence *seq = find(op.f[0]);
    if (seq == nullptr) return false;
    const uint32_t count = op.f[1];
    bool follows = true;
    for (uint32_t i = 0; i < count && i < seq->parents.size(); ++i)
        follows &= seq->parents[i] == (i == 0 ? QUIRE_MASK_ROOT : i - 1);
    const bool bad = count > seq->drafts + seq->ahead || !follows ||
                     (count > seq->drafts && !seq->ahead_written);
    const Snapshot before = look(true);
    const uint32_t root = seq->known() - seq->drafts;
    const quire_status status = q_->seq_accept(cache_, seq->handle, count, &error_);
    // A recurrent group has no state after lookahead.
    const bool no_state = count > seq->drafts && config.any_states();
    if (no_state && !seq->in_step && !bad && !seq->swapped) {
        expect(status, {QUIRE_E_UNSUPPORTED}, "quire_seq_accept without a state");
        unchanged(before, "error-changes");
        return true;
    }
    if (seq->in_step || bad) {
        expect(status,
               {no_state ? QUIRE_E_UNSUPPORTED : QUIRE_E_BUSY,
                seq->in_step ? QUIRE_E_BUSY : QUIRE_E_ARG, bad ? QUIRE_E_ARG : QUIRE_E_BUSY},
               "quire_seq_accept that cannot be");
        unchanged(before, "error-changes");
        return true;
    }
    if (seq->swapped && (status == QUIRE_E_BUSY || (no_state && status == QUIRE_E_UNSUPPORTED))) {
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_seq_accept");
    changed_since_begin_ = true;
    if (count <= seq->drafts) {
        seq->cut(root + count);
        tally_->accepted_drafts += count;
    } else {
        const uint32_t reach = count - seq->drafts;
        tally_->accepted_ahead += reach;
        const uint32_t first = seq->known();
        for (uint32_t i = 0; i < reach; ++i) seq->append(seq->ahead_tokens[i], true);
        note_tokens(*seq, first);
        seq->computed = seq->known();
    }
    seq->drafts = seq->ahead = 0;
    seq->parents.clear();
    seq->ahead_written = false;
    compare(*seq, "accept");
    note_full_blocks(*seq);
    return true;
}

// Slots of a lookahead have become tokens, from `first` on.
void World::note_tokens(const Sequence &seq, uint32_t first) {
    for (uint32_t g = 0; g < blocks_.size(); ++g) {
        if (config.groups[g].kind == QUIRE_GROUP_CROSS) continue;
        table(seq, g);
        for (uint32_t p = first; p < seq.known(); ++p) {
            const uint32_t at = p / config.block_size(g);
            if (at < table_.size() && table_[at] != 0)
                memory_.note_token(g, table_[at], config.place_of(g, p));
        }
    }
}

bool World::accept_path(const Op &op) {
    Sequence *seq = find(op.f[0]);
    if (seq == nullptr) return false;
    Rng rng(op.f[1]);
    const uint32_t root = seq->known() - seq->drafts;
    std::vector<uint32_t> path;
    for (uint32_t i = 0, parent = QUIRE_MASK_ROOT; i < seq->drafts; ++i) {
        const uint32_t own =
            seq->parents.empty() ? (i == 0 ? QUIRE_MASK_ROOT : i - 1) : seq->parents[i];
        if (own != parent || rng.percent(30)) continue;
        path.push_back(i);
        parent = i;
    }
    bool bad = false;
    if (op.f[2] != 0) {
        path.push_back(op.f[2] == 1 ? seq->drafts : path.empty() ? seq->drafts + 1 : path.back());
        bad = true;
    }
    uint32_t in_place = 0;
    while (in_place < path.size() && path[in_place] == in_place) ++in_place;
    const Snapshot before = look(true);
    const quire_status status = q_->seq_accept_path(cache_, seq->handle, path.data(),
                                                    static_cast<uint32_t>(path.size()), &error_);
    if (seq->in_step || bad) {
        expect(status,
               {seq->in_step ? QUIRE_E_BUSY : QUIRE_E_ARG, bad ? QUIRE_E_ARG : QUIRE_E_BUSY},
               "quire_seq_accept_path that cannot be");
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_seq_accept_path");
    if (seq->drafts == 0) {
        if (info(*seq).lookahead_tokens != seq->ahead)
            fail("accept-path-noop", "an empty path without drafts gives up %u of lookahead",
                 seq->ahead);
        unchanged(before, "accept-path-noop");
        return true;
    }
    changed_since_begin_ = true;
    Sequence after = *seq;
    after.cut(root);
    for (uint32_t i = 0; i < path.size(); ++i) {
        after.append(seq->tokens[root + path[i]], seq->unknown[root + path[i]] != 0);
        if (path[i] == i) continue;
        after.may_move = true;
        after.move_begin = root + in_place;
        after.move_end = root + path[i] + 1;
    }
    after.computed = after.known();
    after.drafts = after.ahead = 0;
    after.parents.clear();
    after.ahead_written = false;
    tally_->accepted_drafts += path.size();
    *seq = after;
    compare(*seq, "accept_path");
    note_full_blocks(*seq);
    return true;
}

bool World::set_tokens(const Op &op) {
    Sequence *seq = find(op.f[0]);
    if (seq == nullptr) return false;
    uint32_t from = op.f[1];
    uint32_t count = op.f[2];
    std::vector<uint32_t> ids;
    for (uint32_t p = from; p < from + count; ++p)
        ids.push_back(p < seq->known() ? seq->tokens[p] : 0);
    bool bad = false;
    for (uint32_t p = from; p < from + count; ++p) bad |= p >= seq->known() || !seq->unknown[p];
    quire_token_span span{};
    span.seq = seq->handle;
    span.position = from;
    span.token_count = count;
    const Snapshot before = look(true);
    const quire_status status = q_->seq_set_tokens(cache_, &span, 1, sizeof span, ids.data(),
                                                   static_cast<uint32_t>(ids.size()), &error_);
    if (bad || seq->in_step) {
        expect(status,
               {seq->in_step ? QUIRE_E_BUSY : QUIRE_E_ARG, bad ? QUIRE_E_ARG : QUIRE_E_BUSY},
               "quire_seq_set_tokens that cannot be");
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_seq_set_tokens");
    changed_since_begin_ = true;
    for (uint32_t p = from; p < from + count; ++p) seq->unknown[p] = 0;
    compare(*seq, "set_tokens");
    note_full_blocks(*seq);
    return true;
}

bool World::probe(const Op &op) {
    Sequence *seq = find(op.f[0]);
    if (seq == nullptr) return false;
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < op.f[2]; ++i)
        tokens.push_back(document_token(op.f[1], seq->known() + i));
    const Snapshot before = look(true);
    uint32_t hit = ~0u;
    const quire_status status = q_->prefix_probe(
        cache_, seq->handle, tokens.data(), static_cast<uint32_t>(tokens.size()), &hit, &error_);
    const uint32_t total = seq->known() + op.f[2];
    if (status < 0) {
        expect(status, {total > config.max_tokens ? QUIRE_E_LIMIT : QUIRE_E_BUSY},
               "quire_prefix_probe");
    } else {
        tally_->probes_found += hit != 0;
        const uint32_t unknown = seq->first_unknown();
        tally_->partial_probed += hit % config.span() != 0;
        if (!may_hit(hit) || (hit != 0 && hit >= total) ||
            (hit != 0 && unknown < seq->known() && hit > unknown))
            fail("probe", "sequence %u: %u hits of %u tokens", seq->id, hit, total);
        if (hit != 0 && (seq->computed != 0 || seq->cross_tokens != 0 ||
                         (config.flags & QUIRE_CACHE_NO_PREFIX) != 0))
            fail("probe", "sequence %u: %u hits where there can be none", seq->id, hit);
        probe_again(op, *seq, hit);
    }
    unchanged(before, "probe-effect");
    return true;
}

// "Published blocks stay cached", and evictions are counted: where none was since the same probe,
// and no call that may forget something, as much is found. So a flood takes nothing unseen.
void World::probe_again(const Op &op, const Sequence &seq, uint32_t hits) {
    if (open || !config.sees_all() || seq.computed != 0) return;
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    expect(q_->cache_get_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_stats");
    const uint64_t key = mix(mix(seq.id, op.f[1]), mix(seq.known(), op.f[2]));
    const auto old = probes_.find(key);
    if (old != probes_.end() && old->second.evictions == s.evictions &&
        old->second.forgets == forgets_) {
        ++tally_->probes_again;
        if (hits < whole_hit(old->second.hits))  // others may have been published since
            fail("cached-lost",
                 "sequence %u finds %u tokens and found %u; nothing was evicted or forgotten since",
                 seq.id, hits, old->second.hits);
    }
    if (probes_.size() > 64) probes_.clear();
    probes_[key] = {hits, s.evictions, forgets_};
}

}  // namespace sim
