// SPDX-License-Identifier: Apache-2.0
//
// replay_cache: the cache that a trace is replayed through: one group, bookkeeping only, no device.
//
// Threads: one.
#pragma once

#include "library.hpp"
#include "replay.hpp"

namespace quire::cli {

class ReplayCache {
 public:
    ReplayCache(const ReplayOptions &options, uint32_t max_sequences);
    ~ReplayCache();
    ReplayCache(const ReplayCache &) = delete;
    ReplayCache &operator=(const ReplayCache &) = delete;

    const quire_api &api() const { return api_; }
    quire_cache *get() const { return cache_; }
    quire_error *error() { return &error_; }
    void must(quire_status status) const { check(status, error_); }

    quire_seq begin_sequence();
    void end_sequence(quire_seq seq) { must(api_.seq_end(cache_, seq, 0, &error_)); }

    quire_step begin(const quire_step_item *items, uint32_t count, const uint32_t *tokens,
                     uint32_t token_count, quire_step_result *results) {
        must(api_.step_begin(cache_, &step_desc_, items, count, sizeof *items, tokens, token_count,
                             results, sizeof *results, &open_, &error_));
        return open_;
    }
    void commit_and_finish(quire_step step) {
        must(api_.step_commit(cache_, step, nullptr, &error_));
        open_ = 0;
        must(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_));
    }

    quire_cache_stats stats();
    // Writes a dump of the cache to the file that the options name, if any.
    void write_dump(const ReplayOptions &options);

 private:
    const quire_api &api_;
    Instance instance_;
    Error error_;
    quire_cache *cache_ = nullptr;
    quire_step open_ = 0;
    quire_step_desc step_desc_{};
    quire_seq_desc seq_desc_{};
};

// For a request that can never run; the message says what to change.
[[noreturn]] void does_not_fit(uint64_t request, uint32_t blocks_short);

}  // namespace quire::cli
