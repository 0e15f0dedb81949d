// SPDX-License-Identifier: Apache-2.0

#include "binding.hpp"

#include "slot.hpp"

namespace quire {

namespace {

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
    return pool;
}

Status ask_backend(Device *device, const quire_be_pool &pool, const GroupGeometry &g,
                   uint32_t index, quire_error *error) {
    quire_be_attention_query query{};
    query.struct_size = sizeof query;
    query.kv_heads = pool.kv_heads;
    query.k_head_dim = pool.k_head_dim;
    query.v_head_dim = pool.v_head_dim;
    query.k_dtype = pool.k_dtype;
    query.v_dtype = pool.v_dtype;
    query.block_tokens = pool.block_tokens;
    query.window = g.window;
    query.group_kind = g.kind;
    query.sink_tokens = g.sink_tokens;
    if (g.cross) query.flags = QUIRE_ATTENTION_NOT_CAUSAL;
    quire_be_answer answer{};
    answer.struct_size = sizeof answer;
    QUIRE_TRY(ask<&quire_backend_api::query_attention>(*device->api, error, device->handle, &query,
                                                       &answer));
    if (answer.support > QUIRE_BE_SLOW) {
        return slot_lied(*device->api, error, "query_attention gave an answer that is none");
    }
    if (answer.support == QUIRE_BE_NO) {
        answer.reason[sizeof answer.reason - 1] = '\0';
        std::memcpy(error->message, answer.reason, sizeof answer.reason);
        error->status = QUIRE_E_UNSUPPORTED;
        return fail(QUIRE_E_UNSUPPORTED, "the backend does not serve group {}: ", index);
    }
    return Status{};
}

}  // namespace

Binding::~Binding() {
    for (uint32_t g = 0; g < group_count_; ++g) {
        const quire_be_pool &pool = pools_[g];
        if (pool.address != 0) {
            free_memory(*device_, pool.address, pool.size_bytes, QUIRE_BE_MEMORY_DEVICE);
        }
        if (host_[g].address != 0) {
            free_memory(*device_, host_[g].address, host_[g].size_bytes, QUIRE_BE_MEMORY_HOST);
        }
    }
    if (device_ != nullptr) --device_->children;
}

Status Binding::create(Device *device, const Geometry &geometry, quire_error *error) {
    device_ = device;
    ++device_->children;
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const GroupGeometry &group = geometry.groups[g];
        quire_be_pool pool = describe_pool(group, geometry.block_tokens);
        QUIRE_TRY(ask_backend(device, pool, group, g, error));
        void *host_pointer = nullptr;
        QUIRE_TRY(allocate_memory(*device, pool.size_bytes, QUIRE_BE_MEMORY_DEVICE, &pool.address,
                                  &host_pointer, error));
        pools_[g] = pool;
        group_count_ = g + 1;
        if (group.host_blocks == 0) continue;
        HostMemory memory{0, static_cast<uint64_t>(group.block_stride) * group.host_blocks};
        QUIRE_TRY(allocate_memory(*device, memory.size_bytes, QUIRE_BE_MEMORY_HOST, &memory.address,
                                  &host_pointer, error));
        host_[g] = memory;
    }
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

// May the copy run beside the others of the current run? If so it is marked as one of them.
bool Binding::joins_run(const quire_block_copy &copy, Ledger *ledger) {
    bool from_host = copy.kind == QUIRE_COPY_SWAP_IN;
    bool to_host = copy.kind == QUIRE_COPY_SWAP_OUT;
    BlockPool &sources = from_host ? *ledger->host_pool(copy.group) : ledger->pool(copy.group);
    BlockPool &targets = to_host ? *ledger->host_pool(copy.group) : ledger->pool(copy.group);
    Block &src = sources[static_cast<uint32_t>(copy.src)];
    Block &dst = targets[static_cast<uint32_t>(copy.dst)];
    if (src.copied_to == run_ || dst.copied_to == run_ || dst.copied_from == run_) return false;
    src.copied_from = run_;
    dst.copied_to = run_;
    return true;
}

// The moves of one group that stand at *i, in one call; *i goes behind them.
Status Binding::move(Queue *queue, const Array<quire_block_copy> &copies, uint64_t *i,
                     quire_error *error) {
    uint32_t group = copies[*i].group;
    const quire_be_pool &pool = pools_[group];
    moves_.shrink(0);
    for (; *i < copies.size(); ++*i) {
        const quire_block_copy &copy = copies[*i];
        if (copy.kind == kVoidCopy) continue;
        if (copy.kind != QUIRE_COPY_TOKEN || copy.group != group) break;
        moves_.push(quire_be_move{int64_t{copy.src} * pool.block_tokens + copy.src_place,
                                  int64_t{copy.dst} * pool.block_tokens + copy.dst_place});
    }
    return ask<&quire_backend_api::move_tokens>(*device_->api, error, queue->handle, &pool,
                                                static_cast<const quire_be_move *>(moves_.data()),
                                                static_cast<uint32_t>(moves_.size()));
}

Status Binding::enqueue(Queue *queue, const Array<quire_block_copy> &copies, Ledger *ledger,
                        quire_error *error) {
    uint64_t i = 0;
    while (i < copies.size()) {
        descriptors_.shrink(0);
        ++run_;
        for (; i < copies.size(); ++i) {
            if (copies[i].kind == kVoidCopy) continue;
            if (copies[i].kind == QUIRE_COPY_TOKEN) break;
            if (!joins_run(copies[i], ledger)) break;
            descriptors_.push(describe(copies[i]));
        }
        if (!descriptors_.empty()) {
            QUIRE_TRY(ask<&quire_backend_api::copy>(*device_->api, error, queue->handle,
                                                    descriptors_.data(),
                                                    static_cast<uint32_t>(descriptors_.size())));
        }
        if (i < copies.size() && copies[i].kind == QUIRE_COPY_TOKEN) {
            QUIRE_TRY(move(queue, copies, &i, error));
        }
    }
    return Status{};
}

}  // namespace quire
