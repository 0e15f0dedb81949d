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
// Ownership: refers to the books and the link; owns its queues and what they copy to.
// Threads: none; Cache holds its lock.
#pragma once

#include <memory>

#include "core/device/backend_call.hpp"
#include "core/device/counted_queue.hpp"
#include "core/tiers/store_link.hpp"
#include "core/tiers/tier_keys.hpp"
#include "core/transfer/block_form.hpp"

namespace quire {

class CacheTier final : public LoadSource, public LossWatch, public BlockNames {
 public:
    // The most that one call of a step does, besides one block: about 1 ms of copying and checking.
    static constexpr uint64_t kStepBytes = uint64_t{4} << 20;
    static constexpr uint64_t kPollBytes = uint64_t{16} << 20;

    explicit CacheTier(CacheBooks *books) : books_(*books), keys_(books), counts_(&books->host) {}
    CacheTier(const CacheTier &) = delete;
    CacheTier &operator=(const CacheTier &) = delete;
    ~CacheTier() { leave_devices(); }

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
    Status check_store(quire_error *error) const;
    void tell(quire_cache_tier_progress *out) const;
    void stats(quire_cache_tier_stats *out) const;

    // Loads and takes no more. It is drained once everything has ended.
    void begin_detach();
    bool is_drained();
    void end_detach();
    // Ends the copies on the devices that the cache is on.
    void leave_devices();
    // What was computed is of other weights now: nothing is loaded or written any more.
    void fall_asleep();

    bool begin_load(const LoadRequest &request, Load *load) override;
    uint64_t now_ns() override { return link_->now_ns(); }
    bool would_lose(uint32_t node, uint32_t group) const override;
    void note_loss() override { ++books_.loads.counts.blocks_evicted; }
    void note_used(const Load &load) override;
    bool name_of(uint32_t node, Digest *name) override;

 private:
    // The last look at a group's oldest blocks.
    struct Sweep {
        uint32_t found = 0;      // blocks that were cached then, of those that are looked at
        uint64_t evictions = 0;  // of the cache, until then
        bool is_made = false;
    };

    // Blocks that are copied to the host at once: at least the fewest, and more if they are small.
    static constexpr uint32_t kFewestLandings = 4, kMostLandings = 64;
    static constexpr uint64_t kLandingBytes = uint64_t{4} << 20;
    static constexpr uint32_t kAtOnce = 16;  // requests and answers of one call of the store
    static constexpr uint32_t kMostAsked = Transfers::kMost / 2;  // FINDs under way

    // A block that is copied to the host.
    struct Landing {
        bool is_used = false;
        uint32_t group = 0;
        uint32_t node = 0;
        uint32_t block = 0;
        uint64_t generation = 0;
        uint64_t ready = 0;  // of the block
        uint64_t reached[kMaxShards] = {};
    };
    // Requests of one load that are given to the store together.
    struct LoadRequests {
        Transfer *transfers[kAtOnce];
        quire_store_request requests[kAtOnce];
        uint32_t next[kAtOnce];  // of the load, before each
        uint32_t count = 0;
    };
    // Where the blocks of one shard arrive: [landing_count][stride].
    struct Shore {
        const Device *device = nullptr;
        uint64_t address = 0;
        uint8_t *bytes = nullptr;
        CountedQueue queue;
    };
    struct Shores {
        uint64_t stride = 0;  // bytes of a landing on each
        uint32_t landing_count = 0;
        Landing landings[kMostLandings];
        uint32_t count = 0;
        Shore of[kMaxShards];
    };

    void make_progress(uint64_t most_bytes);
    void spend(uint64_t bytes) { budget_ = bytes < budget_ ? budget_ - bytes : 0; }
    void note_lie(const Status &status);
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
    bool is_right(const Transfer &transfer, const Load &load, CanonicalBlock *form);
    void lose(Load *load, uint64_t entry);
    void do_without(Load *load, uint32_t index);
    void miss(Load *load);
    void cut(Load *load, uint32_t length);
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
    bool create_shores();
    void stop_copying();
    void drop_landings();
    bool write_block(uint32_t node, NodeName *name, uint32_t group);
    bool write_host_block(uint32_t node, NodeName *name, uint32_t group);
    bool begin_landing(uint32_t node, NodeName *name, uint32_t group);
    bool has_landed(const Landing &landing, bool *has_failed);
    bool still_holds(const Landing &landing) const;
    void end_put(const Transfer &transfer, const quire_store_answer &answer);
    bool put(uint32_t node, uint32_t group, const uint8_t *const *parts);
    bool put_landing(const Landing &landing, uint32_t at);
    bool write_front();

    // write_back
    const BlockPool &last_level(uint32_t group) const;
    bool is_due(uint32_t group, uint32_t window) const;
    void sweep();
    void note_oldest(const BlockPool &pool, uint32_t group, uint32_t most);
    void note_all_cached();

    CacheBooks &books_;
    TierKeys keys_;
    StoreLink *link_ = nullptr;
    quire_cache_tier_desc desc_{};
    uint64_t form_bytes_[kMaxGroups] = {};
    uint64_t budget_ = 0;
    Array<uint32_t> counts_;  // [length + 1] blocks of a window group that the store has, summed up
    bool is_remote_ = false;  // other processes put and remove too
    bool is_detaching_ = false;
    bool is_flushing_ = false;
    bool is_flushed_ = false;
    bool is_asleep_ = false;
    bool lied_ = false;
    quire_error lie_{};
    bool cannot_copy_ = false;  // a device refused
    uint32_t landings_used_ = 0;
    Sweep sweeps_[kMaxGroups] = {};
    std::unique_ptr<Shores> shores_;
};

}  // namespace quire
