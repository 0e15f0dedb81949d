// SPDX-License-Identifier: Apache-2.0
//
// follower_tier: the store of a follower. The leader's log says what is loaded and written; this
// does it with the follower's part of each block, and says how each load went.
//
// follower_loads fills host blocks and reports; follower_writes copies blocks to the host and gives
// them to the store. Without a store every load is reported as a miss at once, so that no leader
// waits for one.
//
// A block that is to be written is copied by a queue of the tier's own, once the steps before its
// log have run. A log that comes meanwhile says which blocks its step may write; a copy of one of
// these does not count.
//
// Ownership: refers to the books and the link.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/tier_orders.hpp"
#include "core/tiers/landings.hpp"
#include "core/tiers/load_reports.hpp"
#include "core/tiers/store_state.hpp"
#include "core/tiers/stored_blocks.hpp"

namespace quire {

class FollowerTier final : public OrderTaker {
 public:
    explicit FollowerTier(CacheBooks *books);
    FollowerTier(const FollowerTier &) = delete;
    FollowerTier &operator=(const FollowerTier &) = delete;

    // As CacheTier's.
    Status check(const quire_cache_tier_desc &desc, const quire_store_info &store,
                 bool is_read_only) const;
    Status attach(const quire_cache_tier_desc &desc, const quire_store_info &store,
                  StoreLink *link);
    bool is_attached() const { return link_ != nullptr; }
    void progress(uint64_t most_bytes) {
        if (link_ != nullptr) [[unlikely]]
            make_progress(most_bytes);
    }
    Status check_store(quire_error *error) const { return fault_.check(error); }
    void tell(quire_cache_tier_progress *out) const;
    void begin_detach();
    bool is_drained();
    void end_detach();
    void leave_devices() { landings_.leave(); }

    // Bytes of the next report; 0: there is nothing to report.
    uint64_t report_bytes() const;
    // Writes the next report, which says of each load that is decided how it went. A load is
    // reported once. out: [report_bytes()], which is not 0.
    void write_report(uint64_t leader, uint64_t follower, uint8_t *out);

    void begin_check() override;
    Status check(const TierOrder &order, const uint8_t *tokens) override;
    Status end_check() const override;
    void take(const TierOrder &order, const uint8_t *tokens, uint64_t step) override;
    bool awaits_content() const override {
        return first_waiting_ != waiting_.size() || landings_.count() != 0;
    }
    void overwrite(uint32_t group, uint32_t block, bool is_host) override;
    void stop() override;

 private:
    friend class CacheDump;

    static constexpr uint32_t kMostLoads = Loads::kMost;
    static constexpr uint32_t kAtOnce = 16;  // requests and answers of one call of the store
    static constexpr uint64_t kMostWaiting = 65'536;  // as Unsaved; each takes 96 B and its tokens

    // A block of a load.
    struct Entry {
        Digest name;
        uint32_t group;
        uint32_t index;
        uint32_t block;  // of the host tier
        bool is_settled;
    };
    struct FollowedLoad {
        uint64_t serial = 0;   // 0: unused
        uint64_t step = 0;     // of its log
        uint32_t length = 0;   // blocks of the load
        uint32_t whole = 0;    // blocks, from the first on, that may be whole
        uint32_t next = 0;     // entry to ask for next
        uint32_t awaited = 0;  // entries of blocks before `whole` that are not settled
        bool is_decided = false;
        bool is_reported = false;
        Digest tenant{};
        Array<Entry> entries;
        Array<quire_token> tokens;  // [entries][block_tokens]
    };
    // A load as it will be after the orders that were checked.
    struct CheckedLoad {
        uint64_t serial;
        uint32_t length;
    };
    struct FollowedWrite {
        BlockName block;
        uint32_t number;
        bool is_host;
        bool is_void;   // the block may hold something else by now
        uint64_t step;  // of its log
    };
    struct Requests {
        Transfer *transfers[kAtOnce];
        quire_store_request requests[kAtOnce];
        uint32_t next[kAtOnce];  // of the load, before each
        uint32_t count = 0;
    };

    void make_progress(uint64_t most_bytes);
    void spend(uint64_t bytes) { budget_ = bytes < budget_ ? budget_ - bytes : 0; }
    bool is_serving() const {
        return link_ != nullptr && !is_detaching_ && !is_stopped_ && !fault_.is_broken();
    }
    void note_fault(const Status &status, const quire_error *words = nullptr);
    void reap();
    void take_answer(const quire_store_answer &answer);

    // follower_loads
    Status check_load(const TierOrder &order);
    Status check_end(const TierOrder &order);
    FollowedLoad *find(uint64_t serial);
    void take_load(const TierOrder &order, const uint8_t *tokens, uint64_t step);
    void take_end(const TierOrder &order);
    void shorten(FollowedLoad *load, uint32_t whole);
    void decide(FollowedLoad *load);
    void give_up_loads();
    FollowedLoad *load_of(const Transfer &transfer);
    void take_value(const Transfer &transfer, const quire_store_answer &answer, FollowedLoad *load);
    bool is_right(const Transfer &transfer, const FollowedLoad &load, const Entry &entry);
    FollowedLoad *next_load();
    bool fill_request(FollowedLoad *load, Requests *out);
    bool ask_for(FollowedLoad *load);
    void ask();
    void cancel_orphans();

    // follower_writes
    void take_write(const TierOrder &order, const uint8_t *tokens, uint64_t step);
    bool is_known(const FollowedWrite &write);
    bool put(const FollowedWrite &write, const quire_token *tokens, const uint8_t *const *parts);
    bool put_host_block(const FollowedWrite &write, const quire_token *tokens);
    bool begin_landing(const FollowedWrite &write, const quire_token *tokens);
    bool end_landing(uint32_t slot);
    bool write_front();
    void close_gap();
    void pop_front();
    void write();

    CacheBooks &books_;
    StoredBlocks blocks_;
    StoreLink *link_ = nullptr;
    quire_cache_tier_desc desc_{};
    uint64_t budget_ = 0;
    bool is_remote_ = false;
    bool is_detaching_ = false;
    bool is_stopped_ = false;
    StoreFault fault_;
    Flush flush_;

    FollowedLoad loads_[kMostLoads];
    uint64_t last_serial_ = 0;
    uint64_t ended_ = 0;    // loads that were decided since the tier was attached
    uint64_t reports_ = 0;  // written so far

    CheckedLoad checked_[kMostLoads] = {};
    uint32_t checked_count_ = 0;
    uint64_t checked_last_ = 0;
    TierOrder before_{};    // the order that was checked last
    uint32_t missing_ = 0;  // orders of its load that are still to come

    Landings landings_;
    FollowedWrite landed_[Landings::kMost] = {};  // by slot
    Array<quire_token> landed_tokens_;            // [slot][block_tokens]
    Array<FollowedWrite> waiting_;
    Array<quire_token> waiting_tokens_;  // [waiting_][block_tokens]
    uint64_t first_waiting_ = 0;
    Array<uint8_t> is_awaited_[2][kMaxGroups];  // [device, host][block] false: no write has it
};

}  // namespace quire
