// SPDX-License-Identifier: Apache-2.0

#include "write_case.hpp"

#include <algorithm>
#include <cmath>

#include "quire/cache.h"

namespace quire::conformance {

quire_be_attention_query write_shape(const PoolTypes &types, uint32_t k_dim, uint32_t v_dim) {
    quire_be_attention_query shape{};
    shape.struct_size = sizeof shape;
    shape.kv_heads = 2;
    shape.k_head_dim = k_dim;
    shape.v_head_dim = v_dim;
    shape.block_tokens = 16;
    put_types(types, &shape);
    return shape;
}

namespace {

template <typename T>
std::vector<unsigned char> spread(const std::vector<uint32_t> &bits, uint64_t row,
                                  uint64_t padding) {
    std::vector<T> values;
    for (uint64_t i = 0; i < bits.size(); ++i) {
        values.push_back(static_cast<T>(bits[i]));
        if ((i + 1) % row == 0) values.resize(values.size() + padding, static_cast<T>(~T{0}));
    }
    const auto *bytes = reinterpret_cast<const unsigned char *>(values.data());
    return {bytes, bytes + values.size() * sizeof(T)};
}

std::vector<unsigned char> given_bytes(const WriteSpec &spec, const std::vector<uint32_t> &bits,
                                       uint32_t dim) {
    uint64_t row = uint64_t{spec.shape.kv_heads} * dim;
    return size_of(spec.dtype) == 4 ? spread<uint32_t>(bits, row, spec.padding)
                                    : spread<uint16_t>(bits, row, spec.padding);
}

}  // namespace

Written write_tokens(Rig &rig, const WriteSpec &spec, const std::vector<int64_t> &slots,
                     const std::vector<uint32_t> &k_bits, const std::vector<uint32_t> &v_bits) {
    quire_be_pool pool = make_pool(spec.shape, spec.layout, 3, spec.block_count, spec.padding * 8);
    Guarded memory(rig, pool.size_bytes);
    pool.address = memory.address();
    std::vector<float> scales(size_t{3} * 2 * pool.kv_heads, NAN);
    std::copy(spec.scales.begin(), spec.scales.end(),
              scales.begin() + kWrittenLayer * 2 * pool.kv_heads);
    Memory scale_memory(rig, scales.size() * sizeof(float));
    rig.write(scale_memory.address(), scales.data(), scales.size() * sizeof(float));
    pool.scales = scale_memory.address();
    Memory amax_memory(rig, spec.amax.size() * sizeof(float) + 1);
    rig.write(amax_memory.address(), spec.amax.data(), spec.amax.size() * sizeof(float));
    pool.amax = spec.amax.empty() ? 0 : amax_memory.address();
    Memory positions(rig, spec.positions.size() * sizeof(int32_t) + 1);
    rig.write(positions.address(), spec.positions.data(), spec.positions.size() * sizeof(int32_t));
    bool is_latent = pool.group_kind == QUIRE_GROUP_LATENT;
    uint32_t k_dim = is_latent ? pool.v_head_dim : pool.k_head_dim;
    uint32_t v_dim = is_latent ? pool.k_head_dim - pool.v_head_dim : pool.v_head_dim;
    auto k_given = given_bytes(spec, k_bits, k_dim);
    auto v_given = given_bytes(spec, v_bits, v_dim);
    Memory k(rig, k_given.size() + 1);
    Memory v(rig, v_given.size() + 1);
    Memory slot_memory(rig, slots.size() * sizeof(int64_t));
    rig.write(k.address(), k_given.data(), k_given.size());
    rig.write(v.address(), v_given.data(), v_given.size());
    rig.write(slot_memory.address(), slots.data(), slots.size() * sizeof(int64_t));
    quire_be_kv_write args{};
    args.struct_size = sizeof args;
    args.layer = kWrittenLayer;
    args.token_count = static_cast<uint32_t>(slots.size());
    args.dtype = spec.dtype;
    args.pool = &pool;
    args.k = k.address();
    args.v = v.address();
    args.slots = slot_memory.address();
    args.k_token_stride = int64_t{pool.kv_heads} * k_dim + spec.padding;
    args.v_token_stride = int64_t{pool.kv_heads} * v_dim + spec.padding;
    args.plan = spec.plan;
    args.positions = spec.plan != nullptr ? positions.address() : 0;
    Error error;
    must(api().kv_write(rig.queue(), &args, &error), error);
    rig.sync();
    std::vector<float> amax(spec.amax.size());
    std::vector<unsigned char> measured =
        rig.read(amax_memory.address(), amax.size() * sizeof(float));
    std::copy_n(measured.data(), measured.size(), reinterpret_cast<unsigned char *>(amax.data()));
    return {pool, memory.read(), amax};
}

int64_t offset_of(const quire_be_pool &pool, int64_t slot, uint32_t head, bool is_v) {
    int64_t at = slot / pool.block_tokens * pool.block_stride + kWrittenLayer * pool.layer_stride;
    int64_t place = slot % pool.block_tokens;
    if (is_v) return at + pool.v_offset + head * pool.v_head_stride + place * pool.v_token_stride;
    return at + head * pool.k_head_stride + place * pool.k_token_stride;
}

int64_t scale_offset_of(const quire_be_pool &pool, int64_t slot, uint32_t head, bool is_v) {
    return slot / pool.block_tokens * pool.block_stride + kWrittenLayer * pool.layer_stride +
           (is_v ? pool.v_scale_offset : pool.k_scale_offset) + head * pool.scale_head_stride +
           slot % pool.block_tokens * 4;
}

}  // namespace quire::conformance
