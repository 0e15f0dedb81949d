// SPDX-License-Identifier: Apache-2.0
//
// cache_tier: a store below a cache's prefixes: what it loads, what it writes, and the progress of
// both.
//
// load_begin decides what is loaded; load_requests asks the store for it; load_progress takes what
// arrives; write_progress copies cached blocks to the host and gives them to the store; write_back
// finds those that are soon to be evicted.
//
// A block that is written holds no reference: it is copied by a queue of the tier's own, and the
// copy counts only if the prefix tree still names the block afterwards, with the same content. So a
// write never keeps a block from a step.
//
// Ownership: refers to the books and the link.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/tiers/landings.hpp"
#include "core/tiers/store_state.hpp"
#include "core/tiers/stored_blocks.hpp"
#include "core/tiers/tier_keys.hpp"

namespace quire {

class CacheTier final : public LoadSource, public LossWatch, public BlockNames {
 public:
    // The most that one call of a step does, besides one block: about 1 ms of copying and checking.
    static constexpr uint64_t kStepBytes = uint64_t{4} << 20;
    static constexpr uint64_t kPollBytes = uint64_t{16} << 20;

    explicit CacheTier(CacheBooks *books)
        : books_(*books), keys_(books), blocks_(books), counts_(&books->host), landings_(books) {}
    CacheTier(const CacheTier &) = delete;
    CacheTier &operator=(const CacheTier &) = delete;

    // OK if the cache may have a tier with such a store.
    Status check(const quire_cache_tier_desc &desc, const quire_store_info &store,
                 bool is_read_only) const;
    // REQUIRES: check(), and no tier is attached.
    Status attach(const quire_cache_tier_desc &desc, const quire_store_info &store,
                  StoreLink *link);
    bool is_attached() const { return link_ != nullptr; }

    // Reads answers, checks and copies values, begins requests: most_bytes and one block at most.
    void progress(uint64_t most_bytes) {
        if (link_ != nullptr) [[unlikely]]
            make_progress(most_bytes);
    }
    // Asks for what is to be loaded.
    void ask() {
        if (link_ != nullptr) [[unlikely]]
            ask_for_loads();
    }
    // OK unless the store broke its contract.
    Status check_store(quire_error *error) const { return fault_.check(error); }
    void tell(quire_cache_tier_progress *out) const;
    void stats(quire_cache_tier_stats *out) const;

    // Loads and takes no more. It is drained once everything has ended.
    void begin_detach();
    bool is_drained();
    void end_detach();
    // Ends the copies on the devices that the cache is on.
    void leave_devices() { landings_.leave(); }
    // What was computed is of other weights now: nothing is loaded or written any more.
    void fall_asleep();

    bool begin_load(const LoadRequest &request, Load *load) override;
    uint64_t now_ns() override { return link_->now_ns(); }
    bool would_lose(uint32_t node, uint32_t group) const override;
    void note_loss() override { ++books_.loads.counts.blocks_evicted; }
    void note_used(const Load &load) override;
    bool name_of(uint32_t node, Digest *name) override;
    uint32_t followers() const { return desc_.followers; }
    // A follower, below kMostFollowers, says how many blocks of a load it has.
    void take_outcome(uint32_t follower, uint64_t serial, uint32_t whole);

 private:
    // The last look at a group's oldest blocks.
    struct Sweep {
        uint32_t found = 0;      // blocks that were cached then, of those that are looked at
        uint64_t evictions = 0;  // of the cache, until then
        bool is_made = false;
    };

    static constexpr uint32_t kAtOnce = 16;  // requests and answers of one call of the store
    static constexpr uint32_t kMostAsked = Transfers::kMost / 2;  // FINDs under way

    // A block that is copied to the host.
    struct Landing {
        uint32_t group = 0;
        uint32_t node = 0;
        uint32_t block = 0;
        uint64_t generation = 0;
        uint64_t ready = 0;  // of the block
    };
    // Requests of one load that are given to the store together.
    struct LoadRequests {
        Transfer *transfers[kAtOnce];
        quire_store_request requests[kAtOnce];
        uint32_t next[kAtOnce];  // of the load, before each
        uint32_t count = 0;
    };

    void make_progress(uint64_t most_bytes);
    void spend(uint64_t bytes) { budget_ = bytes < budget_ ? budget_ - bytes : 0; }
    void note_fault(const Status &status, const quire_error *words = nullptr);
    uint8_t find_now(const quire_store_label &label);

    // load_begin
    bool name_blocks(const LoadRequest &request, uint32_t from, uint32_t end, Load *load);
    bool look_up(uint32_t group, uint32_t from, uint32_t end, const Digest &tenant, Load *load);
    uint32_t stored_run(const LoadRequest &request, uint32_t from, Load *load);
    uint32_t best_length(const Load &load);
    bool count_stored(uint32_t group, uint32_t end, const Load &load);
    bool is_whole(uint32_t group, uint32_t length) const;
    bool keep_tokens(const Sequence &s, Load *load);
    bool take_blocks(uint32_t length, Load *load);
    bool is_enough(uint32_t length, uint32_t found) const;

    // load_progress
    void reap();
    void take_answer(const quire_store_answer &answer);
    void take_notice(const quire_store_answer &notice);
    void take_value(const Transfer &transfer, const quire_store_answer &answer, Load *load);
    bool is_right(const Transfer &transfer, const Load &load);
    void lose(Load *load, uint64_t entry);
    void do_without(Load *load, uint32_t index);
    void miss(Load *load);
    void cut(Load *load, uint32_t length);
    // True if the entry's value has to come from the store of this process.
    bool is_awaited(const Load &load, uint64_t entry) const {
        return load.blocks[entry] != kNullBlock && blocks_.holds(load.group_of(entry));
    }
    void end_wait(Load *load);
    void expire();
    void cancel_orphans();
    Load *load_of(const Transfer &transfer);

    // load_requests
    bool has_to_ask(Load *load) const;
    Load *next_load() const;
    bool fill_request(Load *load, LoadRequests *out);
    bool ask_for(Load *load);
    void ask_for_loads();
    void take_found(const Transfer &transfer, const quire_store_answer &answer, Load *load);
    void end_asking(Load *load);

    // write_progress
    void write();
    bool write_block(uint32_t node, NodeName *name, uint32_t group);
    bool write_host_block(uint32_t node, NodeName *name, uint32_t group);
    bool begin_landing(uint32_t node, NodeName *name, uint32_t group);
    bool still_holds(const Landing &landing) const;
    void end_put(const Transfer &transfer, const quire_store_answer &answer);
    bool put(uint32_t node, uint32_t group, const uint8_t *const *parts);
    bool end_landing(uint32_t slot);
    bool write_front();

    // write_back
    const BlockPool &last_level(uint32_t group) const;
    bool is_due(uint32_t group, uint32_t window) const;
    void sweep();
    void note_oldest(const BlockPool &pool, uint32_t group, uint32_t most);
    void note_all_cached();

    CacheBooks &books_;
    TierKeys keys_;
    StoredBlocks blocks_;
    StoreLink *link_ = nullptr;
    quire_cache_tier_desc desc_{};
    uint64_t budget_ = 0;
    Array<uint32_t> counts_;  // [length + 1] blocks of a window group that the store has, summed up
    bool is_remote_ = false;  // other processes put and remove too
    bool is_detaching_ = false;
    bool is_asleep_ = false;
    StoreFault fault_;
    Flush flush_;
    Landings landings_;
    Landing landed_[Landings::kMost];  // by slot
    Sweep sweeps_[kMaxGroups] = {};
};

}  // namespace quire
