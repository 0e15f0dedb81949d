// SPDX-License-Identifier: Apache-2.0
//
// manager: a bookkeeping-only cache, driven through the C ABI as an engine would drive it, with
// short names for tests.
//
// After every call that changes something, the library's own check runs on the cache, which is
// audited. If a call that a test expects to succeed fails, the test fails with the library's
// message.
//
// Threads: none.
#pragma once

#include <gtest/gtest.h>
#include <quire/quire.h>

#include <string>
#include <vector>

namespace quire::test {

using Tokens = std::vector<quire_token>;
using Blocks = std::vector<int32_t>;

// The library that the build tree's environment names; ends the process if it is missing.
const quire_api &library();

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

// `count` tokens from `first` on.
Tokens tokens_from(quire_token first, uint32_t count);
Tokens joined(const Tokens &a, const Tokens &b);

struct GroupOptions {
    uint32_t window = 0;        // tokens; 0 = full attention
    uint32_t blocks = 0;        // excluding the null block; 0 = the cache's number
    uint32_t kind = 0;          // QUIRE_GROUP_*; 0 with a window = QUIRE_GROUP_WINDOW
    uint32_t sinks = 0;         // tokens
    uint32_t block_tokens = 0;  // 0 = the cache's
    uint32_t state_interval = 0;
    uint32_t draft_states = 0;
};

struct CacheOptions {
    uint32_t blocks = 32;  // per group, excluding the null block
    uint32_t block_tokens = 4;
    uint32_t host_blocks = 0;
    uint32_t watermark = 0;
    uint32_t max_sequences = 64;
    uint32_t max_sequence_tokens = 0;
    uint32_t victim = QUIRE_VICTIM_NEWEST;
    uint32_t flags = 0;
    float swap_bytes_per_second = 0;
    float prefill_tokens_per_second = 0;
    uint64_t key_bytes = 0;
    std::vector<GroupOptions> groups = {GroupOptions{}};
};

struct SequenceOptions {
    quire_namespace ns = 0;
    std::vector<quire_key> keys = {};
    int32_t priority = 0;
    uint32_t cross_tokens = 0;
};

struct StepOptions {
    uint64_t queue = 0;
    bool may_preempt = false;
    uint32_t preempt = QUIRE_PREEMPT_AUTO;
};

struct ItemOptions {
    uint32_t max_compute = 0;
    uint32_t drafts = 0;
    uint32_t lookahead = 0;
    std::vector<uint32_t> parents = {};  // of the drafts, a tree
    Tokens bits = {};                    // words of QUIRE_MASK_BITS
    uint32_t bits_rows = 0;
    uint32_t max_hits = 0;
};

class Manager {
 public:
    explicit Manager(const CacheOptions &options = {});
    ~Manager();
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;

    const quire_api &api() const { return api_; }
    quire_cache *cache() const { return cache_; }
    quire_error *error() { return &error_; }
    std::string message() const { return error_.message; }

    quire_namespace name_space(uint32_t quota_blocks = 0, uint64_t key_bytes = 0);
    quire_seq sequence(const SequenceOptions &options = {});
    quire_seq fork(quire_seq seq, uint32_t token_count);
    // Includes in the snapshots a sequence that the test created by a call of its own.
    void adopt(quire_seq seq) { live_.push_back(seq); }
    void end(quire_seq seq, uint32_t flags = 0);

    quire_step begin(const StepOptions &options = {});
    quire_step_result add(quire_seq seq, const Tokens &tokens, const ItemOptions &options = {});
    quire_status try_add(quire_seq seq, const Tokens &tokens, const ItemOptions &options,
                         quire_step_result *result);
    std::vector<quire_seq> drop(quire_seq seq);
    void abort();
    quire_step commit(quire_batch *batch = nullptr);
    void finish(quire_step step, uint32_t outcome = QUIRE_STEP_OK);
    // A step of its own: begin, add (which must run), commit and finish.
    quire_step_result compute(quire_seq seq, const Tokens &tokens, const ItemOptions &options = {});
    quire_step open() const { return step_; }

    void set_tokens(quire_seq seq, uint32_t position, const Tokens &tokens);
    // The length of the prefix of `tokens` that a new sequence with these options would hit.
    uint32_t probe(const Tokens &tokens, const SequenceOptions &options = {});
    Blocks table(quire_seq seq, uint32_t group = 0);
    std::vector<quire_block_copy> copies(quire_step step);
    std::vector<quire_preemption> preempted(quire_step step);
    quire_cache_stats stats();
    quire_seq_info info(quire_seq seq);
    quire_namespace_info info_of(quire_namespace ns);
    // Equal before and after a step that was undone: counts, what is known of the sequences, and
    // the part of the dump that undone_state() keeps (tests/whole_state.hpp).
    std::string snapshot();
    // Equal before and after a call that was refused: the same, and the dump except for one count.
    std::string books();
    void check();

 private:
    void expect_ok(quire_status status, const char *what);
    // Counts and what is known of the sequences.
    std::string seen();

    const quire_api &api_;
    quire_error error_{};
    quire_instance *instance_ = nullptr;
    quire_cache *cache_ = nullptr;
    uint32_t group_count_ = 0;
    quire_step step_ = 0;
    std::vector<quire_step> unfinished_;
    std::vector<quire_seq> live_;
};

}  // namespace quire::test
