// SPDX-License-Identifier: Apache-2.0
//
// attention_case: one attention call as data: what to compute, over which pages, in what order.
//
// A row is a prefix of a content: the value of content c at position p is a function of (seed, c,
// p), so that a chunk, a decode row and a whole prefill of one content hold the same numbers
// wherever their pages lie. Whatever no query may read holds poison: unwritten slots, the null
// block, blocks that have left a window, the other layers, gaps between strides.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "number.hpp"
#include "oracle.hpp"
#include "subject.hpp"

namespace quire::conformance {

// A pool over memory that is not there yet; address is 0.
enum class Layout { head_major, token_major };
quire_be_pool make_pool(const quire_be_attention_query &shape, Layout layout, uint32_t layer_count,
                        uint32_t block_count, uint32_t padding_bytes);

struct RowSpec {
    uint32_t content = 0;
    int32_t length = 0;
    int32_t new_tokens = 0;
    int32_t shared_tokens = 0;  // whole blocks of the row before, whose content this row continues
    int32_t first_key = 0;      // of the content: what the row holds at position 0
    int32_t first_query = -1;   // of the content: the first new token; -1: where it lies in the row
};

struct AttentionSpec {
    quire_be_attention_query shape{};
    std::vector<RowSpec> rows;
    float scale = 0.0f;
    double q_size = 1.0;  // larger: sharper softmax
    uint64_t seed = 1;
    uint64_t pages_seed = 1;      // which blocks hold what
    unsigned char poison = 0xFF;  // 0xFF is NaN in every type
    Layout layout = Layout::head_major;
    uint32_t padding = 0;  // elements between tokens of q and out; 8 times as many bytes in strides
    bool wants_lse = true;
    bool shares_pages = true;  // false: shared tokens lie on pages of the row's own

    std::string text() const;
};

// Any shape at all; with `fit`, one of that one's types, head dims and block size.
AttentionSpec random_spec(uint64_t seed, const quire_be_attention_query *fit = nullptr);

struct AttentionResult {
    std::vector<unsigned char> out;  // dense: [tokens][q_heads][v_head_dim]
    std::vector<float> lse;

    bool operator==(const AttentionResult &) const = default;
};

class AttentionCase {
 public:
    explicit AttentionCase(const AttentionSpec &spec);

    const OracleInput &input() const { return input_; }
    // For a test that plants a mistake.
    std::vector<int32_t> &block_table() { return input_.block_table; }
    std::vector<int32_t> &lengths() { return input_.lengths; }

    // Runs on the rig's queue and checks that nothing but the result was written.
    AttentionResult run(Rig &rig) const;
    OracleOutput exact() const { return oracle_attention(input_); }
    // The largest error against the oracle, in units of the bound: at most 1 is right.
    double compare(const AttentionResult &result) const;

 private:
    void assign_blocks();
    void store_contents();
    void store_queries();
    uint32_t content_at(uint32_t row, int64_t position) const;
    int64_t oldest_visible(const RowSpec &row) const;
    AttentionResult collect(std::vector<unsigned char> out,
                            const std::vector<unsigned char> &lse) const;

    AttentionSpec spec_;
    std::vector<unsigned char> bytes_;  // of the pool
    std::vector<unsigned char> q_;
    OracleInput input_{};
};

// Rows `first` to `last` of one result, for comparing parts.
AttentionResult slice(const AttentionResult &result, const AttentionSpec &spec,
                      uint32_t first_token, uint32_t token_count);
AttentionResult join(AttentionResult first, const AttentionResult &second);

}  // namespace quire::conformance
