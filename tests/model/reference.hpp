// SPDX-License-Identifier: Apache-2.0
//
// reference: the whole manager again, in the simplest form: vectors, linear searches, full copies
// for undoing. It shares no code with the library and defines results, not speed.
//
// It does not define which free block is handed out: blocks are compared up to renaming. So it has
// no QUIRE_CACHE_ZERO_ON_FREE: which blocks a step zeroes depends on which were handed out
// (tests/unit/zeroing_test.cpp runs random operations with it, and a model of contents).
//
// Units: positions and lengths are tokens; -1 means none.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace quire::model {

enum class Kind { full, window, chunked, latent, cross };

struct GroupShape {
    Kind kind = Kind::full;
    int window = 0;
    int sinks = 0;
    int blocks = 0;  // usable ones

    // True if the block of every token stays.
    bool keeps_all() const { return kind == Kind::full || kind == Kind::latent; }
};

struct Config {
    int block_tokens = 4;
    std::vector<GroupShape> groups;
    int host_blocks = 0;
    int watermark = 0;
    int max_sequences = 0;
    bool by_priority = false;
    bool prefix_off = false;
};

constexpr uint32_t kUnknown = 0xFFFFFFFF;

enum class Outcome { wait, run, error };

struct AddResult {
    Outcome outcome = Outcome::error;
    int reason = 0;
    int hit_tokens = 0;
    int first_position = 0;
    int compute_count = 0;
    int blocks_short = 0;
    bool begins = false;  // none of it was computed or swapped out
};

struct Item {
    int seq = 0;
    std::vector<uint32_t> tokens;
    int max_compute = 0;
    int drafts = 0;
    int lookahead = 0;
    int max_hits = 0;  // 0 = no limit, -1 = none
    bool is_tree = false;
    std::vector<int> parents;  // of the drafts, -1 = none
};

struct Block {
    int refs = 0;
    int node = -1;
    int owner = -1;
    int frozen = 0;
    int64_t stamp = 0;
    std::set<int64_t> depends;  // steps that its content depends on, if it has a node
    int64_t ready = 0;
    int64_t touch = 0;
    bool parked = false;
};

struct Node {
    bool alive = true;    // not freed
    bool hidden = false;  // evicted by the open step
    int parent = -1;
    std::string root;
    std::vector<uint32_t> tokens;
    std::vector<int> blocks;  // one per group, -1 = none
};

struct Seq {
    bool live = false;
    std::string root;
    int ns = 0;
    int priority = 0;
    std::vector<uint32_t> tokens;  // known ones
    int computed = 0;
    int drafts = 0;
    int lookahead = 0;
    int index = 0;
    int cross = 0;                   // tokens of another input
    std::vector<int> draft_parents;  // of the last item
    int move_begin = 0;              // where the first accepted token moves to
    std::vector<int> moves;          // positions of accepted tokens that the next step moves
    bool swapped = false;
    bool lost = false;
    bool preempted = false;
    bool unpublished = false;
    int published = 0;  // visited by publishing
    int cursor = -1;    // node
    int preemptions = 0;
    int64_t admitted = 0;
    int64_t resumed_step = 0;
    int64_t last_step = 0;
    bool in_step = false;                  // has an item
    bool gave_up = false;                  // is a victim of the open step
    std::vector<std::vector<int>> tables;  // per group, -1 = null
    std::map<int64_t, int> pending;        // step -> computed tokens that stay right if it fails
};

struct Step {
    int64_t number = 0;
    int64_t queue = 0;
    bool complete = false;
    std::vector<int> rows;     // sequences in item order
    std::map<int, int> valid;  // sequence -> tokens that stay right
    std::map<int, int> first_position;
    bool may_preempt = false;
    bool dropped = false;  // an item was taken back
    int how = 0;
    // Blocks that it let go of. It reuses first those that will wait for it or its queue, if
    // allowed.
    struct LetGo {
        int group;
        int block;
        bool is_host;
        bool is_first;
        int64_t touch;  // counts from its commit on
    };
    std::vector<LetGo> let_go;
};

class Reference {
 public:
    explicit Reference(const Config &config);

    // index: where the library keeps the sequence; a failed step takes back in that order.
    int create(int slot, const std::string &root, int ns, int priority, int cross, int index);
    void end(int slot, bool drop_prefix);
    bool fork(int slot, int child, int token_count, int index);
    bool truncate(int slot, int token_count);
    bool accept(int slot, int count);
    bool accept_path(int slot, const std::vector<int> &path);
    bool set_tokens(int slot, int position, const std::vector<uint32_t> &tokens);
    int probe(int slot, const std::vector<uint32_t> &tokens) const;
    void reset();

