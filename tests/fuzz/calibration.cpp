// SPDX-License-Identifier: Apache-2.0
//
// calibration: any bytes as a calibration (docs/calibration.md) to every function that reads one,
// and as the source of a cache's static scales.
//
// The first byte: bit 0 seals the bytes; bits 1 and 2 choose the cache's scales. What was accepted
// must stay accepted after a merge with itself, unchanged.
//
// Threads: none.

#include <algorithm>
#include <cmath>
#include <vector>

#include "bytes.hpp"
#include "library.hpp"
#include "sealed.hpp"

namespace {

using namespace quire::fuzz;
using Calibration = std::vector<uint8_t>;

void read_layer(const Calibration &bytes, uint32_t layer, uint32_t max_kv_heads) {
    auto info = described<quire_calibration_layer>();
    quire_error error = new_error();
    std::vector<float> amax(size_t{2} * max_kv_heads);
    quire_status status =
        library().calibration_get_layer(bytes.data(), bytes.size(), layer, &info, amax.data(),
                                        static_cast<uint32_t>(amax.size()), &error);
    require(status == QUIRE_OK, "a layer of an accepted calibration can be read", error.message);
    require(info.kv_heads <= max_kv_heads, "max_kv_heads is the most of all layers");
    for (uint32_t i = 0; i < 2 * info.kv_heads; ++i) {
        require(std::isfinite(amax[i]) && amax[i] >= 0, "numbers are finite and not negative");
    }
}

void merge_with_itself(const Calibration &bytes) {
    Calibration merged(bytes.size());
    uint64_t size_bytes = 0;
    quire_error error = new_error();
    quire_status status =
        library().calibration_merge(bytes.data(), bytes.size(), bytes.data(), bytes.size(),
                                    merged.data(), merged.size(), &size_bytes, &error);
    require(status == QUIRE_OK && size_bytes == bytes.size(), "it merges with itself",
            error.message);
    require(merged == bytes, "merged with itself it is the same");
}

// A model of the first layers' shape, so that some calibrations fit.
void make_cache(const Calibration &bytes, const quire_calibration_layer &shape, uint32_t layers,
                uint32_t scale) {
    auto group = described<quire_group_desc>();
    group.layer_count = std::max(1u, layers);
    group.kv_heads = std::max(1u, shape.kv_heads);
    group.k_head_dim = std::max(1u, shape.k_head_dim);
    group.v_head_dim = std::max(1u, shape.v_head_dim);
    group.k_dtype = QUIRE_DTYPE_I8;
    group.k_scale = scale & 1 ? QUIRE_SCALE_TENSOR : QUIRE_SCALE_HEAD;
    group.v_scale = scale & 2 ? QUIRE_SCALE_TENSOR : QUIRE_SCALE_HEAD;
    auto desc = described<quire_cache_desc>();
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.blocks = 4;
    desc.max_sequences = 1;
    desc.max_sequence_tokens = 64;
    desc.calibration = bytes.data();
    desc.calibration_bytes = bytes.size();
    quire_cache *cache = nullptr;
    quire_error error = new_error();
    quire_status status = library().cache_create(shared_instance(), &desc, &cache, &error);
    require_words(status, error);
    if (cache != nullptr) library().cache_destroy(cache, nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    Bytes input(data, size_bytes);
    uint8_t how = input.byte();
    Calibration bytes = input.rest();
    if (how & 1) seal(&bytes, kCalibrationSeal);
    auto info = described<quire_calibration_info>();
    quire_error error = new_error();
    quire_status status = library().calibration_get_info(bytes.data(), bytes.size(), &info, &error);
    require_words(status, error);
    auto shape = described<quire_calibration_layer>();
    if (status < 0) {
        make_cache(bytes, shape, 1, how >> 1);
        return 0;
    }
    for (uint32_t layer = 0; layer < std::min(info.layer_count, 64u); ++layer) {
        read_layer(bytes, layer, info.max_kv_heads);
    }
    require(library().calibration_get_layer(bytes.data(), bytes.size(), info.layer_count, &shape,
                                            nullptr, 0, nullptr) == QUIRE_E_ARG,
            "there is no layer after the last");
    merge_with_itself(bytes);
    if (info.layer_count > 0) {
        library().calibration_get_layer(bytes.data(), bytes.size(), 0, &shape, nullptr, 0, nullptr);
    }
    make_cache(bytes, shape, info.layer_count, how >> 1);
    return 0;
}
