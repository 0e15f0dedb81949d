// SPDX-License-Identifier: Apache-2.0
//
// tier_orders: what a log says to the tier of a follower, and who takes it.
//
// A log is checked completely before anything of it is applied, so orders come twice: first all of
// them to check(), then to take().
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/sha256.hpp"
#include "core/base/status.hpp"
#include "quire/base.h"

namespace quire {

enum : uint32_t {
    kOrderLoad = 1,       // fill a host block with a block of the store
    kOrderWrite = 2,      // write a block of the device to the store
    kOrderEnd = 3,        // a load gives up its blocks from `index` on
    kOrderWriteHost = 4,  // write a block of the host tier to the store
};

// An order as it lies in a log (docs/follower-log.md). Token ids follow all kinds but END.
struct TierOrder {
    uint32_t kind;
    uint32_t group;
    uint64_t serial;  // LOAD and END: of the load
    uint32_t index;   // of the block in its sequence
    uint32_t block;
    uint32_t count;  // LOAD: orders of this load, one after another
    uint32_t reserved0;
    Digest tenant;
    Digest name;

    bool has_tokens() const { return kind != kOrderEnd; }
};
static_assert(sizeof(TierOrder) == 96);

class OrderTaker {
 public:
    // A check begins, and ends after the last order of a log.
    virtual void begin_check() = 0;
    // tokens: [block_tokens] u32 of any alignment, if the order has tokens.
    virtual Status check(const TierOrder &order, const uint8_t *tokens) = 0;
    virtual Status end_check() const = 0;

    // step: of the log, in this process. The log's step comes after what is ordered.
    virtual void take(const TierOrder &order, const uint8_t *tokens, uint64_t step) = 0;
    // True if overwrite() has to be called.
    virtual bool awaits_content() const = 0;
    // The step that comes next may write to the block.
    virtual void overwrite(uint32_t group, uint32_t block, bool is_host) = 0;
    // The content of blocks cannot be trusted any more.
    virtual void stop() = 0;

 protected:
    ~OrderTaker() = default;
};

}  // namespace quire
