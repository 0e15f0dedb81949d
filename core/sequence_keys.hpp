// SPDX-License-Identifier: Apache-2.0
//
// sequence_keys: what beside tokens decides a sequence's K and V, encoded without ambiguity.
//
// Root words:  namespace number (2 words), key count, then per key {type, size_bytes, bytes padded
// with
// zeros}. Span words:  per span {begin, end, type, size_bytes, padded bytes}; kept with the
// sequence. Block words: per span that overlaps the block {type, begin and end relative to the
// block, size_bytes,
//              padded bytes}. Every field has a fixed width or its length before it, so different
//              inputs never encode alike.
//
// Threads: none.
#pragma once

#include "host_memory.hpp"
#include "prefix_tree.hpp"
#include "quire/cache.h"

namespace quire {

constexpr uint32_t kMaxKeys = 64;
constexpr uint32_t kMaxKeyBytes = 4096;

// Checks keys and counts them; errors name the index.
Status check_keys(const quire_key *keys, uint32_t key_count);

// Appends the root words of a sequence in namespace `name_space` to `out`. False: no memory.
bool encode_root(uint64_t name_space, const quire_key *keys, uint32_t key_count,
                 Array<uint32_t> *out);

// The namespace of root words.
inline uint64_t root_namespace(const uint32_t *words) {
    return words[0] | uint64_t{words[1]} << 32;
}

// Appends the span words. False: no memory.
bool encode_spans(const quire_key *keys, uint32_t key_count, Array<uint32_t> *out);

// Rewrites `out` with the words of the block [begin, end). False: no memory.
bool encode_block(const uint32_t *spans, uint32_t span_words, uint32_t begin, uint32_t end,
                  Array<uint32_t> *out);

}  // namespace quire
