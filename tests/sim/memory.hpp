// SPDX-License-Identifier: Apache-2.0
//
// memory: the device's and the host tier's blocks, slot by slot, and who may still touch each slot.
//
// Why a race detector and not many orders: if no two conflicting accesses are unordered, every
// order that queues and fences allow gives the same bytes. So a step is executed once, and each
// access is compared with the last write and the last reads of the slot (vector clocks, as
// FastTrack, Flanagan and Freund, PLDI 2009).
//
// Invariants:
//   (1) an access by an actor happens after the slot's last write
//   (2) a write happens after the last read of each queue
//   (3) depends has a bit for each unfinished step that the content came from
//   Block 0 is the null block: it is neither read nor written.
//
// Threads: none.  Units: places are slots within a block.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "content.hpp"
#include "finding.hpp"

namespace sim {

constexpr uint32_t kMaxQueues = 8;  // the library's own too
using Clock = uint32_t;
using VectorClock = std::array<Clock, kMaxQueues>;

inline void join(VectorClock &into, const VectorClock &other) {
    for (uint32_t q = 0; q < kMaxQueues; ++q)
        if (into[q] < other[q]) into[q] = other[q];
}

enum Tier : uint32_t { kDevice = 0, kHost = 1 };

// Who accesses: a step's work on a queue.
struct Actor {
    uint32_t queue = 0;
    uint32_t step = 0;  // its number in the script, for messages
    uint8_t bit = 0;    // of the unfinished step
    VectorClock clock{};
};

// Whether a sequence or the prefix cache has a token in a slot. Maybe: a draft that accept_path
// kept lies there, or is to be moved there; or the block is out of the window of its sequence; or
// the model cannot know whether it is published.
enum class Held : uint8_t { no, maybe, yes };

struct Slot {
    Content content = 0;
    uint8_t group = 0;         // whose content it is; groups may share a pool
    uint32_t writer = 0;       // step that wrote last, for messages
    uint32_t write_queue = 0;  // queue and clock of the last write
    Clock write_clock = 0;
    VectorClock reads{};  // of each queue, the clock of its last read
    // Block copies read whole blocks, also slots that their owners do not need yet: of each queue,
    // the clock of the last such read, and where it went. A write that races with it makes the
    // copied slot noise; whether that matters, its reader's check decides.
    VectorClock copied{};
    std::array<Slot *, kMaxQueues> copied_to{};
    uint8_t depends = 0;
    bool is_copy = false;    // its last write was a block copy
    uint8_t writer_bit = 0;  // the writer's, while it is unfinished
    // A zeroing, or a copy of a whole block: its step while that is unfinished, what it took away,
    // and whether a token was written there since. The old content comes into sight again where
    // it, and all that wrote over it, are parts of steps that failed: when the first of them fails,
    // the token's step takes its place here.
    uint8_t zero_by = 0;
    bool has_token = false;
    Held held = Held::no;   // as of the last failure: see hold
    uint8_t token_by = 0;   // the unfinished steps that wrote the token, or copied it here
    uint8_t zeroed_by = 0;  // all unfinished steps that did so since, this one and earlier ones
    uint8_t heirs = 0;      // those that wrote over what a failed step was to zero
    Content under = 0;
};

// Whether a block that a failed step was to zero is lost by that: see Memory::zeros_owed.
enum class Zeros : uint8_t { none, unsure, owed };

struct Pool {
    uint32_t blocks = 0;
    std::vector<Slot> slots;         // [blocks][places]
    uint32_t places = 1;             // of a block: the most that any of its groups has
    std::vector<uint8_t> must_zero;  // [blocks] 1: before it is handed out
};

class Memory {
 public:
    // By group: tokens of a block, and blocks of its pool. one_pool: all groups have the same one.
    void reset(const std::vector<uint32_t> &block_tokens,
               const std::vector<uint32_t> &device_blocks, const std::vector<uint32_t> &host_blocks,
               bool one_pool);

