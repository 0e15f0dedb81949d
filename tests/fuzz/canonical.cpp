// SPDX-License-Identifier: Apache-2.0
//
// canonical: any bytes as a block in the canonical form (docs/canonical-form.md). Nothing of the
// public table reads one yet, so this target links the core.
//
// The first byte's bit 0 seals the bytes. Every plane of an accepted block must lie within it.
//
// Threads: none.

#include <vector>

#include "bytes.hpp"
#include "core/transfer/canonical.hpp"
#include "require.hpp"
#include "sealed.hpp"

namespace {

using namespace quire::fuzz;

void read_planes(const quire::CanonicalBlock &block, const std::vector<uint8_t> &bytes) {
    uint64_t sum = 0;
    quire::each_piece(block.part(), block.part(), [&](const quire::PartPiece &piece) {
        require(piece.from <= bytes.size() && piece.size_bytes <= bytes.size() - piece.from,
                "a plane lies within the block");
        sum += bytes[piece.from] + bytes[piece.from + piece.size_bytes - 1];
    });
    require(sum <= uint64_t{510} * bytes.size(), "planes do not overlap");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    Bytes input(data, size_bytes);
    bool sealed = (input.byte() & 1) != 0;
    std::vector<uint8_t> bytes = input.rest();
    if (sealed) seal(&bytes, kCanonicalSeal);
    quire::CanonicalBlock block;
    quire::Status status = quire::CanonicalBlock::open(bytes.data(), bytes.size(), &block);
    if (!status.ok()) return 0;
    require(block.size_bytes() == bytes.size(), "an accepted block is all of its bytes");
    read_planes(block, bytes);
    return 0;
}
