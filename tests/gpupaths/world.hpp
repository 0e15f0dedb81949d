// SPDX-License-Identifier: Apache-2.0
//
// world: one cache and the program's own account of it. The design page.
//
// The account is simple: for each sequence the tokens that it knows, how many of them are computed,
// and for each place the Cell that decides its bytes. Nothing in it knows blocks, prefixes or
// queues. So whatever the library shared, copied, swapped, moved or migrated, a place below
// `computed` must hold the bytes of its Cell: in what each step's kernels saw, and in the pools
// whenever nothing runs.
//
// Where calls fail
//   A call may fail only after a device refused something (Library::strikes), or is lost. It must
//   have changed nothing, except a commit that answers QUIRE_E_DEVICE_LOST: it undid its step as
//   a finish with QUIRE_STEP_FAILED does.
//   A step that fails may take `computed` back, but only of sequences that ran, were forked or were
//   preempted since it was committed: no other can depend on it.
//   settle() ends the faults, waits for everything, replaces queues that stopped, and then demands
//   that all sequences agree with the account again.
//   A device that gives no queue any more is lost: the cache must keep its books, and is given up.
//
// Threads: none.
#pragma once

#include <deque>
#include <memory>

#include "finding.hpp"
#include "stage.hpp"

namespace gpupaths {

struct Text {
    uint32_t id = 0;
    quire_seq seq = 0;
    uint32_t space = 0;
    uint32_t document = 0;
    std::vector<quire_token> tokens;  // known, accepted ones
    std::vector<Cell> cells;          // of `tokens`, then of drafts
    uint32_t computed = 0;            // drafts included
    std::vector<quire_token> drafts;
    std::vector<uint32_t> parents;
    uint32_t unmoved = UINT32_MAX;  // from here on accepted tokens are still to be moved
    uint64_t touched = 0;           // the last commit that may have made its content depend
    bool swapped = false;
    uint32_t wait_steps = 0;

    Cell last() const {
        return tokens.empty() ? Cell::before_all(space + 1) : cells[tokens.size() - 1];
    }
};

using Tables = std::vector<std::vector<std::vector<int32_t>>>;  // of each row and group

// A step that was committed.
struct Step {
    quire_step handle = 0;
    uint64_t number = 0;  // counts commits
    uint32_t queue = 0, slot = 0;
    std::vector<Row> rows;
    Tables tables;
    std::vector<uint32_t> rewritten;  // ids of texts whose row was given up since
    bool is_spoilt = false;           // it will fail
    bool is_finished = false;
    bool is_dead = false;  // what it saw does not count
};

struct Tally {
    uint64_t ops = 0, steps = 0, rows = 0, hits = 0, forks = 0, swaps = 0, recomputes = 0,
             migrations = 0, gates = 0, failed = 0, undone = 0, aborted = 0, planted = 0,
             strikes = 0, lost = 0, compared = 0, seen = 0, graphs = 0, captures = 0, moved = 0,
             busy = 0, defects = 0;
    void print(const char *family, uint64_t seeds, double seconds) const;
};

struct Options {
    std::string family = "cpu";
    uint64_t first_seed = 1, seeds = 20;
    uint32_t ops = 60;
    double seconds = 0;  // 0: no limit
    std::string defect;  // planted in each seed
    uint64_t defect_nth = 1, defect_count = 1;
    bool traces = false;
    bool has_faults = true;
};

class World {
 public:
    World(Library &library, const Options &options, uint64_t seed, Tally *tally);
    // Plays the whole seed. Throws Finding.
    void play();
    const Shape &shape() const { return stage_->shape; }

 private:
    // ops.cpp
    void act();
    void create();
    void end(size_t index);
    void fork(size_t index);
    void truncate(size_t index);
    void accept_drafts();
    void plant();
    void lose();
    void migrate();
    void shut_gate();
    void check_books();
    quire_namespace space_of(uint32_t space) const;
    // steps.cpp
    struct Planned;
    void step(bool finishes_all);
    bool add_item(Planned *planned, Text *text, bool finishes_all);
    void draft(Planned *planned, Text *text, quire_step_item *item);
    bool begin(Planned *planned);
    void take_result(Planned *planned, size_t index);
    void take_preempted(Planned *planned);
    bool commit(Planned *planned);
    void run(Planned *planned);
    Step number(Planned *planned);
    void read_tables(Planned *planned);
    bool preempt_one(Planned *planned);
    void abort(Planned *planned);
    bool take_slot(uint32_t *slot);
    // failures.cpp
    bool finish(Step *step);
    void finish_all();
    void finish_failed(Step *step);
    void take_undone(const Step &step, const std::vector<Text> &before);
    void take_failure(const Step &step);
    void drop_seen(uint64_t from_number);
    bool may_fail(quire_status status, const char *what);
    bool is_shaken() const;
    void settle();
    bool sync_all();
    void notice();
    void rebuild();
    void set_up();
    // compare.cpp
    quire_seq_info info(const Text &text);
    void compare_infos(const char *after);
    void adopt_info(Text *text, uint32_t bound, bool is_exact, const char *after);
    void compare_seen();
    void compare_pools(const char *after);
    void drain();

    Text *find(uint32_t id);
    void trace(const char *format, ...);

    Library &library_;
    const Options &options_;
    Rng rng_;
    Tally *tally_;
    const quire_api &q_;
    std::unique_ptr<Stage> stage_;
    std::vector<quire_namespace> spaces_;
    std::vector<Text> texts_;
    std::deque<Step> steps_;  // whose slot is in use, in the order of their commits
    quire_error error_{};
    uint64_t commits_ = 0;
    uint64_t strikes_settled_ = 0;
    uint64_t shaken_from_ = 0;  // the first commit that a strike may have made fail
    uint32_t ops_to_settle_ = 0;
    uint32_t next_id_ = 1;
    bool is_loose_ = false;  // `computed` may fall at any call
};

}  // namespace gpupaths
