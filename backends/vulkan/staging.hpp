// SPDX-License-Identifier: Apache-2.0
//
// staging: copies to and from host memory of the engine's that the device cannot reach, by way of a
// ring of memory that both reach.
//
// Imported memory is such where VK_EXT_external_memory_host is missing. A call never waits, and no
// thread of ours does, so bytes change sides in calls that are made anyway:
//
//   from host memory  they are copied into the ring when the copy is enqueued: nobody may touch
//                     them from then on
//   to host memory    they are copied out of the ring by the next call that looks how far the
//                     device came, before any fence behind them is seen to be reached, on whichever
//                     queue
//   both in turn      what an earlier copy is still to bring to host memory lies in the ring, or
//                     will: a later copy from there reads it in the ring, behind the earlier one
//
// What does not work: an engine's own semaphore would be signalled before bytes are copied out, so
// that signal is refused while any are on their way; and a kernel cannot read or write such memory.
//
// The ring is taken in order and freed in order, as batches have run. What has no room in it gets a
// buffer of its own until then: so a call fails for want of memory alone.
//
// Invariants
//   (1) a landing is known from the call that enqueues it until its bytes are in host memory or its
//       batch will not run
//   (2) a piece stays as it is while a batch or a landing has it
//
// Threads: under the device's mutex, but for the bytes of a piece, which are their taker's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "buffer.hpp"
#include "quire/plugin/backend.h"

namespace quire::vulkan {

// Memory that host and device reach.
struct Piece {
    Buffer own;  // of what has no room in the ring
    VkBuffer buffer;
    uint64_t offset;
    uint64_t size_bytes;
    unsigned char *host;
};
using PieceHold = std::shared_ptr<Piece>;

// Bytes of a piece that belong in host memory when their batch has run.
struct Landing {
    unsigned char *to;
    uint64_t size_bytes;
    PieceHold piece;  // from its beginning
    quire_be_queue *queue;
    uint64_t place;
};

class Staging {
 public:
    // The most that one piece holds; copies are cut into such.
    static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
    static constexpr uint64_t kRingBytes = uint64_t{16} << 20;

    void release();

    // NULL: there is no memory. REQUIRES: size_bytes is at most kPieceBytes.
    PieceHold take(Context &context, uint64_t size_bytes);
    // Where the newest bytes of [host, host + size_bytes) are, as far as that is one place: at
    // *offset of the piece, or in host memory itself, with NULL. *run_bytes: how far.
    PieceHold find(const unsigned char *host, uint64_t size_bytes, uint64_t *offset,
                   uint64_t *run_bytes) const;
    void add(Landing landing) { landings_.push_back(std::move(landing)); }
    // Copies out what has arrived, and forgets what never will.
    void land();
    // The host memory goes.
    void forget(const unsigned char *host, uint64_t size_bytes);
    // Are bytes on their way to host memory?
    bool is_landing() const { return !landings_.empty(); }

 private:
    PieceHold take_own(Context &context, uint64_t size_bytes);
    bool find_room(uint64_t size_bytes, uint64_t *offset);

    Buffer ring_;
    std::deque<PieceHold> taken_;    // of the ring, oldest first
    std::vector<Landing> landings_;  // oldest first
};

}  // namespace quire::vulkan