    uint32_t blocks(Tier tier, uint32_t group) const { return pool(tier, group).blocks; }
    Slot &at(Tier tier, uint32_t group, int32_t block, uint32_t place);
    const Slot *block(Tier tier, uint32_t group, int32_t block) const;

    // Reads for attention: the content, after the race check.
    Content read(uint32_t group, int32_t block, uint32_t place, const Actor &actor);
    void write(uint32_t group, int32_t block, uint32_t place, Content content, uint8_t depends,
               const Actor &actor);
    // What was written there is a token; in a lookahead it becomes one when it is accepted.
    void note_token(uint32_t group, int32_t block, uint32_t place) {
        Slot &slot = at(kDevice, group, block, place);
        slot.has_token = true;
        slot.token_by = slot.writer_bit;
    }
    // Before a failure: no slot is held, but for those that are then named by hold.
    void hold_none();
    void hold(Tier tier, uint32_t group, int32_t block, uint32_t place, Held held) {
        Slot &slot = at(tier, group, block, place);
        slot.held = std::max(slot.held, held);
    }
    // Slots that hold one of these, and are not held, may be.
    void hold_contents(uint32_t group, const std::set<Content> &contents);
    // Whether the step `bit` was to zero the block or to copy over it, and some slot is held by no
    // token that was written since. Unsure: a later step has zeroed it again or copied over it
    // (README.md, question 12).
    Zeros zeros_owed(Tier tier, uint32_t group, int32_t block, uint8_t bit);
    // Whether such a slot was written, and its token given up since, and no such slot was left.
    bool given_up(uint32_t group, int32_t block, uint8_t bit);
    void copy_place(Tier to, Tier from, uint32_t group, int32_t src, uint32_t src_place,
                    int32_t dst, uint32_t dst_place, const Actor &actor);
    void copy_block(Tier to, Tier from, uint32_t group, int32_t src, int32_t dst,
                    const Actor &actor);
    // Slots of copies that a race made noise.
    uint64_t noise() const { return noise_; }
    void zero_block(uint32_t group, int32_t block, const Actor &actor);
    uint8_t &must_zero(uint32_t group, int32_t block) {
        return pool(kDevice, group).must_zero[static_cast<size_t>(block)];
    }

    // Poisons all content that depends on the failed step `bit`.
    void poison(uint8_t bit);
    // The step `bit` is done and counts for nothing any more.
    void settle(uint8_t bit);

    // The group that has written the block, of those that share the pool of `group`.
    uint32_t group_of(Tier tier, uint32_t group, int32_t block) const {
        return one_pool_ ? this->block(tier, group, block)->group : group;
    }
    // Places of all of a block's memory.
    uint32_t places(Tier tier, uint32_t group) const { return pool(tier, group).places; }
    // Slots written or read so far.
    uint64_t accesses() const { return accesses_; }
    void take_accesses(const Memory &other) { accesses_ += other.accesses_; }
    // True: copies and zeroings of a step that fails may not have run.
    void distrust_copies(bool on) { distrust_copies_ = on; }
    static std::string describe(const Slot &slot);

 private:
    void check_read(Slot &slot, Tier tier, uint32_t group, int32_t block, uint32_t place,
                    const Actor &actor);
    void spoil_copies(Slot &slot, const Actor &actor);
    void check_write(Slot &slot, Tier tier, uint32_t group, int32_t block, uint32_t place,
                     const Actor &actor);
    void poison_slot(Slot &slot, uint8_t bit);
    // What loads write is of no group.
    bool has_of(const Slot &slot, uint32_t group) const {
        return !one_pool_ || slot.group == group;
    }
    Pool &pool(Tier tier, uint32_t group) { return pools_[tier][one_pool_ ? 0 : group]; }
    const Pool &pool(Tier tier, uint32_t group) const {
        return pools_[tier][one_pool_ ? 0 : group];
    }

    std::vector<uint32_t> block_tokens_;  // by group
    uint64_t accesses_ = 0;
    uint64_t noise_ = 0;
    bool distrust_copies_ = false;
    bool one_pool_ = false;
    std::vector<Pool> pools_[2];
};

}  // namespace sim
