// SPDX-License-Identifier: Apache-2.0
//
// sequence_keys: everything besides tokens that decides a sequence's K and V, encoded without
// ambiguity.
//
// Root words: namespace number (2 words), key count, then the words of each whole-sequence key.
// Key words:  {type, size_bytes, bytes padded with zeros}; a span's key is stored as these.
// Every field has a fixed width or its length before it, so different inputs never encode alike.
//
// Threads: none.
#pragma once

#include "core/base/host_memory.hpp"
#include "quire/sequence.h"

namespace quire {

constexpr uint32_t kMaxKeys = 64;
constexpr uint32_t kMaxKeyBytes = 4096;

// Validates the keys and their number; errors name the index.
Status check_keys(const quire_key *keys, uint32_t key_count);

// Appends the root words of a sequence in namespace `name_space` to `out`. False: no memory.
bool encode_root(uint64_t name_space, const quire_key *keys, uint32_t key_count,
                 Array<uint32_t> *out);

// True if the key is for a span of tokens and not for the whole sequence.
inline bool is_span(const quire_key &key) { return key.begin != 0 || key.end != 0; }

// Appends the key's words to `out`. False: no memory.
bool encode_key(const quire_key &key, Array<uint32_t> *out);

}  // namespace quire
