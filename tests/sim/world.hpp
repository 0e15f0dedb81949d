// SPDX-License-Identifier: Apache-2.0
//
// world: one cache of the library beside the simulator's own account of it. The design page.
//
// Each operation calls the library, decides from the model what the headers allow as its answer,
// and brings the model up to date. Where the headers leave room (what falls out of a window, how
// much waits) the model takes the library's answer and checks only its bounds: "adopt".
//
// A step: begin and add change sequences and keep their old selves in Step::undo; drop and abort
// put them back. commit reads copies and tables, executes them in Memory and checks each row.
// finish settles or poisons what the step wrote.
//
// Threads: none; each thread has worlds of its own.
#pragma once
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config.hpp"
#include "lease.hpp"
#include "memory.hpp"
#include "node.hpp"
#include "op.hpp"
#include "quire/quire.h"
#include "rng.hpp"
#include "sequence.hpp"
#include "shard.hpp"
#include "step.hpp"
#include "tally.hpp"
#include "tier_name.hpp"

namespace sim {

class Device;
class Follower;
class LeasesOnly;
struct CacheTier;
struct Fault;
struct PlannedItem;
struct ViewCursor;

struct Namespace {
    uint32_t id = 0;  // in the script; 0 is the default one
    quire_namespace handle = 0;
    uint32_t tenant = 1;
    uint32_t quota = 0;
    uint32_t key = 0;   // with the feature cache_tier; 0: none
    uint64_t hits = 0;  // tokens found by its rows that were committed
};

constexpr size_t kNoKernel = ~size_t{0};
constexpr int64_t kHostBit = 1ll << 31;  // of a node's block that lies in the host tier
constexpr uint64_t kFullBlock = 0xF011;  // where the hash of a block's contents begins

struct Batch {
    quire_batch *batch = nullptr;
    quire_batch_desc desc{};
    uint64_t last_number = 0;  // of the step that was committed into it last
};

// One observed number, with what it is about.
struct Word {
    const char *what;
    uint32_t who;
    uint64_t value;
};
using Snapshot = std::vector<Word>;

class World {
 public:
    // known_list: see `known`.
    World(const quire_api *api, quire_instance *instance, const Config &config, Tally *tally,
          const std::string &known_list);
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    // Executes one operation; false when its objects do not exist. Throws Finding.
    bool execute(const Op &op);
    // Ends everything in order and destroys the cache. Throws Finding.
    void close();

    // Its cache was abandoned: no operation can follow.
    bool is_abandoned() const { return abandoned_; }

    bool tier_attached() const { return has_tier(); }
    bool tier_is_dead() const;

    // What the chooser looks at.
    const Config config;
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<Namespace> namespaces;
    std::vector<std::unique_ptr<Lease>> leases;
    std::vector<Step> committed;  // and not finished, in the order of their commits
    std::unique_ptr<Step> open;
    std::vector<Op> pending;  // items for the next begin or add
    std::vector<Batch> batches;
    Sequence *find(uint32_t id);
    Namespace *find_namespace(uint32_t id);
    bool strict = false;  // look at every call: for replay and shrinking
    std::string known;    // promises that are known to be broken: counted, not reported
    // Prints what lives, for a person who reads a script.
    void trace(const Op &op);
    std::vector<uint64_t> foreign{1};  // handles of another cache
    uint32_t document_token(uint32_t doc, uint32_t position) const;

