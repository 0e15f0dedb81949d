// SPDX-License-Identifier: Apache-2.0
//
// block_size: how many tokens a block holds, and how positions divide into blocks.
//
// Why not a shift: a block may hold any number of tokens. Division is a multiplication by the
// reciprocal (Granlund and Montgomery, "Division by Invariant Integers using Multiplication",
// PLDI 1994), which takes as long for a power of two as for any other size.
//
// Invariant: reciprocal is ceil(2^63 / tokens). It exceeds 2^63 / tokens by less than 1, so the
// quotient of n < 2^32 is off by less than n / 2^63, which is below 1 / tokens.
//
// Threads: any. Units: tokens; blocks are numbered from the sequence's first token on.
#pragma once

#include <cstdint>

namespace quire {

class BlockSize {
 public:
    constexpr BlockSize() = default;
    explicit constexpr BlockSize(uint32_t tokens)
        : reciprocal_(((uint64_t{1} << 63) + tokens - 1) / tokens), tokens_(tokens) {}

    constexpr uint32_t tokens() const { return tokens_; }
    // The block that holds the token at `position`.
    constexpr uint32_t block_of(uint32_t position) const {
        return static_cast<uint32_t>(Wide{uint64_t{position} * 2} * reciprocal_ >> 64);
    }
    // The token's slot within its block.
    constexpr uint32_t slot_of(uint32_t position) const {
        return position - block_of(position) * tokens_;
    }
    // True if a block begins at `position`.
    constexpr bool begins_at(uint32_t position) const { return slot_of(position) == 0; }
    // Position of the block's first token.
    constexpr uint32_t first_token(uint32_t block) const { return block * tokens_; }
    // Blocks that hold this many tokens, the last one perhaps in part.
    constexpr uint32_t blocks_of(uint32_t count) const {
        const uint32_t full = block_of(count);
        return full + (full * tokens_ != count ? 1 : 0);
    }

 private:
    __extension__ typedef unsigned __int128 Wide;

    uint64_t reciprocal_ = 0;
    uint32_t tokens_ = 0;
};

}  // namespace quire
