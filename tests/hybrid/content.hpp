// SPDX-License-Identifier: Apache-2.0
//
// content: a number for each thing that a slot can hold, and memory made of such numbers.
//
// A chain numbers a sequence's prefixes: entry n depends on its namespace, keys and first n tokens,
// so equal numbers mean that content may be shared. A slot of an attention group holds a number of
// its token's prefix and its group; the first slot of a recurrent group's block holds a state.
//
// Marks: a step that will fail has one of 63 marks while it is remembered. Everything it writes,
// and everything computed from that, carries the mark; kForgotten replaces marks that were reused.
//
// Threads: none.
#pragma once
#include <cstdint>
#include <vector>

#include "config.hpp"

namespace hybrid {

struct Cell {
    uint64_t content = 0;
    uint32_t tenant = 0;  // serial of the namespace that wrote it; 0: none
    uint64_t marks = 0;
};
using Block = std::vector<Cell>;
using Memory = std::vector<Block>;  // by block number

inline constexpr uint64_t kForgotten = 1ull << 63;
inline constexpr int kMarks = 63;

enum KeySet : uint32_t { no_key = 0, adapter_key = 1, salt_key = 2, media_key = 3 };

// Whose content it is. media_begin, media_end: only of media_key.
struct Owner {
    uint32_t tenant;
    uint32_t key_set;
    uint32_t media_begin;
    uint32_t media_end;
};

std::vector<uint64_t> chain_of(const Owner &owner, const std::vector<uint32_t> &tokens);

// A slot of an attention group: prefix is the chain's entry that ends with the slot's token.
inline uint64_t attention_content(uint32_t group, uint64_t prefix) {
    return mix(mix(prefix, 1000 + group), 7);
}

// The state of a recurrent group after that prefix.
inline uint64_t state_content(uint32_t group, uint64_t prefix) {
    return mix(mix(prefix, 2000 + group), 9);
}

// The slots of the block at `place`. A place past the chain's end has content that no chain has.
std::vector<uint64_t> block_content(const Config &config, uint32_t group,
                                    const std::vector<uint64_t> &chain, uint32_t place);

}  // namespace hybrid
