// SPDX-License-Identifier: Apache-2.0

#include "size.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "library.hpp"
#include "presets.hpp"
#include "quantity.hpp"

namespace quire::cli {

namespace {

constexpr uint64_t kFewestParameters = 1000;
constexpr double kPresetUtilization = 0.9;  // vLLM's default share of a device's memory

uint32_t bits_of(const std::string &option, const std::string &dtype) {
    if (dtype == "f32") return 32;
    if (dtype == "f16" || dtype == "bf16") return 16;
    if (dtype == "fp8" || dtype == "fp8-e5m2" || dtype == "int8") return 8;
    if (dtype == "int4") return 4;
    throw Failure(
        option + " " + dtype + " is not known: f32, f16, bf16, fp8, fp8-e5m2, int8 or int4",
        kUsage);
}

// Parses a count; 0 is refused, because the library would read it as "use the default".
uint32_t parse_count(const std::string &option, const std::string &text) {
    uint64_t value = parse_whole(option, text);
    if (value == 0 || value > UINT32_MAX)
        throw Failure(option + " " + text + ": needs 1 to 4294967295", kUsage);
    return static_cast<uint32_t>(value);
}

// In a model's size such as 8B, B means billions; elsewhere it means bytes.
uint64_t parse_parameters(std::string text) {
    bool billions = text.size() > 1 && (text.back() == 'B' || text.back() == 'b') &&
                    (std::isdigit(static_cast<unsigned char>(text[text.size() - 2])) != 0 ||
                     text[text.size() - 2] == '.');
    if (billions) text.back() = 'G';
    uint64_t count = parse_whole("--params", text);
    if (count > 0 && count < kFewestParameters)
        throw Failure("--params " + text + " is too few: write it like 8B or 8.03e9", kUsage);
    return count;
}

void read_model(const SizeOptions &options, quire_size_desc *desc) {
    if (!options.model.empty()) {
        const ModelPreset &model = find_model(options.model.c_str());
        desc->layer_count = model.layers;
        desc->q_heads = model.q_heads;
        desc->kv_heads = model.kv_heads;
        desc->k_head_dim = model.head_dim;
        desc->parameters = static_cast<uint64_t>(model.parameters);
    } else if (options.layers.empty() || options.head_dim.empty() ||
               (options.kv_heads.empty() && options.latent.empty())) {
        throw Failure("give --model, or --layers, --kv-heads and --head-dim", kUsage);
    }
    auto count = [](const char *option, const std::string &text, uint32_t *out) {
        if (!text.empty()) *out = parse_count(option, text);
    };
    count("--layers", options.layers, &desc->layer_count);
    count("--kv-heads", options.kv_heads, &desc->kv_heads);
    count("--q-heads", options.q_heads, &desc->q_heads);
    count("--head-dim", options.head_dim, &desc->k_head_dim);
    if (!options.latent.empty()) {
        desc->flags = QUIRE_SIZE_LATENT;
        count("--latent", options.latent, &desc->v_head_dim);
        if (options.kv_heads.empty()) desc->kv_heads = 1;
    }
    if (!options.params.empty()) desc->parameters = parse_parameters(options.params);
    desc->kv_bits = bits_of("--kv-dtype", options.kv_dtype);
    // A cache of codes has an f32 scale for each row of a token.
    if (desc->kv_bits < 16) desc->scale_bytes = sizeof(float);
    desc->weight_bits = bits_of("--weight-dtype", options.weight_dtype);
}

void read_machine(const SizeOptions &options, quire_size_desc *desc) {
    desc->utilization = 1.0;
    if (!options.gpu.empty()) {
        const GpuPreset &gpu = find_gpu(options.gpu.c_str());
        desc->memory_bytes = static_cast<uint64_t>(gpu.memory_bytes);
        desc->bytes_per_second = gpu.bytes_per_second;
        desc->operations_per_second = gpu.operations_per_second;
        desc->utilization = kPresetUtilization;
    }
    auto rate = [](const char *option, const std::string &text, double *out) {
        if (!text.empty()) *out = parse_quantity(option, text);
    };
    rate("--bandwidth", options.bandwidth, &desc->bytes_per_second);
    rate("--flops", options.flops, &desc->operations_per_second);
    if (!options.util.empty()) {
        desc->utilization = parse_quantity("--util", options.util);
        if (desc->utilization <= 0.0)
            throw Failure("--util 0 leaves nothing: needs a share above 0, at most 1", kUsage);
    }
    if (!options.hbm.empty()) {
        desc->memory_bytes = parse_whole("--hbm", options.hbm);
        if (desc->memory_bytes == 0) throw Failure("--hbm 0: needs a size above 0", kUsage);
    }
    if (!options.reserve.empty()) desc->reserve_bytes = parse_whole("--reserve", options.reserve);
}

quire_size_desc read(const SizeOptions &options) {
    auto desc = described<quire_size_desc>();
    read_model(options, &desc);
    read_machine(options, &desc);
    if (!options.tp.empty()) desc.device_count = parse_count("--tp", options.tp);
    if (!options.ctx.empty()) desc.context_tokens = parse_count("--ctx", options.ctx);
    if (!options.batch.empty()) desc.batch = parse_count("--batch", options.batch);
    if (!options.block_tokens.empty())
        desc.block_tokens = parse_count("--block-tokens", options.block_tokens);
    return desc;
}

quire_size_info estimate(const quire_size_desc &desc) {
    auto info = described<quire_size_info>();
    Error error;
    if (library().size_estimate(&desc, &info, &error) < 0) throw Failure(error.message, kUsage);
    return info;
}

const char *name_of(uint32_t bound) {
    return bound == QUIRE_BOUND_COMPUTE ? "compute" : "bandwidth";
}

void print_json(const quire_size_desc &desc, const quire_size_info &info) {
    nlohmann::ordered_json out;
    auto put = [&](const char *key, bool known, auto value) {
        out[key] = known ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
    };
    bool has_memory = desc.memory_bytes != 0, has_time = info.bound != QUIRE_BOUND_UNKNOWN;
    put("kv_bytes_per_token", true, info.kv_bytes_per_token);
    put("pool_bytes", has_memory, info.pool_bytes);
    put("blocks", has_memory, info.blocks);
    put("tokens", has_memory, info.tokens);
    put("max_sequences", has_memory && desc.context_tokens != 0, info.max_sequences);
    put("batch", true, info.batch);
    put("step_seconds", has_time, info.step_seconds);
    put("tokens_per_second", has_time, info.tokens_per_second);
    put("bound", has_time, name_of(info.bound));
    std::printf("%s\n", out.dump().c_str());
}

// Prints one line of 50 cells: weights, K and V, free memory.
void print_memory(const quire_size_desc &desc, const quire_size_info &info) {
    constexpr int kCells = 50;
    double memory = static_cast<double>(desc.memory_bytes) * std::max(desc.device_count, 1u);
    double weights = static_cast<double>(desc.parameters) * desc.weight_bits / 8;
    auto pool = static_cast<double>(info.pool_bytes);
    int weight_cells = static_cast<int>(kCells * weights / memory + 0.5);
    int pool_cells = static_cast<int>(kCells * pool / memory + 0.5);
    std::string bar;
    for (int i = 0; i < kCells; ++i) {
        bar += i < weight_cells ? "█" : i < weight_cells + pool_cells ? "▒" : "·";
    }
    std::printf("memory     %s  %s\n", bar.c_str(), gigabytes(memory).c_str());
    std::printf("           █ weights %s   ▒ K and V %s   · left free %s\n",
                gigabytes(weights).c_str(), gigabytes(pool).c_str(),
                gigabytes(memory - weights - pool).c_str());
    std::printf("blocks     %s of %u tokens: %s tokens\n", with_commas(info.blocks).c_str(),
                desc.block_tokens == 0 ? 16 : desc.block_tokens, with_commas(info.tokens).c_str());
    if (desc.context_tokens != 0) {
        std::printf("sequences  %s of %s tokens\n", with_commas(info.max_sequences).c_str(),
                    with_commas(desc.context_tokens).c_str());
    }
}

// The batches to show: powers of two, the one asked for, and the largest that fits.
std::vector<uint32_t> batches(const quire_size_desc &desc, const quire_size_info &info) {
    uint64_t last = info.max_sequences != 0 ? info.max_sequences : std::max(desc.batch, 256u);
    last = std::min<uint64_t>(last, 1u << 20);
    std::vector<uint32_t> out;
    for (uint64_t batch = 1; batch < last; batch *= 2) out.push_back(static_cast<uint32_t>(batch));
    out.push_back(static_cast<uint32_t>(last));
    if (desc.batch != 0) out.push_back(desc.batch);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

void print_steps(quire_size_desc desc, const quire_size_info &info) {
    std::printf("\n%10s %12s %12s %14s   %s\n", "batch", "step", "tokens/s", "per sequence",
                "bound by");
    for (uint32_t batch : batches(desc, info)) {
        desc.batch = batch;
        quire_size_info row = estimate(desc);
        std::printf("%10u %12s %12.1f %14.1f   %s\n", batch,
                    short_seconds(row.step_seconds).c_str(), row.tokens_per_second,
                    row.tokens_per_second / batch, name_of(row.bound));
    }
    std::printf(
        "\nThis is the roofline: kernels and exchanges between devices can only be slower.\n");
}

void print_presets() {
    std::printf("%-18s %7s %8s %9s %9s %12s\n", "model", "layers", "q heads", "kv heads",
                "head dim", "parameters");
    for (const ModelPreset &m : model_presets()) {
        std::printf("%-18s %7u %8u %9u %9u %12.4g\n", m.name, m.layers, m.q_heads, m.kv_heads,
                    m.head_dim, m.parameters);
    }
    std::printf("\n%-18s %12s %12s %12s\n", "gpu", "memory", "GB/s", "TFLOP/s");
    for (const GpuPreset &g : gpu_presets()) {
        std::printf("%-18s %12s %12.0f %12.0f\n", g.name, gigabytes(g.memory_bytes).c_str(),
                    g.bytes_per_second / 1e9, g.operations_per_second / 1e12);
    }
}

}  // namespace

void size(const SizeOptions &options) {
    if (options.list) {
        print_presets();
        return;
    }
    quire_size_desc desc = read(options);
    quire_size_info info = estimate(desc);
    if (options.json) {
        print_json(desc, info);
        return;
    }
    std::printf("per token  %s B of K and V in %s\n", with_commas(info.kv_bytes_per_token).c_str(),
                options.kv_dtype.c_str());
    if (desc.memory_bytes != 0) print_memory(desc, info);
    if (info.bound != QUIRE_BOUND_UNKNOWN) print_steps(desc, info);
}

}  // namespace quire::cli