    bool begin(int64_t queue, bool may_preempt, int how);
    AddResult add(const Item &item);
    // 1: done, 0: the host tier is short, -1: an error.
    int preempt(int slot, int how);
    void abort();
    void note_drop() { step_.dropped = true; }
    void commit();
    void finish(int64_t step, bool failed);
    // After a failed step, if several namespaces write: sets the sequence to the library's state.
    void take_back(int slot, int computed, int lookahead);
    // Usable blocks of each group, and of the host tier in each. 1: done, 0: the live blocks do not
    // fit, -1: a step is open or not done.
    int migrate(const std::vector<int> &blocks, int host_blocks);

    const Config &config() const { return config_; }
    bool open() const { return open_; }
    const Seq &seq(int slot) const { return seqs_[static_cast<size_t>(slot)]; }
    const Step &step() const { return step_; }
    int count_free(int group) const;
    int count_cached(int group) const;
    int count_held(int group) const;
    int host_used() const;
    int64_t next_step() const { return next_step_; }
    bool evicted_in_step() const { return !evicted_.empty() || !parked_.empty(); }

 private:
    struct Plan;

    Seq &at(int slot) { return seqs_[static_cast<size_t>(slot)]; }
    int block_count(int tokens) const;
    // True if a token at `position` of the group sees the token at `key`.
    bool sees(int group, int position, int key) const;
    // True if a token at `position` needs the block, not counting the block of its own.
    bool needs(int group, int position, int index) const;
    // Blocks of a group for this many tokens.
    int table_length(int group, int tokens, const Seq &s) const;
    bool is_cross(size_t group) const { return config_.groups[group].kind == Kind::cross; }
    int first_unknown(const Seq &s) const;
    bool done(int64_t step) const;
    bool still_written_elsewhere(const Seq &s) const;
    bool usable(int64_t touch, int64_t queue) const;
    bool visible(int64_t ready, int64_t queue, bool any_queue) const;
    int available(int group) const;
    int take(int group);
    void drop_ref(int group, int block, int64_t touch);
    // Records that the open step lets go of a block. waits_here: the block will wait for this step
    // or its queue. touch: counts from the step's commit on.
    void let_go(int group, int block, bool is_host, bool waits_here, int64_t touch);
    int waits_since(int group, int block, bool is_host) const;
    void free_parts(int node);
    void kill(int node);
    void drop_oldest(int group);
    void free_if_bare(int node);
    bool has_full_group() const;
    bool used_by_others(const Seq &s, size_t index, int node) const;
    void drop_prefix(const Seq &s);
    int find_child(const std::string &root, int parent, const std::vector<uint32_t> &tokens) const;
    std::vector<int> match(const Seq &s, int max_blocks, bool any_queue) const;
    int best_hit(const std::vector<int> &matched) const;
    void publish(int slot, int64_t ready);
    void attach(int slot, int index, int node, int64_t ready);
    void lower_computed(int slot, int tokens, int wrong_from);  // -1: nothing is wrong
    std::set<int64_t> depends(int slot, int end) const;         // steps that tokens [0, end) need
    void trim_pending(int slot);
    void rewind(int slot);
    int whole_windows(const Seq &s, int tokens) const;
    bool tail_writable(int slot, int group, int position) const;
    Plan make_plan(int slot, const Item &item, bool reuses);
    // Entries of a table whose blocks no token from the position on needs.
    std::vector<int> passed(int slot, size_t group, int position) const;
    AddResult shortage(const Plan &plan) const;
    bool make_room(Plan *plan, const Item &item, AddResult *missing);
    int choose_victim(int slot) const;
    int host_available(int group) const;
    int take_host(int group);
    bool host_room(int slot) const;
    void give_up(int slot, int how);
    void give_back_passed(const Plan &plan, size_t group);
    void take_all(const Plan &plan);
    void pass_windows();
    bool reachable(int node) const;
    void publish_again();
    void lose(int slot, int valid);

    Config config_;
    std::vector<std::vector<Block>> blocks_;  // per group
    std::vector<std::vector<Block>> host_;    // per group
    std::vector<Node> nodes_;
    std::vector<Seq> seqs_;
    std::vector<Step> unfinished_;  // committed, oldest first
    Step step_;
    bool open_ = false;
    std::vector<int>
        evicted_;  // nodes that lost a block of a full-attention group in the open step
    std::vector<std::pair<int, int>> parked_;  // group, block
    std::vector<Reference> saved_;             // the state at begin, for abort
    int64_t clock_ = 0;
    int64_t admissions_ = 0;
    int64_t next_step_ = 1;
};

}  // namespace quire::model
