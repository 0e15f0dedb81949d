// SPDX-License-Identifier: Apache-2.0
//
// sequences: what is done to them outside steps, and the tokens they are made of.
//
// Tokens come from three streams of five values, so that prompts often share a prefix.
#include <algorithm>

#include "world.hpp"

namespace hybrid {

std::vector<uint64_t> World::chain(const Sequence &sequence, bool with_lookahead) const {
    std::vector<uint32_t> tokens = sequence.tokens;
    if (with_lookahead)
        tokens.insert(tokens.end(), sequence.lookahead.begin(), sequence.lookahead.end());
    return chain_of({namespaces[sequence.ns].serial, sequence.key_set, sequence.media_begin,
                     sequence.media_end},
                    tokens);
}

uint32_t World::live_sequences() const {
    return static_cast<uint32_t>(std::count_if(sequences.begin(), sequences.end(),
                                               [](const Sequence &s) { return s.alive; }));
}

// The index of one.
uint32_t World::live_namespace() {
    uint32_t index = 0;
    do {
        index = rng.below(namespaces.size());
    } while (!namespaces[index].alive);
    return index;
}

uint32_t World::stream_token(uint32_t stream, uint32_t position) const {
    return 10 + static_cast<uint32_t>(mix(stream, position) % 5);
}

// whole: the chance that all are the stream's; else it is left at any place.
std::vector<uint32_t> World::stream_tokens(uint32_t count, uint32_t stream, double whole) {
    const uint32_t branch = rng.chance(whole) ? count : rng.below(count + 1);
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < count; ++i)
        tokens.push_back(i < branch ? stream_token(stream, i) : other_token());
    return tokens;
}

void World::cut(Sequence &sequence, uint32_t length) {
    sequence.tokens.resize(length);
    sequence.named.resize(length);
    sequence.lookahead.clear();
    sequence.lookahead_kept = false;
}

// The index of a live one; negative if none lives.
int World::pick_sequence() {
    std::vector<int> live;
    for (size_t i = 0; i < sequences.size(); ++i)
        if (sequences[i].alive) live.push_back(static_cast<int>(i));
    return live.empty() ? -1 : live[rng.below(live.size())];
}

void World::create_sequence() {
    if (live_sequences() >= config.max_sequences) return;
    Sequence sequence;
    sequence.ns = live_namespace();
    sequence.key_set = rng.chance(.7) ? uint32_t{no_key} : rng.range(1, 3);
    sequence.priority = rng.chance(.7) ? 0 : rng.below(3);
    auto desc = made<quire_seq_desc>();
    desc.ns = namespaces[sequence.ns].handle;
    desc.priority = static_cast<decltype(desc.priority)>(sequence.priority);
    static constexpr uint32_t kTypes[] = {0, QUIRE_KEY_ADAPTER, QUIRE_KEY_SALT, QUIRE_KEY_MEDIA};
    quire_key key{};
    if (sequence.key_set != no_key) {
        key.type = kTypes[sequence.key_set];
        key.bytes = "abcdefgh";
        key.size_bytes = 8;
        desc.keys = &key;
        desc.key_count = 1;
        desc.key_stride = sizeof key;
    }
    if (sequence.key_set == media_key) {
        key.begin = sequence.media_begin = rng.below(12);
        key.end = sequence.media_end = sequence.media_begin + rng.range(1, 8);
    }
    const int32_t status = api->seq_create(cache, &desc, &sequence.handle, message());
    trace("seq_create namespace ", sequence.ns, " keys ", sequence.key_set, " [",
          sequence.media_begin, ", ", sequence.media_end, ") -> ", hex(sequence.handle));
    require_ok("seq_create", status);
    sequences.push_back(sequence);
}

void World::end_sequence() {
    const int index = pick_sequence();
    if (index < 0) return;
    Sequence &sequence = sequences[index];
    const bool drop = !config.calm && rng.chance(.15);
    const int32_t status =
        api->seq_end(cache, sequence.handle, drop ? QUIRE_END_DROP_PREFIX : 0, message());
    trace("seq_end ", hex(sequence.handle), " drop ", drop, " -> ", status);
    require_ok("seq_end", status);
    sequence.alive = false;
    if (drop) published_exactly = false;
}

