// SPDX-License-Identifier: Apache-2.0
//
// cache: Quire's C ABI as the engine uses it: one cache and one batch over one or several devices.
//
// Why so thin: this file shows which calls an engine makes, and in which order. It decides nothing.
//
// Invariant: at most one Step exists at a time. The host may write the activations whenever no
// attend is in progress, that is, always outside of Cache::attend.
//
// Threads: one; the engine is a loop.

#pragma once

#include "activation.hpp"
#include "quire/api.h"
#include "quire/migrate.h"
#include "ranks.hpp"
#include "session.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace engine {

struct CacheOptions {
    std::string backend;  // "cpu"
    uint32_t device_index = 0;
    uint32_t layer_count = 0;
    uint32_t q_heads = 0;
    uint32_t kv_heads = 0;
    uint32_t head_dim = 0;         // of the model
    uint32_t padded_head_dim = 0;  // in the cache, zeros after the model's elements; 0: head_dim
    uint32_t pool_blocks = 0;      // including the null block
    uint32_t block_tokens = 0;
    uint32_t max_rows = 0;
    uint32_t max_query_tokens = 0;
    uint32_t max_sequences = 0;
    uint32_t max_sequence_tokens = 0;
    uint64_t host_bytes = 0;                // of all shards
    std::string kv_dtype = "f32";           // one of kv_dtype_names()
    std::string q_dtype = "f32";            // of queries and results; one of q_dtype_names()
    std::string kv_scale = "token";         // for codes: "tensor", "head" or "token"
    std::vector<uint8_t> calibration = {};  // for "tensor" and "head"
    std::vector<HeadRange> shards;          // of this process, each with its own device object
    uint32_t flags = 0;                     // QUIRE_CACHE_*
    uint32_t device_flags = 0;              // QUIRE_DEVICE_*
    uint32_t max_mask_words = 0;            // for trees of drafts in a step; 0: no trees
};

// Where to move a cache.
struct CacheTarget {
    std::string backend;
    uint32_t device_index = 0;
    uint32_t pool_blocks = 0;  // including the null block; 0: as many as now
    std::vector<HeadRange> shards;
};

// The result of a move, and how long it took Quire.
struct Moved {
    quire_migrate_info info{};
    double seconds = 0.0;
};

// The types of K and V in a pool: "f32", "f16", "bf16", "fp8", "fp8-e5m2", "int8", "int4".
std::vector<std::string> kv_dtype_names();
// True if K and V are stored as codes, which need scales.
bool holds_codes(const std::string &kv_dtype);

// One device's part: activations of one layer for the tokens of a step, in the order of its rows:
// q and attended [max_query_tokens][q_count][head_dim], k and v [..][kv_count][head_dim].
struct Shard {
    HeadRange heads;
    Owned<quire_device> device;
    Owned<quire_queue> queue;
    Activation q, k, v, attended;
};

class Cache {
 public:
    // Errors   throws Failure with Quire's own message.
    Cache(const quire_api &api, const CacheOptions &options);
    ~Cache();
    Cache(const Cache &) = delete;
    Cache &operator=(const Cache &) = delete;

    quire_seq create_sequence();
    void end_sequence(quire_seq seq);
    quire_seq fork_sequence(quire_seq seq, size_t token_count);
    // Shortens the sequence to its first `token_count` tokens.
    void truncate_sequence(quire_seq seq, size_t token_count);
    // Keeps the drafts of the last item that `path` names, each a child of the one before it.
    void accept_path(quire_seq seq, std::span<const uint32_t> path);
    quire_seq_info sequence_info(quire_seq seq) const;
    // The sequence's blocks, in order.
    std::vector<int32_t> blocks(quire_seq seq) const;
    quire_cache_stats stats() const;
    // Lets Quire verify its invariants. Errors   throws Failure naming the broken one.
    void check() const;

    // The magnitudes that a cache with QUIRE_CACHE_CALIBRATE has measured. Waits for its steps.
    std::vector<uint8_t> calibration() const;

