// SPDX-License-Identifier: Apache-2.0
//
// attention_case: one attention call in memory; puts a spec's contents on pages, runs, compares.
//
// Everything that no query may read holds poison: unwritten slots, the null block, blocks that have
// left a window, keys that a window, a chunk or a mask hides in blocks that others need, the other
// layers, gaps between strides, mask bits past a row's end.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle.hpp"
#include "spec.hpp"
#include "subject.hpp"

namespace quire::conformance {

struct AttentionResult {
    std::vector<unsigned char> out;  // dense: [tokens][q_heads][v_head_dim]
    std::vector<float> lse;

    bool operator==(const AttentionResult &) const = default;
};

class AttentionCase {
 public:
    explicit AttentionCase(const AttentionSpec &spec);

    const OracleInput &input() const { return input_; }
    // For tests that plant a mistake.
    std::vector<int32_t> &block_table() { return input_.block_table; }
    std::vector<int32_t> &lengths() { return input_.lengths; }
    OracleInput &planted() { return input_; }
    std::vector<int32_t> &shared_prefix() { return shared_prefix_; }
    // The bytes of q and of the pool, for tests that write into them directly.
    std::vector<unsigned char> &query_bytes() { return q_; }
    std::vector<unsigned char> &bytes() { return bytes_; }
    // Takes the pages of a case with the same rows, contents included.
    void take_pool(const AttentionCase &other);

    // Runs on the rig's queue and checks that only the result was written.
    AttentionResult run(Rig &rig) const;
    OracleOutput exact() const { return oracle_attention(input_); }
    // The largest error against the oracle, in units of the bound: at most 1 is correct.
    double compare(const AttentionResult &result) const;

 private:
    void make_masks();
    void assign_blocks();
    void drop_blocks();
    void make_static_scales();
    void store_contents();
    void hide_keys();
    void store_queries();
    void find_shared_prefixes();
    uint32_t content_at(uint32_t row, int64_t position) const;
    int64_t oldest_visible(uint32_t row) const;
    unsigned char *slot_at(uint32_t row, int64_t place);
    void store_token(uint32_t row, int64_t place);
    double store_scale(bool is_v, uint32_t head, uint64_t where, unsigned char *layer,
                       int64_t in_block);
    AttentionResult collect(std::vector<unsigned char> out,
                            const std::vector<unsigned char> &lse) const;

    AttentionSpec spec_;
    std::vector<unsigned char> bytes_;  // of the pool
    std::vector<unsigned char> q_;
    std::vector<int32_t> shared_prefix_;  // [rows]; empty: not passed to the call
    OracleInput input_{};
};

// Tokens [first_token, first_token + token_count) of a result, for comparing parts.
AttentionResult slice(const AttentionResult &result, const AttentionSpec &spec,
                      uint32_t first_token, uint32_t token_count);
AttentionResult join(AttentionResult first, const AttentionResult &second);

}  // namespace quire::conformance
