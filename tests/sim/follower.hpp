// SPDX-License-Identifier: Apache-2.0
//
// follower: a second cache that is fed the leader's logs and must be what the leader was.
//
// What the leader shows right after each commit is kept with the log, so the follower may be late.
// No call lists a lease on a follower. So its dump (docs/dump.md) is asked which blocks each holds;
// a log says neither how often nor whose lease it is.
//
// Threads: none.
#pragma once
#include <deque>
#include <map>

#include "world.hpp"

namespace sim {

class Follower {
 public:
    Follower(World &leader, const quire_cache_desc &desc);
    // Takes the log of a step that was just committed; applies what is due.
    void take(const Step &step);
    // Applies and finishes the rest, then destroys the cache.
    void close();
    // Gives its cache up.
    void abandon();

 private:
    using Tables = std::map<uint64_t, std::vector<std::set<int32_t>>>;  // of a handle, by group
    struct Log {
        std::vector<uint8_t> bytes;
        std::vector<quire_seq> handles;
        Tables leases;
        Snapshot state;
        uint32_t queue = 0;
        uint32_t rows = 0;
    };
    Snapshot look(quire_cache *cache, const Log &log, quire_step step);
    void look_at_sequence(quire_cache *cache, const Log &log, uint32_t at, Snapshot &words);
    Tables leases_of_leader();
    Tables dumped();
    void apply();
    void compare(const Log &log, quire_step step);
    void check_ended(const Log &log);
    void compare_leases(const Log &log);
    void move();
    bool is_late(const Word &own, const Log &log, size_t i);
    void refuse_wrong(const Log &log);
    void finish_first();

    World &leader_;
    const quire_api *q_;
    quire_cache *cache_ = nullptr;
    std::deque<Log> logs_;
    std::deque<quire_step> unfinished_;
    std::vector<quire_seq> last_handles_;
    bool had_leases_ = false;  // in the last log
    std::vector<char> dump_;
    std::map<quire_seq, uint64_t> last_flags_;
    std::vector<uint8_t> last_log_;
    Rng rng_;
    Rng move_rng_;
    quire_error error_{};
};

}  // namespace sim