void World::fork_sequence() {
    if (live_sequences() >= config.max_sequences) return;
    const int index = pick_sequence();
    if (index < 0) return;
    const Sequence &parent = sequences[index];
    const auto old = info(parent.handle);
    const uint32_t size = static_cast<uint32_t>(parent.tokens.size());
    const uint32_t length = rng.chance(.5) ? size : rng.below(size + 1);
    Sequence child = parent;
    const auto before = snapshot();
    const int32_t status = api->seq_fork(cache, parent.handle, length, &child.handle, message());
    trace("seq_fork ", hex(parent.handle), " at ", length, " of ", size, " computed ",
          old.computed_tokens, " -> ", status, " ", hex(child.handle));
    const bool busy = parent.drafts != 0 || (old.flags & QUIRE_SEQ_SWAPPED) != 0;
    if (status < 0) {
        const std::string why = error.message;
        unchanged(before, "refused_changed", "fork");
        if (busy && status == QUIRE_E_BUSY) return;
        if (namespaces[parent.ns].quota != 0 && status == QUIRE_E_LIMIT) return;
        fail("fork", status, " ", why);
    }
    if (busy) fail("fork_busy", "a fork of a swapped or drafted sequence was accepted");
    const auto own = info(child.handle);
    cut(child, length);
    child.snapshots.erase(child.snapshots.upper_bound(own.computed_tokens), child.snapshots.end());
    child.drafts = 0;
    child.admitted = 0;
    const uint32_t most = std::min(length, old.computed_tokens);
    const std::string where =
        join("fork at ", length, ", computed ", old.computed_tokens, ": the child knows ",
             own.known_tokens, " and has computed ", own.computed_tokens);
    if (own.known_tokens != length || own.computed_tokens > most) fail("fork_info", where);
    if (!config.recurrent && !config.windows && own.computed_tokens != most)
        fail("fork_computed", where);
    if (config.recurrent && length >= old.computed_tokens &&
        own.computed_tokens != old.computed_tokens)
        fail("fork_computed", where, ", in a cache with states");
    if (own.computed_tokens != 0) child.admitted = next_admitted++;
    const auto now = info(parent.handle);
    if (now.computed_tokens != old.computed_tokens || now.blocks_held != old.blocks_held)
        fail("fork_parent", where, ", and the parent changed");
    sequences.push_back(child);
    count("fork");
}

void World::truncate_sequence() {
    const int index = pick_sequence();
    if (index < 0) return;
    Sequence &sequence = sequences[index];
    const auto old = info(sequence.handle);
    const uint32_t size = static_cast<uint32_t>(sequence.tokens.size());
    uint32_t length = rng.below(size + 2);
    if (rng.chance(.5) && size != 0) length = size - rng.below(std::min(4u, size) + 1);
    const auto before = snapshot();
    const int32_t status = api->seq_truncate(cache, sequence.handle, length, message());
    trace("seq_truncate ", hex(sequence.handle), " to ", length, " of ", size, " computed ",
          old.computed_tokens, " drafts ", sequence.drafts, " -> ", status);
    if (status < 0) {
        const std::string why = error.message;
        unchanged(before, "refused_changed", "truncate");
        if (length > size && status != QUIRE_E_ARG) fail("trunc_code", status);
        if (length > size) return;
        if (sequence.drafts != 0 && (status == QUIRE_E_BUSY || status == QUIRE_E_ARG)) {
            count("truncate with drafts refused");
            return;
        }
        fail("truncate", status, " ", why);
    }
    if (length > size) fail("trunc_past", "a truncation past the end was accepted");
    if (length < size) {
        published_exactly = false;
        const uint32_t without_drafts = size - sequence.drafts;
        if (sequence.drafts != 0)
            sequence.drafts = length > without_drafts ? length - without_drafts : 0;
        cut(sequence, length);
    }
    const auto now = info(sequence.handle);
    sequence.snapshots.erase(sequence.snapshots.upper_bound(now.computed_tokens),
                             sequence.snapshots.end());
    const uint32_t most = std::min(length, old.computed_tokens);
    const std::string where =
        join("truncation to ", length, " of computed ", old.computed_tokens, " left known ",
             now.known_tokens, " computed ", now.computed_tokens);
    if (now.known_tokens != length || now.computed_tokens > most) fail("trunc_info", where);
    if (sequence.drafts != now.draft_tokens) {
        count("truncate changed drafts otherwise");
        sequence.drafts = now.draft_tokens;
    }
    if (!config.recurrent && !config.windows && (old.flags & QUIRE_SEQ_SWAPPED) == 0 &&
        now.computed_tokens != most)
        fail("trunc_computed", where);
    if (config.snapshots && length < old.computed_tokens && now.computed_tokens != 0)
        fail("trunc_interval", where, "; with a state interval nothing may be left");
    if (sequence.lookahead_kept && now.lookahead_tokens != sequence.lookahead.size())
        cut(sequence, length);
}

