// SPDX-License-Identifier: Apache-2.0
//
// reply_guard: how large a reply may be, checked before hiredis builds it.
//
// Why: hiredis builds what a node announces. It allocates a pointer per announced element, frees
// nested arrays by recursion, and searches a line that does not end from its start at each read.
//
// Invariants
//   (1) `expected_` has one entry per command that was sent and whose reply has not begun
//   (2) no object is made past the bounds of its reply, nor memory for its elements
//   (3) no line waits for its end, and no bulk for its bytes, past its bounds
//
// Threads: none; a lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

struct redisReader;
struct redisReadTask;
struct redisReplyObjectFunctions;

namespace quire::valkey {

struct Bounds {
    uint32_t depth;     // of arrays in arrays; 0: no array
    uint64_t elements;  // of all arrays together
    uint64_t bytes;     // of all texts together
};

class ReplyGuard {
 public:
    ReplyGuard() = default;
    ReplyGuard(const ReplyGuard &) = delete;
    ReplyGuard &operator=(const ReplyGuard &) = delete;

    // From now on the reader asks the guard, which must outlive it.
    void attach(redisReader *reader);
    // A command is sent whose reply may be so large. Throws std::bad_alloc.
    void expect(const Bounds &bounds) { expected_.push_back(bounds); }
    // It was not sent after all.
    void expect_less() { expected_.pop_back(); }
    // After each read: false if an item that has not come whole is too long already.
    bool admits_rest(const redisReader &reader);
    // Why a reply was refused; NULL if none was.
    const char *refusal() const { return refusal_; }

    // For the reader: false if the object must not be made.
    bool admits(const redisReadTask &task, uint64_t element_count, uint64_t byte_count);
    const redisReplyObjectFunctions &makers() const { return *makers_; }

 private:
    bool refuse(const char *why);

    const redisReplyObjectFunctions *makers_ = nullptr;  // hiredis's own
    std::deque<Bounds> expected_;
    Bounds left_{};  // of the reply that is being read
    const char *refusal_ = nullptr;
};

}  // namespace quire::valkey