 private:
    friend class Follower;
    friend class LeasesOnly;
    bool dispatch(const Op &op);
    bool dispatch_tier(const Op &op);
    static bool may_forget(const Op &op);
    void check_refusals(const quire_cache_desc &desc);
    // sequence_ops.cpp
    bool create(const Op &op);
    bool end(const Op &op);
    bool fork(const Op &op);
    bool truncate(const Op &op);
    bool accept(const Op &op);
    void note_tokens(const Sequence &seq, uint32_t first);
    bool accept_path(const Op &op);
    bool set_tokens(const Op &op);
    bool probe(const Op &op);
    void probe_again(const Op &op, const Sequence &seq, uint32_t hits);
    // forgotten.cpp
    void note_first_block(const Sequence &seq, uint32_t owner);
    uint32_t kept_prefix(const Sequence &seq, uint32_t length) const;
    void check_forgotten(const Sequence &seq);
    bool nodes_may_be_short() const;
    void take_unpublished(const Step &step);
    // items.cpp
    struct Items;
    void build(Items &items, uint32_t queue);
    void build_item(Items &items, const Op &op);
    void spoil_item(Items &items, const Op &op, quire_step_item &item, Sequence &seq);
    void judge(Items &items, uint32_t queue);
    bool refused(const Items &items, quire_status status, const Snapshot &before);
    // results.cpp
    void take_results(Items &items, uint64_t room_before);
    void check_run(const Items &items, size_t index, const Sequence &seq, uint32_t total);
    void count_limit(const PlannedItem &plan, const Sequence &seq, uint32_t hits);
    void take_run(Items &items, size_t index);
    void take_wait(Items &items, size_t index, uint64_t room_before);
    void judge_wait(const Sequence &seq, uint32_t reason, uint32_t blocks, bool idle);
    void take_preemptions();
    void note_tables();
    void note_ran(const Sequence &seq);
    void check_quotas();
    uint32_t gave_back(const Sequence &seq);
    // step_ops.cpp
    bool begin(const Op &op);
    bool add(const Op &op);
    bool drop(const Op &op);
    bool preempt(const Op &op);
    bool abort();
    void put_back(const Sequence &before);
    void restore(const std::vector<uint32_t> &ids);
    uint64_t room();
    void probe_first(Items &items);
    // commit.cpp
    bool commit(const Op &op);
    void run_step(Step &step);
    void order(Step &step);
    void run_copies(Step &step);
    void follow_swaps(Step &step, const std::vector<quire_block_copy> &copies, uint32_t count);
    void run_row(Step &step, const Row &row);
    void note_hits(const Step &step, Sequence &seq, const Row &row);
    void read_row(Step &step, const Row &row);
    void write_state(const Step &step, const Row &row, uint32_t group);
    void write_place(const Step &step, const Sequence &seq, uint32_t group, uint32_t place);
    void check_zeroed(const Step &step);
    uint64_t cached_blocks();
    void check_tenants(const Step &step, const Sequence &seq);
    // sharing.cpp
    bool came_back(const Step &step, uint32_t id) const;
    uint32_t reads_to(const Step &step, const Sequence &other) const;
    void check_shared(const Step &step, const Row &row, uint32_t group, uint32_t last);
    void check_copied(const Step &step, const quire_block_copy &copy);
    // depends.cpp
    void inherit(const Step &step, Sequence &seq);
    void follow_blocks(Sequence &seq);
    uint8_t block_depends(Tier tier, uint32_t group, int32_t block);
    void note_found(Sequence &seq, const Row &row, bool was_swapped);
    uint32_t whole_blocks(uint32_t end) const;
    void note_beside(Sequence &seq, const Row &row);
    // partial.cpp
    bool partial() const { return (config.flags & QUIRE_CACHE_PARTIAL_HITS) != 0; }
    uint32_t whole_hit(uint32_t hits) const { return hits - hits % config.span(); }
    bool may_hit(uint32_t hits) const;
    bool under_span(const Sequence &seq, uint32_t begin) const;
    bool room_for(const Sequence &seq, uint32_t tokens);
    void look_at_tree(Items &items);
    void judge_partial(const Items &items, size_t first_row);
    void check_source(const Items &items, const Row &row,
                      const std::vector<quire_block_copy> &copies);
    void judge_part(const Items &items);
    uint32_t agreeing(const Sequence &seq, uint32_t begin, const Node &node);
    uint32_t due_part(const std::vector<Node> &nodes, const Sequence &seq, uint32_t begin,
                      uint32_t most);
    bool holds_place(const Node &node, const Sequence &seq, uint32_t from) const;
    const Node *node_before(const std::vector<Node> &nodes, const Sequence &seq, uint32_t begin);
    void check_part(const Row &row);
    void check_partial_refusals(const quire_cache_desc &good);
    int32_t source_of(const quire_block_copy &copy);
    void read_longer(std::vector<quire_step_result> &results);
    // finish.cpp
    bool finish(const Op &op);
    // What a sequence keeps of its tokens and lookahead when a step fails, at most and at least.
    struct Loss {
        uint32_t computed = 0;
        uint32_t least = 0;
        uint32_t ahead = 0;
        uint32_t least_ahead = 0;
    };
    void hold_tokens();
    struct Owed {
        uint32_t group = 0;
        int32_t id = 0;
    };
    struct Failure {
        std::vector<Loss> losses;  // of each sequence
        std::vector<Owed> owed;
        std::map<GroupBlock, Zeros> leaving;  // their leases
    };
    Failure foresee(uint8_t bit, bool may_ask);
    void settle(uint8_t bit, bool failed);
    void take_failure(const Failure &failure);
    void make_stale(quire_step handle);
    std::vector<Owed> owed_blocks(uint8_t bit);
    void mark_owed(const std::vector<Owed> &owed);
    void check_owed(const Step &step);
    Loss loss(Sequence &seq, uint8_t bit);
    Zeros zeros_cost() const;
    void take_loss(Sequence &seq, const Loss &loss);
    void take_lost_lookahead(Sequence &seq, const Loss &loss, const quire_seq_info &got);
    // host_prefixes.cpp
    bool shares_host() const;
    uint32_t host_usable(uint32_t group) const;
    std::vector<Node> linked_nodes();
    uint64_t findable();
    std::vector<Node> reachable(const std::vector<Node> &nodes);
    uint64_t block_hash(Tier tier, uint32_t group, int32_t block) const;
    uint64_t check_node(const Node &node);
    void count_published(const std::vector<Node> &nodes, const quire_cache_stats &s);
    void check_levels();
    void probe_all(Snapshot &words);
    void count_levels();
    void note_host_tables();
    // By group and id, the handle of the sequence that has the block.
    using HostTables = std::map<std::pair<uint32_t, int32_t>, uint64_t>;
    HostTables swapped_tables();
    void count_moves(const Step &step, const std::vector<quire_block_copy> &copies);
    bool swap_must_fit(const std::vector<std::vector<int32_t>> &tables);
    void check_host_refusals(const quire_cache_desc &good);
    // events.cpp
    bool has_events() const;
    void take_stored(const quire_cache_event &event);
    void take_removed(const quire_cache_event &event);
    void check_events(const std::vector<Node> &nodes);
    void check_told_store(const std::map<std::pair<uint32_t, uint32_t>, int64_t> &counts);
    // published.cpp
    void note_full_blocks(const Sequence &seq);
    bool may_be_published(uint32_t group, int32_t block) const;
    std::vector<std::vector<Held>> published_blocks();
    void hold_published(uint8_t bit);
    std::string_view dump();
    uint64_t unfinished_steps();
    // namespace_ops.cpp
    bool create_namespace(const Op &op);
    bool destroy_namespace(const Op &op);
    bool reset();
    bool migrate(const Op &op);
    // What was asked of a migration, and answered.
    struct Migration {
        std::vector<uint32_t> device;  // blocks of each group
        uint32_t host = 0;             // blocks of each group
        std::vector<quire_block_move> moves;
        quire_migrate_info got{};
        quire_status status = QUIRE_OK;
        uint64_t struck = 0;  // calls that devices refused
        bool waits = false;   // quire_cache_migrate_wait
    };
    bool judge_migration(const Migration &m);
    void leave(const std::vector<Shard> &shards);
    std::vector<Shard> target(const Op &op, std::vector<quire_shard_desc> &descs);
    quire_status call_migrate(const Op &op, const quire_migrate_desc &desc,
                              quire_migrate_info &got);
    void adopt_migration(Migration &m);
    void move_memory(const std::vector<quire_block_move> &moves,
                     const std::vector<uint32_t> &device, const std::vector<uint32_t> &host);
    // engine.cpp
    bool on_device() const { return !shards_.empty(); }
    void open_devices();
    std::vector<Shard> open_shards(uint32_t count);
    void close_shards(const std::vector<Shard> &shards);
    std::vector<quire_shard_desc> shard_descs() const;
    std::vector<quire_queue *> step_queues(uint32_t queue) const;
    uint32_t shard_queue(uint32_t shard, uint32_t queue) const;
    void settle_devices();
    void begin_kernels(Step &step);
    void enqueue_kernels(Step &step);
    void write_now(const std::vector<Content> &contents, int32_t block);
    void wait_for_devices();
    void set_depends(uint8_t depends);
    void note_slot(const Sequence &seq, uint32_t group, int32_t block, uint32_t place,
                   uint32_t token, Content content, bool is_write);
    void fail_kernels(uint8_t bit);
    void settle_kernels(uint8_t bit);
    void check_devices();
    void check_findings(const std::vector<Shard> &shards);
    bool advance(const Op &op);
    // faults.cpp
    bool plant_fault(const Op &op);
    static Fault make_fault(uint32_t kind, uint32_t after, uint32_t count, uint32_t every,
                            uint32_t status);
    bool makes(uint32_t kind);
    bool fault_armed() const;
    uint64_t strikes() const;
    void end_faults();
    bool passed_on(quire_status status, uint64_t struck);
    bool may_lack_fence() const;
    // The tables and copies of an open step, which no one can ask for once its commit has failed.
    struct Plan {
        std::map<uint32_t, std::vector<std::vector<int32_t>>> tables;  // of each sequence and group
        std::vector<quire_block_copy> copies;
    };
    std::unique_ptr<Plan> plan();
    std::vector<quire_block_copy> copies_of(const Step &step);
    bool commit_refused(quire_status status, uint64_t struck, std::unique_ptr<Plan> &plan,
                        Batch *batch, const Snapshot &before);
    void undo_step(std::unique_ptr<Plan> plan, Batch *batch);
    void adopt_undone(const Sums &before, const std::vector<Namespace> &spaces);
    bool device_idle() const;
    // cache_tier.cpp
    bool has_tier() const;
    uint64_t now_ns() const;
    Digest tier_print(uint32_t epoch, uint32_t number) const;
    bool tenant_digest(const Sequence &seq, Digest &digest);
    Digest first_name(const Sequence &seq, const Digest &print, const Digest &tenant) const;
    Digest next_name(const Sequence &seq, const Digest &before, uint32_t begin,
                     const uint32_t *tokens) const;
    quire_store_label value_label(const Digest &name, uint32_t g, const Digest &print,
                                  const Digest &tenant) const;
    void name_blocks(const Sequence &seq, uint32_t end);
    uint32_t store_run(const Sequence &seq, const PlannedItem &plan, uint32_t have, bool named,
                       bool any);
    void check_value(const quire_store_label &label, const std::vector<uint8_t> &bytes);
    void tier_finding(const char *promise, const char *text);
    void look_at_tier();
    uint64_t loads_begun();
    void forget_loads();
    // tier_ops.cpp
    bool open_store();
    bool attach(const Op &op);
    bool detach(const Op &op);
    void count_tier();
    bool poll_tier(const Op &op);
    bool cancel_load(const Op &op);
    bool store(const Op &op);
    bool elapse(const Op &op);
    bool run_copies_of_tier(const Op &op);
    bool restart(const Op &op);
    void end_tier();
    void trace_tier();
    void wait_passes();
    // loads.cpp
    void note_runs(Items &items, bool again);
    static bool is_again(const Sequence &seq, const PlannedItem &plan);
    void take_loading(Items &items, size_t index);
    void judge_no_load(const Items &items, size_t index, const Sequence &seq);
    uint32_t loaded_most(const PlannedItem &plan, const Sequence &seq) const;
    void adopt_loaded(const Step &step, const std::vector<quire_block_copy> &copies,
                      uint32_t index);
    void conclude_loads();
    void check_brought(uint32_t id, uint32_t hit, uint32_t most);
    // liveness.cpp
    bool calm();
    bool conclude(const Op &op);
    void finish_all();
    bool must_fit(const Sequence &seq, uint32_t length) const;
    bool must_progress(const Sequence &seq, uint32_t length) const;
    void serve(uint32_t id);
    bool serve_once(uint32_t id, uint32_t tokens, uint32_t max);
    void check_all_free(const char *when);
    void fill();
    void leak();
    // abandon.cpp
    bool abandon(const Op &op);
    void abandon_queue(uint32_t queue, uint32_t shard_index);
    void stale(quire_status status, const char *what);
    void abandon_cache();
    void check_stale_cache();
    void abandon_devices();
    // refuse.cpp
    bool refuse(const Op &op);
    uint64_t wrong_handle(uint32_t kind, uint32_t pick) const;
    quire_status call_with(uint64_t handle, uint32_t function, const char *&what);
    // lease_ops.cpp
    bool dispatch_lease(const Op &op);
    Lease *find_lease(uint32_t id);
    Sequence run_of(const Lease &lease, uint32_t doc, uint32_t tokens) const;
    std::vector<Content> block_of(const Sequence &run, uint32_t place) const;
    std::vector<quire_lease_block> blocks_of(const Lease &lease, uint32_t group);
    bool make_lease(const Op &op);
    bool end_lease(const Op &op);
    bool lease_is_busy(quire_status status, const Snapshot &before);
    void judge_shortage(const Lease &lease, const quire_lease_result &result,
                        const Snapshot &before);
    void hold(Lease &lease, GroupBlock block);
    std::vector<int32_t> take_blocks(Lease &lease, uint32_t group, uint32_t count);
    std::vector<int32_t> some_held(const Lease &lease, uint32_t group, uint32_t pick) const;
    void add_published(const Lease &lease, uint32_t pick, std::vector<int32_t> &ids) const;
    uint64_t new_to(const Lease &lease, const std::vector<int32_t> &ids) const;
    bool is_published_now(GroupBlock block) const;
    void give_blocks(Lease &lease, uint32_t group, const std::vector<int32_t> &ids);
    bool take(const Op &op);
    bool give(const Op &op);
    bool pin(const Op &op);
    bool forget_blocks(const Op &op);
    bool evict(const Op &op);
    void judge_evicted(uint32_t group, int32_t id);
    // lease_runs.cpp
    std::vector<Content> block_at(const Sequence &run, size_t entry) const;
    void check_found(const Lease &lease, GroupBlock block, const std::vector<Content> &wanted);
    bool match(const Op &op);
    bool publish(const Op &op);
    bool take_places(Lease &lease, uint32_t places, std::vector<int32_t> &ids);
    bool judge_publish(uint32_t bad, quire_status status, const Snapshot &before);
    void note_named(Lease &lease, const Sequence &run, const std::vector<int32_t> &ids,
                    const std::vector<int32_t> &named, uint32_t blocks);
    void judge_together(uint32_t group, const std::vector<Node> &nodes,
                        const std::set<int32_t> &cached, const std::set<int32_t> &evicted);
    // lease_at_once.cpp
    struct Inserted {
        std::vector<int64_t> tokens;
        std::vector<int64_t> slots;
        uint32_t count = 0;
    };
    uint32_t places_cached(const Sequence &run, uint32_t places);
    std::set<int32_t> cached_in(uint32_t group);
    bool find_blocks(const Op &op);
    void pin_found(Lease &lease, const Sequence &run, const std::vector<int32_t> &ids,
                   uint32_t places);
    bool pin_now(Lease &lease, uint32_t group, const std::vector<int32_t> &ids, bool bad);
    bool give_now(Lease &lease, uint32_t group, const std::vector<int32_t> &ids, bool bad);
    std::vector<int32_t> own_blocks(const Lease &lease);
    void fill_block(const Sequence &run, uint32_t place, int32_t block);
    bool spoil_insert(const Lease &lease, uint32_t bad, uint32_t lacking, Inserted &call);
    bool insert(const Op &op);
    void take_inserted(Lease &lease, const Sequence &run, const std::vector<int32_t> &own,
                       const std::vector<int32_t> &named, uint32_t blocks, uint32_t cached,
                       uint32_t from_tree);
    void note_released(const std::vector<int32_t> &ids, uint32_t places, bool in_order);
    bool judges_order(uint32_t group) const;
    void judge_order(uint32_t group, const std::set<int32_t> &before,
                     const std::vector<int32_t> &ids);
    // leased.cpp
    void write_leased(const Step &step);
    void read_leased(const Step &step);
    void put_leases_back(const Step &step);
    std::map<GroupBlock, Zeros> foresee_leases(uint8_t bit);
    void take_failure_of_leases(const std::map<GroupBlock, Zeros> &leaving);
    void rename_leased(const std::vector<quire_block_move> &moves);
    void name_block(std::vector<std::vector<uint8_t>> &named, uint32_t group, int32_t block);
    void audit_leases(std::vector<std::vector<uint8_t>> &named, std::vector<uint64_t> &held);
    // views.cpp
    bool make_batch(const Op &op);
    bool exceeds(const Step &step, const Batch &batch, bool most) const;
    void check_views(const Step &step, const Batch &batch);
    void check_group_views(const Step &step, const Batch &batch, uint32_t group);
    void check_row_tables(const quire_batch_views &v, const Batch &batch, uint32_t r,
                          const std::vector<int32_t> &ids, uint32_t length, uint32_t bt,
                          ViewCursor &cursor);
    void check_mask(const quire_batch_views &v, uint32_t r, uint32_t token, const Sequence &seq,
                    uint32_t place, bool masked, uint32_t length);
    void entry(const char *view, uint32_t row, uint64_t array, uint64_t index, uint32_t size,
               int64_t wanted);
    // audit.cpp
    void audit();
    void check_stats();
    void check_sums(const quire_cache_stats &s);
    void check_probe_step(const Step &step);
    Snapshot snapshot();
    // A snapshot if `wanted` and this call is one of those looked at (all of them when strict).
    Snapshot look(bool wanted);
    void unchanged(const Snapshot &before, const char *promise);
    const std::vector<int32_t> &table(const Sequence &seq, uint32_t group);
    void compare(Sequence &seq, const char *after);
    void adopt_computed(Sequence &seq, uint32_t computed, const char *after);
    quire_seq_info info(const Sequence &seq);
    // True if a finding of this promise is to be passed over.
    bool tolerate(const char *promise);
    void expect(quire_status got, std::initializer_list<quire_status> allowed, const char *what);

