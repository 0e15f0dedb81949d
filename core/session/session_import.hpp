// SPDX-License-Identifier: Apache-2.0
//
// session_import: a sequence in the host tier, made from a session while the cache goes on.
//
// begin() makes the sequence with its tokens and takes its blocks; each block is then checked and
// filled; end() gives the sequence out, or ends it. Until then it is lent: no one knows its handle,
// and nothing takes or changes it.
//
// Threads: none; Cache holds its lock around each call, except for check(), which reads only what
// is constant, and may run without it.
#pragma once

#include "core/session/session_blocks.hpp"
#include "core/session/session_export.hpp"
#include "core/steps/sequences.hpp"

namespace quire {

class SessionImport {
 public:
    SessionImport(CacheBooks *books, Sequences *sequences, uint64_t magic = kSessionMagic)
        : books_(*books), sequences_(*sequences), head_(&books->host, magic) {}

    // The head is read and checked before begin().
    SessionHead &head() { return head_; }
    const SessionHead &head() const { return head_; }
    // OK if the session may become a sequence of this cache for who asks.
    Status check_identity(const SessionIdentity &as) const;
    // keys: [desc.key_count]. *short_of_blocks: the host tier is too small; there is no sequence.
    Status begin(const quire_seq_desc &desc, const quire_key *keys, bool *short_of_blocks);
    // The same in two parts, with the head between them. create() makes an empty sequence; take()
    // fills its tables, and can be tried again.
    Status create(const quire_seq_desc &desc, const quire_key *keys);
    Status take(bool *short_of_blocks);
    uint32_t block_at(uint32_t group, uint32_t index) const {
        return books_.journal.table(sequence_, group).ids.data[index];
    }
    bool at_end() const { return at_.at_end(); }
    // The size of the next block's bytes. REQUIRES: not at the end.
    Status next_bytes(uint64_t *size_bytes) const;
    // OK if the next block begins with these bytes, a CanonicalHeader; then: if it is all of these.
    Status check_header(const uint8_t *bytes) const { return at_.check_header(bytes); }
    Status check(const uint8_t *bytes, uint64_t size_bytes);
    // Fills the block that check() accepted, and goes on to the next.
    void fill(const uint8_t *bytes);
    // OK if the session has the size that it says. REQUIRES: at the end.
    Status check_total() const;
    // `is_whole`: gives out the sequence; else it is ended. REQUIRES: begin() made one.
    void end(bool is_whole, uint64_t *out);

 private:
    Status check_cross(uint32_t cross_tokens) const;
    bool make_room();
    Status take_blocks();

    CacheBooks &books_;
    Sequences &sequences_;
    SessionHead head_;
    SessionBlocks at_{&books_, &head_};
    CanonicalBlock accepted_;
    uint64_t filled_bytes_ = 0;
    uint64_t handle_ = 0;
    uint32_t sequence_ = 0;
};

}  // namespace quire
