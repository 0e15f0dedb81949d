// SPDX-License-Identifier: Apache-2.0
//
// products: single instructions of a matrix unit, for a test to call.
//
// products.cpp is compiled twice: over the processor's own instructions, and over the stand-in.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cpu {

// The TILECFG layout.
struct alignas(64) TileShapes {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// Operands in tiles 0 (sums), 4 (left) and 6 (right); strides are bytes between rows.
struct Product {
    const TileShapes *shapes;
    const void *left;
    size_t left_stride;
    const void *right;
    size_t right_stride;
    void *sums;  // read and written
    size_t sums_stride;
};

struct Instructions {
    void (*multiply_bytes)(const Product &product);
    void (*multiply_halves)(const Product &product);
    // Clears tile 0, stores it over the sums, and releases all tiles.
    void (*clear)(const Product &product);
    // Stores tile 0 without a configuration.
    void (*store_unconfigured)(void *to);
    // sums[16], pairs a[16] and b[16], to[16]
    void (*add_pairs_of_halves)(const float *sums, const uint32_t *a, const uint32_t *b, float *to);
    // table[128], places[64], to[64]
    void (*bytes_at)(const uint8_t *table, const uint8_t *places, uint8_t *to);
};

namespace stand_in {
extern const Instructions instructions;
}
namespace processor {
extern const Instructions instructions;
}

}  // namespace quire::cpu
