// SPDX-License-Identifier: Apache-2.0
//
// presets: models and GPUs by name, for `quire size`.
//
// Models: layers, heads and head dim as in their published config.json; parameters as their
// publishers count them. Only models whose layers all see the whole context and are not sparse.
// GPUs: what their vendors' data sheets state, per device, dense bf16 arithmetic without sparsity;
// a measured figure is lower.
#pragma once

#include <cstdint>
#include <span>

namespace quire::cli {

struct ModelPreset {
    const char *name;
    uint32_t layers;
    uint32_t q_heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    double parameters;
};

struct GpuPreset {
    const char *name;
    double memory_bytes;
    double bytes_per_second;
    double operations_per_second;
};

std::span<const ModelPreset> model_presets();
std::span<const GpuPreset> gpu_presets();

// Throw Failure that lists the known names.
const ModelPreset &find_model(const char *name);
const GpuPreset &find_gpu(const char *name);

}  // namespace quire::cli
