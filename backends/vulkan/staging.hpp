// SPDX-License-Identifier: Apache-2.0
//
// staging: copies to and from an engine's host memory that the device cannot reach, through a ring
// of memory that both reach.
//
// Imported memory is of this kind if VK_EXT_external_memory_host is missing. No call waits, and we
// run no thread, so bytes are moved by calls that are made anyway:
//
//   from host memory  the bytes are copied into the ring when the copy is enqueued: the caller may
//                     not touch them from then on
//   to host memory    the bytes are copied out of the ring by the next call that looks how far the
//                     device has come, before any later fence, on any queue, is seen as reached
//   both in turn      bytes that an earlier copy still has to bring to host memory are in the ring,
//                     or will be: a later copy from there reads them in the ring, after the earlier
//                     one
//
// Not supported: an engine's own semaphore would be signalled before bytes are copied out, so that
// signal is refused while any are pending; and kernels cannot read or write such memory.
//
// The ring is allocated in order and freed in order, as recordings finish. A piece that has no room
// in it gets a buffer of its own until then, so a call fails only for lack of memory.
//
// Invariants
//   (1) a landing is recorded from the call that enqueues it until its bytes are in host memory or
//       its recording will never run
//   (2) a piece stays as it is while a recording or a landing holds it
//
// Threads: under the device's mutex, except a piece's bytes, which belong to whoever took it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "buffer.hpp"
#include "quire/plugin/backend.h"

namespace quire::vulkan {

struct Queue;

// Memory that host and device reach.
struct Piece {
    Buffer own;  // if it has no room in the ring
    VkBuffer buffer;
    uint64_t offset;
    uint64_t size_bytes;
    unsigned char *host;
};
using PieceHold = std::shared_ptr<Piece>;

// Bytes of a piece that go to host memory once their recording has run.
struct Landing {
    unsigned char *to;
    uint64_t size_bytes;
    PieceHold piece;  // from the piece's beginning
    Queue *queue;
    uint64_t turn;
};

class Staging {
 public:
    // The largest piece; copies are cut into pieces of at most this size.
    static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
    static constexpr uint64_t kRingBytes = uint64_t{16} << 20;

    void release();

    // NULL: out of memory. REQUIRES: size_bytes is at most kPieceBytes.
    PieceHold take(Context &context, uint64_t size_bytes);
    // Finds the newest bytes of [host, host + size_bytes), as far as they lie in one piece: at
    // *offset of the piece, or in host memory itself (NULL). *run_bytes: how far.
    PieceHold find(const unsigned char *host, uint64_t size_bytes, uint64_t *offset,
                   uint64_t *run_bytes) const;
    void add(Landing landing) { landings_.push_back(std::move(landing)); }
    // Copies out what has arrived, and drops what never will.
    void land();
    // The host memory is being released: drops landings there.
    void forget(const unsigned char *host, uint64_t size_bytes);
    // True if bytes are still to be copied to host memory.
    bool is_landing() const { return !landings_.empty(); }

 private:
    PieceHold take_own(Context &context, uint64_t size_bytes);
    bool find_room(uint64_t size_bytes, uint64_t *offset);

    Buffer ring_;
    std::deque<PieceHold> taken_;    // of the ring, oldest first
    std::vector<Landing> landings_;  // oldest first
};

}  // namespace quire::vulkan
