// SPDX-License-Identifier: Apache-2.0

#include "core/session/session_import.hpp"

namespace quire {

Status SessionImport::check_identity(const SessionIdentity &as) const {
    const SessionHeader &h = head_.header();
    if (std::memcmp(h.fingerprint, as.fingerprint, sizeof h.fingerprint) != 0) {
        return fail(QUIRE_E_ARG,
                    "foreign session: its fingerprint is another one: it was exported with another "
                    "model, or other settings that the fingerprint names");
    }
    if (std::memcmp(h.name_space, as.name_space, sizeof h.name_space) != 0)
        return fail(QUIRE_E_ARG, "foreign session: it belongs to another name space");
    return Status{};
}

// Cached blocks that no step touches give way, but not if that would not be enough.
bool SessionImport::make_room() {
    uint32_t needed[kMaxGroups] = {};
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const SessionGroup &group = head_.group(g);
        const BlockPool *host = books_.journal.host_pool(g);
        needed[g] = books_.geometry.groups[g].held_entries(group.length, group.null_front);
        uint64_t room = 0;
        if (host != nullptr) room = host->available(books_.timeline.oldest());
        if (needed[g] > room) return false;
    }
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        if (needed[g] == 0) continue;
        books_.journal.make_idle_host(g, needed[g]);
        if (needed[g] > books_.journal.host_pool(g)->idle_count()) return false;
    }
    return true;
}

// The sequence as a swap would leave it. REQUIRES: make_room().
Status SessionImport::take_blocks() {
    Sequence &s = books_.sequences[sequence_];
    const SessionHeader &h = head_.header();
    if (!books_.token_pages.prepare(&s.tokens, 0, h.known)) return no_host_memory();
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        BlockTable &t = books_.journal.table(sequence_, g);
        if (!books_.journal.buffers().grow(&t.ids, head_.group(g).length, 0))
            return no_host_memory();
    }
    books_.token_pages.write(&s.tokens, 0, head_.tokens(), h.known);
    s.state.known = h.known;
    if (h.computed == 0) return Status{};
    s.state.computed = h.computed;
    s.state.flags |= Sequence::kSwapped;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const SessionGroup &group = head_.group(g);
        for (uint32_t i = 0; i < group.length; ++i) {
            bool is_null = books_.geometry.groups[g].is_null(i, group.null_front);
            uint32_t block = is_null ? kNullBlock : books_.journal.take_idle_host(g);
            books_.journal.append_entry(&s, sequence_, g, block);
        }
    }
    return Status{};
}

Status SessionImport::create(const quire_seq_desc &desc, const quire_key *keys) {
    QUIRE_TRY(sequences_.create(desc, keys, &handle_));
    QUIRE_TRY(books_.find_sequence(handle_, &sequence_));
    books_.sequences[sequence_].state.flags |= Sequence::kLent;
    ++books_.lent_sequences;
    return Status{};
}

Status SessionImport::check_cross(uint32_t cross_tokens) const {
    if (cross_tokens == head_.header().cross_tokens) return Status{};
    return fail(QUIRE_E_ARG, "foreign session: its cross_tokens is {}, not {}",
                head_.header().cross_tokens, cross_tokens);
}

Status SessionImport::take(bool *short_of_blocks) {
    *short_of_blocks = false;
    const Sequence &s = books_.sequences[sequence_];
    QUIRE_TRY(check_cross(s.cross_tokens));
    uint8_t digest[16];
    books_.journal.tree().scopes().digest(s.root, s.scope, digest);
    if (std::memcmp(digest, head_.header().keys_digest, sizeof digest) != 0)
        return fail(QUIRE_E_ARG, "foreign session: its sequence had other keys");
    if (!make_room()) {
        *short_of_blocks = true;
        return Status{};
    }
    QUIRE_TRY(take_blocks());
    at_.rewind();
    return Status{};
}

Status SessionImport::begin(const quire_seq_desc &desc, const quire_key *keys,
                            bool *short_of_blocks) {
    *short_of_blocks = false;
    QUIRE_TRY(check_cross(desc.cross_tokens));
    QUIRE_TRY(create(desc, keys));
    Status taken = take(short_of_blocks);
    if (!taken.ok() || *short_of_blocks) end(false, nullptr);
    return taken;
}

Status SessionImport::next_bytes(uint64_t *size_bytes) const {
    CanonicalBlock form;
    QUIRE_TRY(at_.describe(&form));
    *size_bytes = form.size_bytes();
    return Status{};
}

Status SessionImport::check(const uint8_t *bytes, uint64_t size_bytes) {
    return at_.check(bytes, size_bytes, &accepted_);
}

void SessionImport::fill(const uint8_t *bytes) {
    uint32_t group = at_.group();
    uint32_t block = books_.journal.table(sequence_, group).ids.data[at_.index()];
    clear_host_block(books_.shards, group, block);
    scatter(accepted_, bytes, books_.shards, block);
    filled_bytes_ += accepted_.size_bytes();
    at_.next();
}

Status SessionImport::check_total() const {
    const uint64_t is = head_.size_bytes() + filled_bytes_;
    if (head_.header().total_bytes == is) return Status{};
    return fail(QUIRE_E_ARG, "damaged session: it says that it has {} bytes, and it has {}",
                head_.header().total_bytes, is);
}

void SessionImport::end(bool is_whole, uint64_t *out) {
    books_.sequences[sequence_].state.flags &= ~Sequence::kLent;
    --books_.lent_sequences;
    if (is_whole) {
        *out = handle_;
        return;
    }
    Status ended = sequences_.end(handle_, 0);
    QUIRE_ASSERT(ended.ok());
}

}  // namespace quire
