// SPDX-License-Identifier: Apache-2.0
//
// handover_send: the end of a hand-over that computes: K and V leave as they are computed, layer by
// layer, as far as the staging memory goes; the rest once the sequence's last step has run.
//
// Why parts may leave before their step has ended: the tail comes last, and only if no token whose
// part has left was taken back since. A receiver without a tail has nothing.
//
// From the moment in which all tokens are computed and have run, until the tail has left, the
// sequence is lent: nothing takes, changes or preempts it.
//
// Invariants: a part's cells are closed when its copy is enqueued; parts leave in that order; the
// staging memory is a ring of the parts that have not left.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/session/handover_stream.hpp"
#include "core/session/session_export.hpp"
#include "quire/handover.h"

namespace quire {

class HandoverSend {
 public:
    explicit HandoverSend(CacheBooks *books)
        : books_(*books),
          head_(&books->host, kHandoverMagic),
          cells_(&books->host),
          pending_(&books->host),
          copies_(&books->host),
          out_(&books->host) {}
    // REQUIRES: is_quiet(), or nothing runs on the copy lanes.
    ~HandoverSend();
    HandoverSend(const HandoverSend &) = delete;
    HandoverSend &operator=(const HandoverSend &) = delete;

    // tokens: [token_count] those to be handed over; nullptr: the known ones.
    Status begin(uint64_t handle, const SessionIdentity &as, const quire_token *tokens,
                 uint32_t token_count, uint64_t staging_bytes, quire_error *error);
    uint64_t sequence_handle() const { return handle_; }
    // Enqueues copies of what the step has computed in these layers of the model, of blocks that
    // are full, or hold the last token.
    Status layers(StepRecord *record, uint32_t first, uint32_t count, quire_error *error);
    // Gives the next bytes, as many as there are now. REQUIRES: fences were read.
    Status read(uint8_t *to, uint64_t capacity, uint64_t *size_bytes, quire_error *error);
    void tell(quire_handover_progress *out) const;
    // Gives the sequence back.
    void end();
    // True if none of its copies is under way.
    bool is_quiet() const { return books_.copy_lanes.has_ended(last_mark_); }

 private:
    struct Pending {
        HandoverPart part;
        uint64_t at;    // in the staging memory of each shard
        uint64_t mark;  // of the copy lanes
    };
    struct Staging {
        const Device *device = nullptr;
        uint64_t address = 0;
        uint8_t *bytes = nullptr;
    };

    Status write_head(const SessionIdentity &as, const quire_token *tokens, uint32_t count);
    Status create_staging(uint64_t size_bytes, quire_error *error);
    Status check_live(uint32_t *sequence) const;
    Status check_kept();
    uint32_t end_of(uint32_t group, uint32_t index) const;
    void forget_pending();
    bool take_room(uint64_t size_bytes, uint64_t *at);
    uint64_t staged_bytes(const HandoverPart &part) const;
    bool add_pending(const HandoverPart &part);
    void add_layers_of_group(uint32_t group, uint32_t first, uint32_t end, uint32_t computed);
    Status copy_pending(uint64_t first, StepRecord *record, quire_error *error);
    Status enqueue_pending(uint64_t first, StepRecord *record, quire_error *error);
    Status copies_of(uint32_t shard, uint64_t first_pending);
    Status next_bytes(bool *has_more, quire_error *error);
    Status take_arrived(bool *has_more, quire_error *error);
    Status lend(bool *is_lent);
    Status take_rest(bool *has_more, quire_error *error);
    bool next_rest(HandoverPart *part);
    Status write_part(const HandoverPart &part, const Pending *staged);
    Status write_tail();
    Status begin_out(uint64_t size_bytes);

    CacheBooks &books_;
    uint64_t handle_ = 0;
    uint32_t sequence_ = 0;
    SessionHead head_;
    HandoverCells cells_;
    uint32_t sent_tokens_ = 0;  // the sequence must have had so many ever since
    bool is_lent_ = false;
    bool has_head_ = false;  // was given
    bool is_whole_ = false;  // the tail was written
    SessionBlocks rest_{&books_, &head_};

    uint32_t shard_count_ = 0;
    Staging staging_[kMaxShards];
    uint64_t staging_bytes_ = 0;
    uint64_t ring_end_ = 0;  // where the next part goes, if there is room
    Array<Pending> pending_;
    uint64_t first_pending_ = 0;
    uint64_t last_mark_ = 0;
    Array<quire_be_copy> copies_;

    Array<uint8_t> out_;  // what is being given
    uint64_t out_at_ = 0;
    uint64_t parts_ = 0;
    uint64_t given_bytes_ = 0;
};

}  // namespace quire
