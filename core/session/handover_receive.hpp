// SPDX-License-Identifier: Apache-2.0
//
// handover_receive: the end of a hand-over that goes on: a sequence in the host tier, made of bytes
// that come in any pieces.
//
// The sequence is made at once, empty and lent; its blocks are taken when the head has come and is
// right, before any K and V. It is given out when the tail is there and every cell has come once.
// Refused bytes leave nothing: the sequence ends.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/session/handover_stream.hpp"
#include "core/session/session_import.hpp"
#include "quire/handover.h"

namespace quire {

class HandoverReceive {
 public:
    HandoverReceive(CacheBooks *books, Sequences *sequences)
        : books_(*books),
          import_(books, sequences, kHandoverMagic),
          expected_(&books->host),
          cells_(&books->host),
          bytes_(&books->host) {}
    HandoverReceive(const HandoverReceive &) = delete;
    HandoverReceive &operator=(const HandoverReceive &) = delete;

    // keys: [seq.key_count].
    Status begin(const SessionIdentity &as, const quire_handover_receive_desc &desc,
                 const quire_seq_desc &seq, const quire_key *keys);
    // Takes the next bytes, up to the end of the hand-over. *used: how many of them.
    // *short_of_blocks: the host tier is too small now; nothing after the head was taken.
    Status write(const uint8_t *bytes, uint64_t size_bytes, uint64_t *used, bool *short_of_blocks);
    void tell(quire_handover_progress *out) const;
    // The sequence ends, unless all of it came.
    void end() { release(false); }

 private:
    enum class Next : uint8_t {
        header,
        head_room,
        head,
        blocks,
        part_begin,
        part_header,
        part,
        tail,
        none
    };

    Status take_bytes(const uint8_t *bytes, uint64_t size_bytes, uint64_t *used,
                      bool *short_of_blocks);
    Status take(bool *short_of_blocks);
    Status expect(Next next, uint64_t size_bytes);
    Status extend(Next next, uint64_t size_bytes);
    Status take_header();
    Status take_head();
    Status check_tokens() const;
    Status take_part_begin();
    Status take_part_header();
    Status take_part();
    Status take_tail();
    void release(bool is_whole);

    CacheBooks &books_;
    SessionImport import_;
    SessionIdentity as_{};
    Array<quire_token> expected_;  // empty: any tokens
    HandoverCells cells_;
    HandoverPart part_{};
    Status failure_;
    bool is_held_ = false;   // the sequence is lent
    uint64_t sequence_ = 0;  // that was given out

    Next next_ = Next::none;
    Array<uint8_t> bytes_;  // of the next piece, as far as they have come
    uint64_t wanted_ = 0;
    uint64_t parts_ = 0;
    uint64_t counted_bytes_ = 0;  // of head and parts
    uint64_t taken_bytes_ = 0;    // of all that was given
};

}  // namespace quire
