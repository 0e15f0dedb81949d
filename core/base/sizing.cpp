// SPDX-License-Identifier: Apache-2.0

#include "core/base/sizing.hpp"

#include <cmath>

#include "core/base/checked.hpp"

namespace quire {

namespace {

Status too_large() { return fail(QUIRE_E_LIMIT, "the numbers multiply to more than 2^64 bytes"); }

bool is_element(uint32_t bits) { return bits == 4 || bits == 8 || bits == 16 || bits == 32; }

bool is_rate(double rate) { return std::isfinite(rate) && rate >= 0.0; }

// The description with its defaults filled in, and the numbers that depend on the model alone.
struct Sizing {
    quire_size_desc desc;
    uint64_t weight_bytes = 0;         // of the whole model
    uint64_t device_token_bytes = 0;   // K and V of one token on one device
    uint64_t device_weight_bytes = 0;  // rounded up
};

Status check_model(const quire_size_desc &desc) {
    if (desc.layer_count == 0) return fail(QUIRE_E_ARG, "layer_count is 0: a model has layers");
    if (desc.kv_heads == 0) return fail(QUIRE_E_ARG, "kv_heads is 0: attention has heads");
    if (desc.k_head_dim == 0) return fail(QUIRE_E_ARG, "k_head_dim is 0: a head has elements");
    if ((desc.flags & QUIRE_SIZE_LATENT) != 0) {
        if (desc.kv_heads != 1)
            return fail(QUIRE_E_ARG, "kv_heads is {}: all heads share a latent row, set 1",
                        desc.kv_heads);
        if (desc.v_head_dim > desc.k_head_dim)
            return fail(QUIRE_E_ARG,
                        "v_head_dim {} is above k_head_dim: V is the front part of the row",
                        desc.v_head_dim);
    }
    if (!is_element(desc.kv_bits))
        return fail(QUIRE_E_ARG, "kv_bits is {}: 4, 8, 16 or 32", desc.kv_bits);
    if (desc.scale_bytes > 4)
        return fail(QUIRE_E_ARG, "scale_bytes is {}: a scale is an f32 or less", desc.scale_bytes);
    if (!is_element(desc.weight_bits))
        return fail(QUIRE_E_ARG, "weight_bits is {}: 4, 8, 16 or 32", desc.weight_bits);
    return Status{};
}

Status check_machine(const quire_size_desc &desc) {
    if (!is_power_of_two(desc.block_tokens) || desc.block_tokens > 256) {
        return fail(QUIRE_E_ARG, "block_tokens is {}: a power of two, 1 to 256", desc.block_tokens);
    }
    if (!(desc.utilization > 0.0 && desc.utilization <= 1.0))
        return fail(QUIRE_E_ARG, "utilization must be above 0 and at most 1");
    if (!is_rate(desc.bytes_per_second))
        return fail(QUIRE_E_ARG, "bytes_per_second must be finite and at least 0");
    if (!is_rate(desc.operations_per_second))
        return fail(QUIRE_E_ARG, "operations_per_second must be finite and at least 0");
    return Status{};
}

Status fill_defaults(Sizing *sizing) {
    quire_size_desc &desc = sizing->desc;
    if (desc.v_head_dim == 0) desc.v_head_dim = desc.k_head_dim;
    if (desc.kv_bits == 0) desc.kv_bits = 16;
    if (desc.weight_bits == 0) desc.weight_bits = 16;
    if (desc.block_tokens == 0) desc.block_tokens = 16;
    if (desc.batch == 0) desc.batch = 1;
    if (desc.device_count == 0) desc.device_count = 1;
    if (desc.utilization == 0.0) desc.utilization = 1.0;
    QUIRE_TRY(check_model(desc));
    return check_machine(desc);
}

Status measure_model(Sizing *sizing) {
    const quire_size_desc &desc = sizing->desc;
    // A head's K, and its V, each begin at a byte; a latent row holds V within K.
    bool latent = (desc.flags & QUIRE_SIZE_LATENT) != 0;
    auto row_bytes = [&](uint64_t head_dim) {
        return (head_dim * desc.kv_bits + 7) / 8 + desc.scale_bytes;
    };
    uint64_t head_bytes = row_bytes(desc.k_head_dim) + (latent ? 0 : row_bytes(desc.v_head_dim));
    uint64_t heads = ceil_div(desc.kv_heads, desc.device_count);
    uint64_t rows = 0, weight_bits = 0;
    if (!checked_mul(heads, desc.layer_count, &rows) ||
        !checked_mul(rows, head_bytes, &sizing->device_token_bytes) ||
        !checked_mul(desc.parameters, desc.weight_bits, &weight_bits)) {
        return too_large();
    }
    sizing->weight_bytes = weight_bits / 8 + (weight_bits % 8 != 0);
    sizing->device_weight_bytes =
        sizing->weight_bytes / desc.device_count + (sizing->weight_bytes % desc.device_count != 0);
    return Status{};
}

Status fill_pool(const Sizing &sizing, quire_size_info *info) {
    const quire_size_desc &desc = sizing.desc;
    // The largest double below 2^64 still fits when the share is 1.
    auto usable = desc.utilization == 1.0
                      ? desc.memory_bytes
                      : static_cast<uint64_t>(
                            std::floor(static_cast<double>(desc.memory_bytes) * desc.utilization));
    usable = usable > desc.reserve_bytes ? usable - desc.reserve_bytes : 0;
    if (sizing.device_weight_bytes > usable) {
        return fail(QUIRE_E_LIMIT,
                    "the model does not fit: its weights take {} bytes of each device, but only {} "
                    "may be used",
                    sizing.device_weight_bytes, usable);
    }
    uint64_t pool = usable - sizing.device_weight_bytes, block_bytes = 0;
    if (!checked_mul(sizing.device_token_bytes, desc.block_tokens, &block_bytes) ||
        !checked_mul(pool, desc.device_count, &info->pool_bytes)) {
        return too_large();
    }
    info->blocks = pool / block_bytes;
    info->tokens = info->blocks * desc.block_tokens;
    if (info->blocks == 0) {
        return fail(QUIRE_E_LIMIT,
                    "not one block fits: it takes {} bytes of each device, but only {} are left",
                    block_bytes, pool);
    }
    return Status{};
}

Status fill_sequences(const Sizing &sizing, quire_size_info *info) {
    const quire_size_desc &desc = sizing.desc;
    if (desc.context_tokens == 0) {
        if (desc.batch <= info->blocks) return Status{};
        return fail(QUIRE_E_LIMIT,
                    "batch {} is too large: each sequence needs a block, and the pool has {}",
                    desc.batch, info->blocks);
    }
    uint64_t each =
        desc.context_tokens / desc.block_tokens + (desc.context_tokens % desc.block_tokens != 0);
    info->max_sequences = info->blocks / each;
    if (info->max_sequences == 0) {
        return fail(QUIRE_E_LIMIT, "not one sequence of {} tokens fits: the pool holds {}",
                    desc.context_tokens, info->tokens);
    }
    if (desc.batch > info->max_sequences) {
        return fail(QUIRE_E_LIMIT, "batch {} is too large: {} sequences fit", desc.batch,
                    info->max_sequences);
    }
    return Status{};
}

Status fill_step(const Sizing &sizing, quire_size_info *info) {
    const quire_size_desc &desc = sizing.desc;
    if (desc.context_tokens == 0) return Status{};  // how much is read is unknown
    double batch = desc.batch, devices = desc.device_count;
    double contexts = batch * static_cast<double>(desc.context_tokens);
    double bytes = static_cast<double>(sizing.weight_bytes) +
                   contexts * static_cast<double>(info->kv_bytes_per_token);
    // q·k and p·v: a multiply and an add for each element of a head.
    double attention = 2.0 * desc.q_heads * desc.layer_count * contexts *
                       (static_cast<double>(desc.k_head_dim) + desc.v_head_dim);
    double operations = 2.0 * static_cast<double>(desc.parameters) * batch + attention;
    double reading = desc.bytes_per_second > 0 ? bytes / devices / desc.bytes_per_second : 0;
    double computing =
        desc.operations_per_second > 0 ? operations / devices / desc.operations_per_second : 0;
    if (reading <= 0 && computing <= 0) return Status{};
    info->bound = reading >= computing ? QUIRE_BOUND_BANDWIDTH : QUIRE_BOUND_COMPUTE;
    info->step_seconds = reading >= computing ? reading : computing;
    info->tokens_per_second = batch / info->step_seconds;
    if (std::isfinite(info->step_seconds) && std::isfinite(info->tokens_per_second))
        return Status{};
    return fail(QUIRE_E_LIMIT, "the time of a step is not finite at these rates");
}

}  // namespace

Status estimate_size(const quire_size_desc &desc, quire_size_info *info) {
    Sizing sizing{.desc = desc};
    quire_size_info full = *info;
    QUIRE_TRY(fill_defaults(&sizing));
    QUIRE_TRY(measure_model(&sizing));
    if (!checked_mul(sizing.device_token_bytes, sizing.desc.device_count, &full.kv_bytes_per_token))
        return too_large();
    full.pool_bytes = full.blocks = full.tokens = full.max_sequences = 0;
    full.batch = sizing.desc.batch;
    full.bound = QUIRE_BOUND_UNKNOWN;
    full.step_seconds = full.tokens_per_second = 0;
    if (sizing.desc.memory_bytes != 0) {
        QUIRE_TRY(fill_pool(sizing, &full));
        QUIRE_TRY(fill_sequences(sizing, &full));
    }
    QUIRE_TRY(fill_step(sizing, &full));
    *info = full;
    return Status{};
}

}  // namespace quire
