// SPDX-License-Identifier: Apache-2.0
//
// stage: the engine's half of a run: devices, queues, memory, batches and the cache, and the
// kernels of a step.
//
// A Slot is host memory of one step: the K and V that its kernels read, and the blocks that they
// saw, which are copied there on the step's own queues. It may be used again once these have run.
//
// Threads: none.
#pragma once

#include <quire/api.h>

#include <vector>

#include "backends.hpp"
#include "shape.hpp"

namespace gpupaths {

struct Memory {
    quire_memory *memory = nullptr;
    uint64_t address = 0;
    unsigned char *host = nullptr;
};

// A captured step of one queue, and the memory that it reads.
struct Graph {
    void *launchable = nullptr;
    uint32_t rows = 0, tokens = 0;
    Memory input;
};

// One queue of one shard.
struct Lane {
    quire_queue *queue = nullptr;
    quire_be_queue *inner = nullptr;
    void *stream = nullptr;  // the engine's own, to which the queue is bound
    quire_fence *gate = nullptr;
    uint64_t shut = 0,
             opened = 0;  // values of the gate: the queue waits for one, the other was set
    Graph graph;
    std::vector<void *> old_graphs;  // may still run
};

constexpr uint32_t kSlots = 6;

struct Shard {
    ShardShape shape;
    Backend *backend = nullptr;
    quire_device *device = nullptr;
    quire_be_device *inner = nullptr;
    std::vector<Lane> lanes;
    std::vector<quire_pool_info> pools;  // of each group
    std::vector<Memory> slots;
    Memory scratch, audit;
    uint64_t input_bytes = 0, seen_bytes = 0;  // of a slot
};

// The tokens of one row that a step computes.
struct Row {
    uint32_t text = 0;        // its id
    uint32_t first = 0;       // place of the first one
    std::vector<Cell> cells;  // of all of the sequence's places, the computed ones last
    uint32_t first_seen_of(const GroupShape &group) const { return group.first_seen(first); }
};

class Stage {
 public:
    // Ends in a Finding if a device, a queue, memory or the cache cannot be created.
    Stage(Library &library, const Shape &shape);
    // REQUIRES, for what it created to be freed: close() or give_up() came before.
    ~Stage() = default;
    Stage(const Stage &) = delete;
    Stage &operator=(const Stage &) = delete;

    // Enqueues the kernels of a committed step, and copies of all blocks that its rows see, which
    // `tables` lists for each row and group. Spoilt rows get wrong content. False if any call was
    // refused.
    bool enqueue(uint32_t queue, uint32_t slot, const std::vector<Row> &rows,
                 const std::vector<std::vector<std::vector<int32_t>>> &tables, bool is_spoilt);
    // Compares what the rows saw with what a dense run holds. Throws Finding.
    void compare_seen(uint32_t slot, const std::vector<Row> &rows,
                      const std::vector<std::vector<std::vector<int32_t>>> &tables) const;
    // Copies a shard's pool of this group to the host and returns it; null if that was refused.
    const unsigned char *read_pool(uint32_t shard, uint32_t group);

    // Lets a queue wait until open_gates(); false if it cannot, or was refused.
    bool shut_gate(uint32_t queue);
    void open_gates();
    bool has_shut_gate() const;
    // Waits for a queue; the first failure of its shards.
    quire_status sync(uint32_t queue);
    // Waits until nothing runs, also on queues that stopped, whose sync does not wait.
    void quiesce();
    // Exchanges a queue that stopped for a new one; false if a device gives none any more.
    bool replace(uint32_t queue);
    // Destroys queues that were replaced and devices that were left, as far as they are free.
    void sweep();

    // Moves the cache. On success everything belongs to the new shards.
    quire_status migrate(const std::vector<ShardShape> &shapes, uint32_t blocks, uint32_t flags,
                         quire_migrate_info *info);
    // Gives up a cache whose device is lost, by destroying or, if that fails, abandoning it.
    void give_up(bool destroys_first);
    // Destroys everything; false if something could not be destroyed.
    bool close();

    std::vector<quire_queue *> queues_of(uint32_t queue) const;

    Library &library;
    const quire_api &q;
    Shape shape;
    quire_cache *cache = nullptr;
    std::vector<quire_batch *> batches;  // of each queue
    std::vector<Shard> shards;
    quire_error error{};
    uint64_t graph_launches = 0, captures = 0;

 private:
    std::vector<Shard> open(const std::vector<ShardShape> &shapes);
    static std::vector<quire_shard_desc> descs_of(const std::vector<Shard> &shards);
    void create_cache();
    // Queues, batches and memory for the cache where it is now.
    void furnish();
    void make_batches();
    void make_lane(Shard *shard, Lane *lane);
    quire_status try_lane(Shard *shard, Lane *lane);
    void close_lane(Shard *shard, Lane *lane);
    void clear(Shard *shard);
    void must(quire_status status, const char *what);
    Memory make_memory(quire_device *device, uint64_t size_bytes);
    uint64_t block_bytes() const;
    void fill_input(const Shard &shard, unsigned char *to, const std::vector<Row> &rows,
                    bool is_spoilt) const;
    bool call_kernels(Shard *shard, uint32_t queue, uint64_t input);
    bool run_graph(Shard *shard, uint32_t queue, const Memory &slot, uint32_t rows,
                   uint32_t tokens);
    bool capture(Shard *shard, uint32_t queue, uint32_t rows, uint32_t tokens);
    // Forgets a graph, which may still run; drop_graphs() destroys those.
    static void retire_graph(Lane *lane);
    static void drop_graphs(const Backend &backend, Lane *lane);
    bool copy_seen(Shard *shard, uint32_t queue, const Memory &slot,
                   const std::vector<std::vector<std::vector<int32_t>>> &tables);

    bool was_abandoned_ = false;
    std::vector<Shard> left_;  // closed once nothing is in use
    std::vector<std::pair<Backend *, Lane>> old_lanes_;
};

// Compares what one block holds at one place with what belongs there. Throws Finding.
void compare_place(const Shape &shape, uint32_t group, const quire_pool_info &pool,
                   const unsigned char *block, uint32_t place_in_block, const Cell &cell,
                   const char *where);
// A place where nothing is promised holds zeros or the same tenant's content. Throws Finding.
void compare_tenant(const Shape &shape, uint32_t group, const quire_pool_info &pool,
                    const unsigned char *block, uint32_t place_in_block, uint32_t tenant,
                    const char *where);

}  // namespace gpupaths
