// SPDX-License-Identifier: Apache-2.0
//
// sequences: the life of sequences: create, end, fork, truncate, set_tokens.
//
// Ownership: refers to the books and to the parts below it; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/retreat.hpp"
#include "core/steps/withdrawal.hpp"

namespace quire {

class Sequences {
 public:
    Sequences(CacheBooks *books, Tenants *tenants, Prefixes *prefixes, Withdrawal *withdrawal,
              Retreat *retreat)
        : books_(*books),
          tenants_(*tenants),
          prefixes_(*prefixes),
          withdrawal_(*withdrawal),
          retreat_(*retreat) {}

    Status create(const quire_seq_desc &desc, const quire_key *keys, uint64_t *out);
    Status end(uint64_t handle, uint32_t flags);
    // Makes `fresh` live, with keys of its own. What it is besides is filled in already.
    Status enter(Sequence fresh, const quire_key *keys, uint32_t key_count, uint64_t *out);
    // Ends it and gives all its blocks back.
    void leave(uint32_t index);
    Status fork(uint64_t handle, uint32_t token_count, uint64_t *out);
    Status truncate(uint64_t handle, uint32_t token_count);
    Status set_tokens(const uint8_t *spans, uint32_t count, uint32_t stride,
                      const quire_token *tokens, uint32_t token_count);
    Status info(uint64_t handle, quire_seq_info *out) const;
    Status blocks(uint64_t step, uint64_t seq, uint32_t group, uint32_t first, int32_t *ids,
                  uint32_t capacity, uint32_t *count);

 private:
    Status no_sequence_left() const;
    Status share_tables(uint32_t parent, uint32_t child, uint32_t computed);
    void find_next_unknown(const quire_token_span &span, Sequence *s) const;
    void inherit(uint32_t parent, uint32_t child, uint32_t token_count, uint32_t computed);

    CacheBooks &books_;
    Tenants &tenants_;
    Prefixes &prefixes_;
    Withdrawal &withdrawal_;
    Retreat &retreat_;
};

}  // namespace quire
