// SPDX-License-Identifier: Apache-2.0

#include "core/device/binding.hpp"

#include "core/device/backend_call.hpp"
#include "quire/attention.h"

namespace quire {

quire_be_pool describe_pool(const GroupGeometry &g, uint32_t block_tokens) {
    quire_be_pool pool{};
    pool.struct_size = sizeof pool;
    pool.block_count = g.blocks;
    pool.size_bytes = static_cast<uint64_t>(g.block_stride) * g.blocks;
    pool.block_stride = g.block_stride;
    pool.layer_stride = g.layer_stride;
    pool.v_offset = g.v_offset;
    pool.k_head_stride = g.k_head_stride;
    pool.k_token_stride = g.k_token_stride;
    pool.v_head_stride = g.v_head_stride;
    pool.v_token_stride = g.v_token_stride;
    pool.block_tokens = block_tokens;
    pool.layer_count = g.layer_count;
    pool.kv_heads = g.kv_heads;
    pool.k_head_dim = g.k_head_dim;
    pool.v_head_dim = g.v_head_dim;
    pool.k_dtype = g.k_dtype;
    pool.v_dtype = g.v_dtype;
    pool.group_kind = g.kind;
    pool.k_scale_kind = g.k_scale;
    pool.v_scale_kind = g.v_scale;
    pool.k_scale_offset = g.k_scale_offset;
    pool.v_scale_offset = g.v_scale_offset;
    pool.scale_head_stride = g.scale_head_stride;
    return pool;
}

namespace {

Status query_backend(Device *device, const quire_be_pool &pool, const GroupGeometry &g,
                     uint32_t index, bool calibrates, quire_error *error) {
    quire_be_attention_query query{};
    query.struct_size = sizeof query;
    query.kv_heads = pool.kv_heads;
    query.k_head_dim = pool.k_head_dim;
    query.v_head_dim = pool.v_head_dim;
    query.k_dtype = pool.k_dtype;
    query.v_dtype = pool.v_dtype;
    query.k_scale_kind = pool.k_scale_kind;
    query.v_scale_kind = pool.v_scale_kind;
    query.block_tokens = pool.block_tokens;
    query.window = g.window;
    query.group_kind = g.kind;
    query.sink_tokens = g.sink_tokens;
    if (g.cross) query.flags = QUIRE_ATTENTION_NOT_CAUSAL;
    if (calibrates) query.flags |= QUIRE_BE_ATTENTION_AMAX;
    quire_be_answer answer{};
    answer.struct_size = sizeof answer;
    QUIRE_TRY(call<&quire_backend_api::query_attention>(*device->api, error, device->handle, &query,
                                                        &answer));
    if (answer.support > QUIRE_BE_SLOW) {
        return function_lied(*device->api, error, "query_attention returned an invalid answer");
    }
    if (answer.support == QUIRE_BE_NO) {
        answer.reason[sizeof answer.reason - 1] = '\0';
        std::memcpy(error->message, answer.reason, sizeof answer.reason);
        error->status = QUIRE_E_UNSUPPORTED;
        return fail(QUIRE_E_UNSUPPORTED, "the backend does not serve group {}: ", index);
    }
    return Status{};
}

// Count of the numbers that lie beside a group's pool.
uint64_t count_numbers(const quire_be_pool &pool) {
    return uint64_t{pool.layer_count} * 2 * pool.kv_heads;
}

}  // namespace

Binding::~Binding() {
    for (uint32_t g = 0; g < group_count_; ++g) {
        const quire_be_pool &pool = pools_[g];
        scales_[g].clear();
        amax_[g].clear();
        if (pool.address != 0) {
            free_memory(*device_, pool.address, pool.size_bytes, QUIRE_BE_MEMORY_DEVICE);
        }
        const HostTier &tier = host_[g];
        if (tier.device == nullptr) continue;
        free_memory(*tier.device, tier.address, tier.size_bytes, QUIRE_BE_MEMORY_HOST);
        --tier.device->children;
    }
    if (device_ != nullptr) --device_->children;
}

Status Binding::create_pool(uint32_t g, const ShardGeometry &geometry, bool calibrates,
                            quire_error *error) {
    const GroupGeometry &group = geometry.held.groups[g];
    quire_be_pool pool = describe_pool(group, geometry.held.block_tokens);
    QUIRE_TRY(query_backend(device_, pool, group, g, calibrates, error));
    void *host_pointer = nullptr;
    QUIRE_TRY(allocate_memory(*device_, pool.size_bytes, QUIRE_BE_MEMORY_DEVICE, &pool.address,
                              &host_pointer, error));
    pools_[g] = pool;
    if (calibrates) {
        QUIRE_TRY(amax_[g].create(device_, count_numbers(pool), error));
        pools_[g].amax = amax_[g].address();
    }
    if (group.host_blocks == 0) return Status{};
    return create_host_tier(g, static_cast<uint64_t>(group.block_stride) * group.host_blocks,
                            error);
}

Status Binding::create_host_tier(uint32_t g, uint64_t size_bytes, quire_error *error) {
    HostTier tier;
    void *pointer = nullptr;
    QUIRE_TRY(allocate_memory(*device_, size_bytes, QUIRE_BE_MEMORY_HOST, &tier.address, &pointer,
                              error));
    tier.device = device_;
    tier.bytes = static_cast<uint8_t *>(pointer);
    tier.size_bytes = size_bytes;
    ++device_->children;
    host_[g] = tier;
    return Status{};
}

// Uploads the scales of the layers and heads that are here.
Status Binding::upload_scales(uint32_t g, const ShardGeometry &geometry, const StaticScales &scales,
                              quire_error *error) {
    quire_be_pool &pool = pools_[g];
    if (scales.of(g, 0) == nullptr) return Status{};
    QUIRE_TRY(scales_[g].create(device_, count_numbers(pool), error));
    float *to = scales_[g].host();
    for (uint32_t layer = 0; layer < pool.layer_count; ++layer) {
        const float *from = scales.of(g, geometry.first_layer[g] + layer);
        for (uint32_t side = 0; side < 2; ++side, to += pool.kv_heads, from += scales.heads(g)) {
            std::memcpy(to, from + geometry.first_head[g], pool.kv_heads * sizeof(float));
        }
    }
    pool.scales = scales_[g].address();
    return scales_[g].upload(error);
}

Status Binding::create(Device *device, const ShardGeometry &geometry, const StaticScales &scales,
                       bool calibrates, quire_error *error) {
    device_ = device;
    ++device_->children;
    for (uint32_t g = 0; g < geometry.held.group_count; ++g) {
        group_count_ = g + 1;
        first_layer_[g] = geometry.first_layer[g];
        first_head_[g] = geometry.first_head[g];
        if (geometry.held.groups[g].layer_count == 0) continue;
        QUIRE_TRY(create_pool(g, geometry, calibrates, error));
        QUIRE_TRY(upload_scales(g, geometry, scales, error));
    }
    return Status{};
}

Status Binding::read_amax(uint32_t group, const float **numbers, quire_error *error) {
    QUIRE_TRY(amax_[group].download(error));
    *numbers = amax_[group].host();
    return Status{};
}

uint64_t Binding::pool_bytes() const {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < group_count_; ++g) bytes += pools_[g].size_bytes;
    return bytes;
}

