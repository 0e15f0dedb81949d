// SPDX-License-Identifier: Apache-2.0

#include "presets.hpp"

#include <cstring>

#include "library.hpp"

namespace quire::cli {

namespace {

constexpr ModelPreset kModels[] = {
    {"llama-2-7b", 32, 32, 32, 128, 6.74e9},       {"llama-2-13b", 40, 40, 40, 128, 13.0e9},
    {"llama-3.1-8b", 32, 32, 8, 128, 8.03e9},      {"llama-3.1-70b", 80, 64, 8, 128, 70.6e9},
    {"llama-3.1-405b", 126, 128, 8, 128, 405.9e9}, {"llama-3.2-1b", 16, 32, 8, 64, 1.24e9},
    {"llama-3.2-3b", 28, 24, 8, 128, 3.21e9},      {"mistral-7b-v0.3", 32, 32, 8, 128, 7.25e9},
    {"mistral-small-24b", 40, 32, 8, 128, 23.6e9}, {"qwen2.5-7b", 28, 28, 4, 128, 7.62e9},
    {"qwen2.5-32b", 64, 40, 8, 128, 32.8e9},       {"qwen2.5-72b", 80, 64, 8, 128, 72.7e9},
    {"qwen3-8b", 36, 32, 8, 128, 8.19e9},          {"qwen3-32b", 64, 64, 8, 128, 32.8e9},
};

constexpr GpuPreset kGpus[] = {
    {"a10", 24e9, 600e9, 125e12},          {"a100-40gb", 40e9, 1.555e12, 312e12},
    {"a100-80gb", 80e9, 2.039e12, 312e12}, {"h100-pcie", 80e9, 2.0e12, 756e12},
    {"h100-sxm", 80e9, 3.35e12, 989e12},   {"h200", 141e9, 4.8e12, 989e12},
    {"l4", 24e9, 300e9, 121e12},           {"l40s", 48e9, 864e9, 362e12},
    {"rtx-4090", 24e9, 1.008e12, 165e12},  {"mi210", 64e9, 1.638e12, 181e12},
    {"mi250x", 128e9, 3.277e12, 383e12},   {"mi300x", 192e9, 5.3e12, 1307e12},
    {"mi325x", 256e9, 6.0e12, 1307e12},
};

template <typename Preset, size_t kCount>
const Preset &find(const Preset (&presets)[kCount], const char *option, const char *name) {
    std::string known;
    for (const Preset &preset : presets) {
        if (std::strcmp(preset.name, name) == 0) return preset;
        known += std::string(known.empty() ? "" : ", ") + preset.name;
    }
    throw Failure(std::string(option) + " " + name + " is not known; known names: " + known +
                      "; or give the numbers (quire size --help)",
                  kUsage);
}

}  // namespace

std::span<const ModelPreset> model_presets() { return kModels; }
std::span<const GpuPreset> gpu_presets() { return kGpus; }
const ModelPreset &find_model(const char *name) { return find(kModels, "--model", name); }
const GpuPreset &find_gpu(const char *name) { return find(kGpus, "--gpu", name); }

}  // namespace quire::cli