void World::accept_drafts(Sequence &sequence) {
    const auto old = info(sequence.handle);
    const size_t lookahead =
        sequence.lookahead_kept && !config.recurrent ? sequence.lookahead.size() : 0;
    const uint32_t drafts = sequence.drafts;
    const uint32_t accepted = rng.below(drafts + lookahead + 1);
    if (rng.chance(.1)) {
        const auto before = snapshot();
        if (api->seq_accept(cache, sequence.handle, drafts + old.lookahead_tokens + 1, message()) >=
            0)
            fail("accept_past", "more than drafts and lookahead were accepted");
        unchanged(before, "refused_changed", "accept");
    }
    const int32_t status = api->seq_accept(cache, sequence.handle, accepted, message());
    trace("seq_accept ", hex(sequence.handle), " ", accepted, " of drafts ", drafts, " lookahead ",
          sequence.lookahead.size(), " -> ", status);
    require_ok("accept", status);
    const uint32_t length = static_cast<uint32_t>(sequence.tokens.size()) - drafts + accepted;
    for (uint32_t i = drafts; i < accepted; ++i) {
        sequence.tokens.push_back(sequence.lookahead[i - drafts]);
        sequence.named.push_back(0);
        if (config.group_count() != 1) published_exactly = false;
    }
    cut(sequence, length);
    sequence.drafts = 0;
    const auto now = info(sequence.handle);
    if (now.known_tokens != length)
        fail("accept_known", "known ", now.known_tokens, ", expected ", length);
    if (now.draft_tokens != 0) fail("accept_drafts", now.draft_tokens, " drafts are left");
    if ((drafts != 0 || accepted != 0) && now.computed_tokens != length)
        fail("accept_computed", "computed ", now.computed_tokens, " of known ", length);
    count("accept");
    publish(sequence);
}

// Gives some of a sequence's unnamed tokens their values.
void World::name_tokens() {
    const int index = pick_sequence();
    if (index < 0) return;
    Sequence &sequence = sequences[index];
    const auto &named = sequence.named;
    const size_t begin = std::find(named.begin(), named.end(), 0) - named.begin();
    if (begin == named.size()) return;
    size_t end = begin;
    while (end < named.size() && named[end] == 0 && rng.chance(.7)) ++end;
    end = std::max(end, begin + 1);
    quire_token_span span{};
    span.seq = sequence.handle;
    span.position = static_cast<uint32_t>(begin);
    span.token_count = static_cast<uint32_t>(end - begin);
    require_ok("set_tokens",
               api->seq_set_tokens(cache, &span, 1, sizeof span, sequence.tokens.data() + begin,
                                   span.token_count, message()));
    trace("seq_set_tokens ", hex(sequence.handle), " [", begin, ", ", end, ")");
    std::fill(sequence.named.begin() + begin, sequence.named.begin() + end, 1);
    published_exactly = false;
    count("set_tokens");
}

}  // namespace hybrid
