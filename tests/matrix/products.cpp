// SPDX-License-Identifier: Apache-2.0

#include "products.hpp"

#include "kernels/matrix_instructions.hpp"

namespace quire::cpu::QUIRE_CPU_TARGET {

namespace {

template <typename Multiply>
void with_tiles(const Product &p, Multiply multiply) {
    order_memory();
    load_tile_config(p.shapes);
    load_tile<0>(p.sums, p.sums_stride);
    load_tile<4>(p.left, p.left_stride);
    load_tile<6>(p.right, p.right_stride);
    multiply();
    store_tile<0>(p.sums, p.sums_stride);
    release_tiles();
    order_memory();
}

void run_multiply_bytes(const Product &p) {
    with_tiles(p, [] { multiply_bytes<0, 4, 6>(); });
}

void run_multiply_halves(const Product &p) {
    with_tiles(p, [] { multiply_halves<0, 4, 6>(); });
}

void run_clear(const Product &p) {
    with_tiles(p, [] { clear_tile<0>(); });
}

void run_store_unconfigured(void *to) {
    release_tiles();
    store_tile<0>(to, 64);
}

void run_add_pairs_of_halves(const float *sums, const uint32_t *a, const uint32_t *b, float *to) {
    _mm512_storeu_ps(to, add_pairs_of_halves(_mm512_loadu_ps(sums), _mm512_loadu_si512(a),
                                             _mm512_loadu_si512(b)));
}

void run_bytes_at(const uint8_t *table, const uint8_t *places, uint8_t *to) {
    _mm512_storeu_si512(to, bytes_at(_mm512_loadu_si512(table), _mm512_loadu_si512(places),
                                     _mm512_loadu_si512(table + 64)));
}

}  // namespace

const Instructions instructions = {
    run_multiply_bytes,     run_multiply_halves,     run_clear,
    run_store_unconfigured, run_add_pairs_of_halves, run_bytes_at,
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