    // Keeps the sequence in a file: its tokens, K and V.
    quire_session_info save_sequence(quire_seq seq, const std::string &path,
                                     const Fingerprint &fingerprint);
    // The sequence in a file. Its blocks are in the host tier until a step runs it.
    quire_seq restore_sequence(const std::string &path, const Fingerprint &fingerprint);

    // Puts a store below the cache; settings are NAME=VALUE, write is QUIRE_TIER_WRITE_*. Items may
    // load from it then. followers: of a leader.
    void attach_tier(const std::string &store, std::span<const std::string> settings,
                     uint32_t write, const Fingerprint &fingerprint, uint32_t followers);
    // Brings what waits to the store, and takes it away. Returns what it did; nothing without one.
    std::optional<quire_cache_tier_stats> detach_tier();
    // A follower's next report of loads, once they have ended if it `waits`.
    std::vector<uint8_t> report_loads(bool waits);
    void take_report(std::span<const uint8_t> report);
    bool has_tier() const { return is_attached_; }
    // Waits until a load ends.
    void wait_for_load();

    // Moves everything to devices that it opens, between two steps; shards() and the batch are then
    // new. Returns nothing if the target's pool has no room for the live blocks: nothing changed.
    std::optional<Moved> migrate(const CacheTarget &target);
    // Errors   throws Failure if there is no such device. The device is not opened.
    void expect_device(const std::string &backend, uint32_t device_index) const;

    std::span<const Shard> shards() const { return shards_; }

    // For the committed step of so many tokens: on every shard, k and v are written into the
    // blocks, then q attends over its sequences. Waits until `attended` is written.
    void attend(uint32_t layer, size_t token_count);

    // Called when a layer's work is enqueued, before anything waits for it.
    std::function<void(uint32_t layer)> after_layer;

    const quire_api &api() const { return api_; }
    quire_cache *get() const { return cache_.get(); }

    // Test aid: makes the first row's first entry name another block, without Quire's knowledge.
    void plant_wrong_block();

 private:
    friend class Step;

    std::vector<Shard> open_devices(const std::string &backend, uint32_t device_index,
                                    std::span<const HeadRange> ranges) const;
    void create_cache();
    void create_batch();
    void leave(std::vector<Shard> shards);
    Activation create_activation(quire_device *device, uint32_t dtype, uint32_t heads) const;
    uint32_t stored_head_dim() const;
    std::vector<quire_queue *> queues() const;

    const quire_api &api_;
    const CacheOptions options_;
    // Children after their parents, because members are destroyed in the opposite order.
    Owned<quire_instance> instance_;
    Owned<quire_tier> tier_;
    std::vector<Owned<quire_device>> left_;  // devices that the host tier still needs
    std::vector<Shard> shards_;
    Owned<quire_cache> cache_;
    Owned<quire_batch> batch_;
    uint32_t pool_blocks_;
    bool is_attached_ = false;
};

// One iteration: the constructor begins it; then add, commit, finish. A Step that is destroyed
// earlier undoes itself.
class Step {
 public:
    using Items = std::span<const quire_step_item>;
    using Tokens = std::span<const quire_token>;

    // Begins with `items`, whose results are in results(); their ranges point into `tokens`.
    //
    // preempt  QUIRE_PREEMPT_*: how Quire may make room.
    Step(Cache &cache, uint32_t preempt, Items items, Tokens tokens);
    // The step in a leader's log, already committed.
    Step(Cache &cache, std::span<const uint8_t> log);
    ~Step();
    Step(const Step &) = delete;
    Step &operator=(const Step &) = delete;

    std::span<const quire_step_result> results() const { return results_; }

    // Adds one item, to admit requests one by one.
    quire_step_result add(const quire_step_item &item, Tokens tokens);

    quire_step handle() const { return step_; }
    std::vector<quire_preemption> preempted() const;
    void commit();
    // The record of the committed step that followers need, if the cache leads.
    std::vector<uint8_t> log() const;
    void finish();

 private:
    enum class Phase { open, committed, over };

    Cache &cache_;
    quire_step step_ = 0;
    std::vector<quire_step_result> results_;
    Phase phase_ = Phase::open;
};

}  // namespace engine
