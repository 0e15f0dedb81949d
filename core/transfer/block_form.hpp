// SPDX-License-Identifier: Apache-2.0
//
// block_form: a whole block of a cache in the canonical form: its header, its static scales, and
// the way between the form and the parts that the shards hold.
//
// Threads: any; it reads only what is constant in a cache, the geometry's shape and static scales.
// scatter() writes a host block, which its caller owns.
#pragma once

#include "core/device/shards.hpp"
#include "core/transfer/canonical.hpp"

namespace quire {

// The header of block `index` of a group, of all layers and heads, whose first `token_count` slots
// hold content. Its digests are zeros.
CanonicalHeader whole_header(const Geometry &geometry, uint32_t group, uint32_t index,
                             uint32_t token_count);

// Writes the static scales of the group into the block's planes, if it has such.
void write_scales(const StaticScales &scales, const CanonicalBlock &form, uint8_t *bytes);
// True if the block has the cache's static scales.
bool has_scales(const StaticScales &scales, const CanonicalBlock &form, const uint8_t *bytes);

// Copies the part of one shard, which lies at `from` as in its pool, into the block's planes.
// REQUIRES: the shard holds the group.
void gather(const Binding &binding, const CanonicalBlock &form, const uint8_t *from,
            uint8_t *bytes);
// Zeros a block of the host tier on all shards. It comes before scatter(), which leaves the padding
// between planes as it is: the block may have been another tenant's.
void clear_host_block(const Shards &shards, uint32_t group, uint32_t block);
// Fills the layers of the form in a block of the host tier on all shards.
void scatter(const CanonicalBlock &form, const uint8_t *bytes, const Shards &shards,
             uint32_t block);

}  // namespace quire
