// SPDX-License-Identifier: Apache-2.0
//
// handover: the hand-overs of a cache, by handle.
//
// A sender that is ended while copies of it are under way is kept until they have ended: its
// staging memory is theirs.
//
// Threads: none; Cache holds its lock.
#pragma once

#include <memory>

#include "core/session/handover_receive.hpp"
#include "core/session/handover_send.hpp"

namespace quire {

// Either end of a hand-over.
struct Handover {
    uint64_t handle = 0;
    std::unique_ptr<HandoverSend> send;
    std::unique_ptr<HandoverReceive> receive;
    std::unique_ptr<Handover> next;
};

class Handovers {
 public:
    Handovers(CacheBooks *books, Sequences *sequences) : books_(*books), sequences_(*sequences) {}
    ~Handovers() { leave_devices(); }
    Handovers(const Handovers &) = delete;
    Handovers &operator=(const Handovers &) = delete;

    Status send(uint64_t seq, const SessionIdentity &as, const quire_token *tokens,
                uint32_t token_count, uint64_t staging_bytes, uint64_t *out, quire_error *error);
    Status receive(const SessionIdentity &as, const quire_handover_receive_desc &desc,
                   const quire_seq_desc &seq, const quire_key *keys, uint64_t *out);
    Status find_send(uint64_t handle, HandoverSend **out) const;
    Status find_receive(uint64_t handle, HandoverReceive **out) const;
    Status end(uint64_t handle);
    uint32_t count() const { return count_; }
    // Waits for copies, and gives back all that lies on the devices. REQUIRES: count() is 0, or
    // the cache is destroyed.
    void leave_devices();

 private:
    static constexpr uint32_t kMost = 4096;

    Status make(std::unique_ptr<Handover> *out) const;
    Status add(std::unique_ptr<Handover> made, uint64_t *out);
    Status find(uint64_t handle, Handover **out) const;
    void sweep();

    CacheBooks &books_;
    Sequences &sequences_;
    std::unique_ptr<Handover> first_;
    std::unique_ptr<Handover> ended_;  // whose copies may still run
    uint32_t count_ = 0;
};

}  // namespace quire