    void erase(uint32_t id);
    uint32_t era_after(const Sequence &seq, uint32_t place) const;
    std::vector<uint32_t> device_blocks() const;
    std::vector<uint32_t> host_blocks() const;

    const quire_api *q_;
    quire_instance *instance_;
    quire_cache *cache_ = nullptr;
    Tally *tally_;
    Memory memory_;
    quire_error error_{};
    std::vector<uint32_t> blocks_;  // of each group's pool now
    uint32_t host_blocks_ = 0;
    VectorClock host_clock_{};
    std::array<VectorClock, kMaxQueues> queue_clock_{};
    uint32_t epoch_ = 1;  // counts quire_cache_reset
    uint32_t next_tenant_ = 2;
    uint64_t admissions_ = 0;
    uint64_t commits_ = 0;
    std::set<uint64_t> tenants_ran_;                                // in a step that was committed
    std::set<uint64_t> tenants_were_run_;                           // in any step
    std::map<uint32_t, std::vector<std::vector<int32_t>>> tables_;  // before begin, add or preempt
    uint64_t forks_ = 0;
    Sums sums_;
    // Which sequence alone ever computed or found a first block of this content; 0: several.
    std::map<Content, uint32_t> first_blocks_;
    // How many blocks were published when this many were evicted and this many calls could forget.
    struct Published {
        uint64_t blocks = 0;
        uint64_t evictions = 0;
        uint64_t forgets = 0;
    };
    Published published_;
    // What a reader of events was told of a block: in which groups and levels it lies.
    struct Told {
        uint64_t parent = 0;
        uint32_t position = 0;
        std::set<std::pair<uint32_t, uint32_t>> places;
    };
    std::map<uint64_t, Told> told_;
    std::vector<std::vector<uint8_t>> named_[2];  // of each tier and group: its block is taken
    HostTables host_tables_;          // of swapped sequences before the open step's calls
    std::set<uint64_t> full_pairs_;   // of hashes of two such blocks, one after the other
    std::set<uint64_t> full_blocks_;  // hashes of what may be published since the last reset
    // When a dump first had the node of this id and generation.
    std::map<std::pair<int64_t, int64_t>, uint64_t> nodes_seen_;
    std::set<uint64_t> under_spans_;         // those of which a span of keys lies over
    std::map<uint32_t, uint32_t> mistakes_;  // planted, by kind: so many are to be made
    uint64_t changes_ = 0;                   // operations that may change something
    // What the last find or insert used, of each group, and when that was; whether the end of it is
    // evicted first.
    std::vector<std::vector<int32_t>> released_;
    uint64_t released_at_ = 0;
    bool released_in_order_ = false;
    std::vector<char> dump_;   // room for one
    uint64_t nodes_most_ = 0;  // that the prefix tree can have since the last reset
    uint64_t ops_ = 0;
    uint8_t bits_used_ = 0;
    bool changed_since_begin_ = false;  // by calls beside the open step
    Snapshot before_begin_;
    std::vector<quire_seq> stale_;
    std::vector<quire_step> stale_steps_;
    std::vector<quire_namespace> stale_spaces_;
    std::vector<int32_t> table_;
    std::vector<uint64_t> done_numbers_;
    std::unique_ptr<Follower> follower_;
    std::unique_ptr<LeasesOnly> lone_;              // of a cache without sequences
    std::vector<Shard> shards_;                     // none: bookkeeping only
    std::vector<quire_shard_desc> descs_;           // their ranges once the cache has moved
    std::vector<std::shared_ptr<Kernel>> running_;  // enqueued and perhaps not run
    size_t kernel_ = kNoKernel;                     // of the row being executed
    uint32_t view_shard_ = 0;                       // whose views are looked at
    bool without_pool_ = false;                     // it holds no layer of their group
    std::unique_ptr<Plan> planned_;                 // while a step that was undone is executed
    // What a probe found, when this many blocks were evicted and this many calls could forget.
    struct Probe {
        uint32_t hits = 0;
        uint64_t evictions = 0;
        uint64_t forgets = 0;
    };
    std::map<uint64_t, Probe> probes_;
    uint64_t forgets_ = 0, evicted_by_call_ = 0;
    bool abandoned_ = false;               // its cache and its devices
    bool queue_gone_ = false;              // abandoned: what waits for it is refused
    bool calm_ = false;                    // faults have stopped
    uint32_t leak_ = 0;                    // tokens of a sequence that is never ended
    bool leak_late_ = false;               // made when all others have ended
    uint32_t live_steps_ = 0;              // begun by conclude
    uint32_t live_served_ = 0;             // the sequence that ran last in it
    std::unique_ptr<CacheTier> tier_;      // with the feature cache_tier
    std::optional<Finding> late_finding_;  // of a callback of the store
    std::set<std::pair<uint32_t, int32_t>> unsure_loaded_;
    std::set<uint32_t> asked_;    // sequences for which the store was asked, and no load was begun
    uint32_t loads_running_ = 0;  // as of the last poll
    bool loading_now_ = false;    // an item of the last call loads
    uint32_t live_loads_ = 0;
    uint64_t stores_before_ = 0;  // that worlds with a finding left
};

}  // namespace sim
