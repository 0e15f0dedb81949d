// SPDX-License-Identifier: Apache-2.0
//
// replay_cache: the cache that a trace is replayed through: one group; bookkeeping only, unless
// there is a store below it.
//
// Threads: one.
#pragma once

#include <memory>
#include <optional>

#include "library.hpp"
#include "replay.hpp"
#include "replay_store.hpp"

namespace quire::cli {

class ReplayCache {
 public:
    ReplayCache(const ReplayOptions &options, uint32_t max_sequences);
    ~ReplayCache();
    ReplayCache(const ReplayCache &) = delete;
    ReplayCache &operator=(const ReplayCache &) = delete;

    const quire_api &api() const { return api_; }
    quire_cache *get() const { return cache_.get(); }
    quire_error *error() { return &error_; }
    void must(quire_status status) const { check(status, error_); }

    quire_seq begin_sequence();
    void end_sequence(quire_seq seq) { must(api_.seq_end(get(), seq, 0, &error_)); }

    quire_step begin(const quire_step_item *items, uint32_t count, const uint32_t *tokens,
                     uint32_t token_count, quire_step_result *results) {
        must(api_.step_begin(get(), &step_desc_, items, count, sizeof *items, tokens, token_count,
                             results, sizeof *results, &open_, &error_));
        return open_;
    }
    void commit_and_finish(quire_step step) {
        must(api_.step_commit(get(), step, nullptr, &error_));
        open_ = 0;
        must(api_.step_finish(get(), step, nullptr, QUIRE_STEP_OK, &error_));
        if (store_) store_->settle();
    }
    void abort() {
        must(api_.step_abort(get(), open_, &error_));
        open_ = 0;
    }
    // For an item whose outcome is QUIRE_ITEM_LOADING.
    void wait_for_load() { store_->wait_for_load(); }

    // Fills in what the cache and the store counted.
    void count(ReplayCounts *counts);
    // Writes a dump of the cache to the file that the options name, if any.
    void write_dump(const ReplayOptions &options);

 private:
    struct Destroyer {
        void operator()(quire_cache *cache) const { library().cache_destroy(cache, nullptr); }
    };

    const quire_api &api_;
    Instance instance_;
    Error error_;
    // The store lets go of the cache before that is destroyed, and the device outlives both.
    std::optional<ReplayDevice> device_;
    std::unique_ptr<quire_cache, Destroyer> cache_;
    std::optional<ReplayStore> store_;
    quire_step open_ = 0;
    quire_step_desc step_desc_{};
    quire_seq_desc seq_desc_{};
};

// For a request that can never run; the message says what to change.
[[noreturn]] void does_not_fit(uint64_t request, uint32_t blocks_short);

}  // namespace quire::cli
