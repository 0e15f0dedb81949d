// SPDX-License-Identifier: Apache-2.0

#include "kernels/targets.hpp"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "kernels/processor.hpp"

namespace quire::cpu {

namespace plain {
extern const TileKernels kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const TileKernels kernels;
}
namespace avx512 {
extern const TileKernels kernels;
}
namespace amx {
extern const MatrixKernels kernels;
}
namespace bf16 {
extern const MatrixKernels kernels;
}
#endif

namespace {

struct Chosen {
    const TileKernels *tile;
    const MatrixKernels *matrix;  // for codes and 16-bit values
    const MatrixKernels *pairs;   // only scores bf16; used if `matrix` is NULL
};

constexpr bool is_half(Format format) { return format == Format::f16 || format == Format::bf16; }

// Prefers the best.
Chosen choose() {
#if defined(__x86_64__)
    const char *most = std::getenv("QUIRE_CPU_TARGET");
    auto is_most = [most](const char *name) {
        return most != nullptr && std::strcmp(most, name) == 0;
    };
    if (is_most(plain::kernels.name)) return {&plain::kernels, nullptr, nullptr};
    if (has_avx512() && !is_most(avx2::kernels.name)) {
        bool has_matrix = !is_most(avx512::kernels.name) && has_amx();
        bool has_pairs = !has_matrix && has_avx512_bf16();
        return {&avx512::kernels, has_matrix ? &amx::kernels : nullptr,
                has_pairs ? &bf16::kernels : nullptr};
    }
    if (has_avx2()) return {&avx2::kernels, nullptr, nullptr};
#endif
    return {&plain::kernels, nullptr, nullptr};
}

const Chosen &chosen() {
    static const Chosen once = choose();
    return once;
}

}  // namespace

const TileKernels &tile_kernels() { return *chosen().tile; }

const MatrixKernels *matrix_for_keys(Format k, Format q, bool is_fast) {
    bool is_pair = is_fast && k == Format::bf16 && q == Format::bf16;
    if (is_pair && chosen().pairs != nullptr) return chosen().pairs;
    return matrix_for_values(k, is_fast);
}

const MatrixKernels *matrix_for_values(Format v, bool is_fast) {
    return v == Format::f32 || (is_half(v) && !is_fast) ? nullptr : chosen().matrix;
}

const char *unknown_target() {
    const char *most = std::getenv("QUIRE_CPU_TARGET");
    if (most == nullptr) return nullptr;
    for (const char *word : {"plain", "avx2", "avx512", "amx"}) {
        if (std::strcmp(most, word) == 0) return nullptr;
    }
    return most;
}

const char *target_name() {
    return chosen().matrix != nullptr ? chosen().matrix->name : chosen().tile->name;
}
const char *fast_16bit_name() {
    const MatrixKernels *fast = chosen().matrix != nullptr ? chosen().matrix : chosen().pairs;
    return fast != nullptr ? fast->name : nullptr;
}

}  // namespace quire::cpu