uint64_t Binding::host_bytes() const {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < group_count_; ++g) bytes += host_[g].size_bytes;
    return bytes;
}

void Binding::add_memory(DeviceMemory *sum) const {
    sum->device_bytes += pool_bytes();
    sum->host_bytes += host_bytes();
    for (uint32_t g = 0; g < group_count_; ++g) {
        sum->device_bytes += scales_[g].device_bytes() + amax_[g].device_bytes();
        sum->host_bytes += scales_[g].host_bytes() + amax_[g].host_bytes();
    }
}

quire_be_copy Binding::describe(const quire_block_copy &copy) const {
    const quire_be_pool &pool = pools_[copy.group];
    uint64_t stride = static_cast<uint64_t>(pool.block_stride);
    bool from_host = copy.kind == QUIRE_COPY_SWAP_IN;
    bool to_host = copy.kind == QUIRE_COPY_SWAP_OUT;
    quire_be_copy out{};
    out.src = (from_host ? host_[copy.group].address : pool.address) +
              static_cast<uint64_t>(copy.src) * stride;
    out.dst = (to_host ? host_[copy.group].address : pool.address) +
              static_cast<uint64_t>(copy.dst) * stride;
    out.size_bytes = stride;
    out.kind = from_host ? QUIRE_BE_COPY_H2D : to_host ? QUIRE_BE_COPY_D2H : QUIRE_BE_COPY_D2D;
    return out;
}

}  // namespace quire
