// SPDX-License-Identifier: Apache-2.0
//
// rank: one of several processes that keep one cache (log.h): its simulated devices, its cache, the
// store below that, and what the model says that each slot and each value must hold.
//
// Each rank holds some layers and KV heads. A token's K and V differ by group, layer and head, so
// what reaches a wrong rank, layer or head shows. A kernel of the engine writes a row's tokens and
// then compares all that the row sees (device.hpp); a value is compared when it is put.
//
// Threads: none.  Units: positions are tokens.
#pragma once
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "content.hpp"
#include "device.hpp"
#include "finding.hpp"
#include "quire/quire.h"
#include "store.hpp"
#include "tier_name.hpp"

namespace sim {

struct RankGroup {
    uint32_t layers = 1;
    uint32_t window = 0;  // 0: full attention
};

// What a shard holds, as in quire_shard_desc, of all layers and heads.
struct RankCut {
    uint32_t layer_begin = 0;
    uint32_t layer_end = 0;
    uint32_t head_begin = 0;
    uint32_t head_end = 0;
};

struct RanksShape {
    uint32_t block_tokens = 4;
    uint32_t blocks = 16;  // the null block included
    uint32_t host_blocks = 16;
    uint32_t heads = 1;
    bool host_prefixes = false;  // QUIRE_CACHE_HOST_PREFIXES
    bool partial = false;        // QUIRE_CACHE_PARTIAL_HITS
    std::vector<RankGroup> groups;
    std::vector<std::vector<RankCut>> ranks;  // by shard; the first leads
    // Tokens of a block that a hit must have to end within it.
    uint32_t least_part() const { return block_tokens < 8 ? 1 : 4; }
    uint32_t layers() const {
        uint32_t sum = 0;
        for (const RankGroup &group : groups) sum += group.layers;
        return sum;
    }
};

// The part of a group that a rank holds: layers of the group, and heads.
struct RankPart {
    uint32_t layer_begin = 0;
    uint32_t layer_end = 0;  // = layer_begin: nothing
    uint32_t head_begin = 0;
    uint32_t head_end = 0;
};

// A full block that the model knows, of all layers and heads.
struct RankBlock {
    Digest name{};
    Digest tenant{};
    uint32_t group = 0;
    uint32_t position = 0;
    uint32_t tenant_number = 0;
    std::vector<uint32_t> tokens;
    std::vector<uint64_t> chain;  // of each token, a hash of all that decides its K and V
};

// A row of a step, as the engine sends it beside the log.
struct RankRow {
    quire_seq seq = 0;
    uint32_t first = 0;
    uint32_t tenant = 0;
    std::vector<uint64_t> chain;  // of all tokens up to the row's end
};

// What a sequence has on a rank when a log has been applied.
struct RankState {
    quire_seq seq = 0;
    std::vector<uint64_t> words;
};

struct RankLog {
    uint32_t step = 0;
    std::vector<uint8_t> bytes;
    std::vector<RankRow> rows;
    std::vector<RankState> states;
    uint32_t partial_hits = 0;  // rows that found a part of a block, which the step copies
};

inline Content rank_content(uint32_t tenant, uint64_t chain, uint32_t group, uint32_t layer,
                            uint32_t head) {
    return make_content(tenant, mix(chain, (group * 64ull + layer) * 64 + head));
}

class Rank {
 public:
    Rank(const quire_api *api, quire_instance *instance, const RanksShape &shape, uint32_t number);
    ~Rank();
    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;

    void open_store();
    void attach(const quire_cache_tier_desc &desc);
    // False: it timed out, and the tier is still attached.
    bool detach(uint64_t timeout_ns);
    // Enqueues what the engine computes of a committed step.
    void compute(uint32_t id, const std::vector<RankRow> &rows);
    quire_status apply(const RankLog &log, quire_step *step);
    // Moves to fresh devices. REQUIRES: no step is unfinished.
    void migrate(bool copies_host);
    RankState look(quire_seq seq);
    // Copies on write of a step.
    uint32_t copies_on_write(quire_step step);
    // Runs some of what lies in the queues; 0: all.
    void work(uint32_t count, uint32_t pick);
    void check();
    // Throws what a callback has found.
    void rethrow();
    std::vector<quire_queue *> queues() const;
    void need(quire_status status, const char *call, quire_status also = QUIRE_OK) const;
    void close();

    // The model learns a block that may be stored.
    void learn(const RankBlock &block);
    bool has(uint32_t group) const { return part(group).layer_begin != part(group).layer_end; }
    bool is_stored(uint32_t group, const Digest &name, const Digest &tenant) const;

    quire_cache_tier_progress poll();
    quire_cache_tier_stats stats();

    uint32_t number;
    quire_cache *cache = nullptr;
    quire_tier *tier = nullptr;
    Store *store = nullptr;
    bool attached = false;
    bool leaving = false;                       // a detach timed out
    std::deque<std::shared_ptr<RankLog>> logs;  // that have arrived
    std::vector<quire_step> unfinished;
    std::deque<std::vector<uint8_t>> reports;  // on their way to the leader
    std::vector<uint8_t> last_report;
    uint64_t values = 0;  // that were put, and right
    uint64_t slots_compared = 0;
    mutable quire_error error{};

 private:
    struct Shard {
        quire_device *device = nullptr;
        quire_queue *queue = nullptr;
        Device *fake = nullptr;
        uint32_t queue_index = 0;
        std::vector<quire_pool_info> pools;  // by group
    };
    RankPart part(uint32_t group) const;
    std::vector<Shard> open_shards();
    std::vector<quire_shard_desc> shard_descs(const std::vector<Shard> &shards) const;
    void close_shards(const std::vector<Shard> &shards);
    void find_pools();
    quire_store_label label(uint32_t group, const Digest &name, const Digest &tenant) const;
    void check_value(const quire_store_label &label, const std::vector<uint8_t> &bytes);
    const char *fault_of(const RankBlock &block, const std::vector<uint8_t> &bytes) const;
    void add_slots(Kernel *kernel, const Shard &shard, const RankRow &row, uint32_t group,
                   const std::vector<int32_t> &ids, bool is_write);
    std::vector<int32_t> table(quire_seq seq, uint32_t group);

    const quire_api *q_;
    quire_instance *instance_;
    const RanksShape &shape_;
    std::vector<Shard> shards_;
    std::map<Store::Key, RankBlock> known_;
    std::optional<Finding> late_;
};

// The tier's fingerprint, the same on all ranks.
Digest rank_fingerprint();

}  // namespace sim
