// SPDX-License-Identifier: Apache-2.0
//
// presets: models and GPUs by name, for `quire size`.
//
// Models: layers, heads and head dim from their published config.json; parameters as their
// publishers count them. Only dense models in which every layer sees the whole context. GPUs: the
// figures of their vendors' data sheets, per device, for dense bf16 arithmetic without sparsity;
// measured figures are lower.
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

// Both throw a Failure that lists the known names.
const ModelPreset &find_model(const char *name);
const GpuPreset &find_gpu(const char *name);

}  // namespace quire::cli
