// SPDX-License-Identifier: Apache-2.0

#include "batch.hpp"

#include "slot.hpp"

namespace quire {

namespace {

constexpr uint32_t kAttentionViews =
    QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_SLOTS | QUIRE_VIEW_LENGTHS | QUIRE_VIEW_CU_Q;

// Reserves `count` elements behind what is laid out; every view begins on a cache line.
bool place(uint64_t *end, uint64_t *offset, uint64_t count, uint64_t size_bytes) {
    uint64_t bytes = 0;
    if (!checked_mul(count, size_bytes, &bytes) || bytes >> 48 != 0) return false;
    *offset = *end;
    *end += (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    return true;
}

}  // namespace

Batch::~Batch() {
    for (Shard &shard : shards_) {
        for (quire_be_plan *plan : shard.plans) {
            if (plan == nullptr) continue;
            tell<&quire_backend_api::plan_destroy>(*shard.binding->device()->api, plan);
        }
        for (const ImageMemory &image : shard.images) {
            if (image.bytes == nullptr) continue;
            if (has_memory_) {
                free_memory(*shard.binding->device(), image.address, size_bytes_,
                            QUIRE_BE_MEMORY_HOST);
            } else {
                host_->release(host_->user, image.bytes, size_bytes_, kCacheLine);
            }
        }
        if (has_memory_ && shard.base != 0) {
            free_memory(*shard.binding->device(), shard.base, size_bytes_, QUIRE_BE_MEMORY_DEVICE);
        }
    }
}

Status Batch::lay_out(const quire_batch_desc &desc, const Geometry &geometry) {
    uint32_t views = desc.views | (desc.attention_count != 0 ? kAttentionViews : 0);
    uint64_t end = kCacheLine;  // offset 0 means "not kept"
    bool ok = true;
    auto keep = [&](uint32_t view, uint64_t *offset, uint64_t count, uint64_t size_bytes) {
        if ((views & view) != 0) ok = ok && place(&end, offset, count, size_bytes);
    };
    keep(QUIRE_VIEW_CU_Q, &cu_q_, uint64_t{max_rows_} + 1, 4);
    keep(QUIRE_VIEW_LENGTHS, &lengths_, max_rows_, 4);
    keep(QUIRE_VIEW_POSITIONS, &positions_, max_query_, 4);
    for (uint32_t g = 0; g < group_count_; ++g) {
        GroupOffsets &o = groups_[g];
        keep(QUIRE_VIEW_BLOCK_TABLE, &o.table, uint64_t{max_rows_} * max_blocks_, 4);
        keep(QUIRE_VIEW_CSR, &o.csr_indptr, uint64_t{max_rows_} + 1, 4);
        keep(QUIRE_VIEW_CSR, &o.csr_indices, max_context_blocks_, 4);
        keep(QUIRE_VIEW_CSR, &o.csr_last, max_rows_, 4);
        keep(QUIRE_VIEW_SLOTS, &o.slots, max_query_, 8);
        keep(QUIRE_VIEW_CONTEXT_SLOTS, &o.context_slots, max_context_, 4);
        uint64_t slots = uint64_t{geometry.groups[g].blocks} << block_shift_;
        if (o.context_slots != 0 && slots >> 31 != 0) {
            return fail(QUIRE_E_UNSUPPORTED, "context slots are int32: group {} has {} slots", g,
                        slots);
        }
    }
    if (!ok || end >> 48 != 0) return fail(QUIRE_E_LIMIT, "the batch is larger than 2^48 bytes");
    size_bytes_ = end;
    return Status{};
}

Status Batch::allocate_image(Shard *shard, uint32_t image, quire_error *error) {
    ImageMemory &memory = shard->images[image];
    void *pointer = nullptr;
    if (has_memory_) {
        QUIRE_TRY(allocate_memory(*shard->binding->device(), size_bytes_, QUIRE_BE_MEMORY_HOST,
                                  &memory.address, &pointer, error));
    } else {
        pointer = host_->allocate(host_->user, size_bytes_, kCacheLine);
        if (pointer == nullptr) return no_host_memory();
        std::memset(pointer, 0, size_bytes_);
        shard->base = reinterpret_cast<uint64_t>(pointer);
    }
    memory.bytes = static_cast<uint8_t *>(pointer);
    return Status{};
}

Status Batch::allocate(const Shards *shards, quire_error *error) {
    has_memory_ = shards->count() != 0;
    image_count_ = has_memory_ ? kImages : 1;
    if (!rows_.create(uint64_t{image_count_} * group_count_ * max_rows_)) return no_host_memory();
    if (!shards_.create(has_memory_ ? shards->count() : 1)) return no_host_memory();
    for (uint32_t s = 0; s < shards_.size(); ++s) {
        Shard &shard = shards_[s];
        shard.binding = has_memory_ ? &(*shards)[s] : nullptr;
        shard.uploaded_rows = max_rows_;  // the first upload carries the padding
        shard.uploaded_tokens = max_query_;
        for (uint32_t i = 0; i < image_count_; ++i) QUIRE_TRY(allocate_image(&shard, i, error));
        if (!has_memory_) continue;
        void *pointer = nullptr;
        QUIRE_TRY(allocate_memory(*shard.binding->device(), size_bytes_, QUIRE_BE_MEMORY_DEVICE,
                                  &shard.base, &pointer, error));
    }
    for (uint32_t i = 0; i < image_count_; ++i) images_[i].bytes = shards_[0].images[i].bytes;
    return Status{};
}

Status Batch::make_plans(const quire_batch_desc &desc, const Geometry &geometry,
                         quire_error *error) {
    uint32_t count = desc.attention_count;
    if (count == 0) return Status{};
    if (!has_memory_) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "attention in a cache without memory: set attention_count 0");
    }
    bool a_group = count == group_count_, a_shard = count == group_count_ * shards_.size();
    if (count != 1 && !a_group && !a_shard) {
        return fail(QUIRE_E_ARG,
                    "attention_count is {}: needs 0, 1, one a group, or one a group and shard",
                    count);
    }
    for (uint32_t s = 0; s < shards_.size(); ++s) {
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (!shards_[s].binding->holds(g)) continue;
            uint32_t index = a_group ? g : a_shard ? s * group_count_ + g : 0;
            QUIRE_TRY(make_plan(desc.attention[index], geometry, &shards_[s], g, error));
        }
    }
    return Status{};
}

Status Batch::make_plan(const quire_attention_desc &options, const Geometry &geometry, Shard *shard,
                        uint32_t g, quire_error *error) {
    Device *device = shard->binding->device();
    const quire_be_pool &pool = shard->binding->pool(g);
    if (options.q_heads == 0 || options.q_heads % pool.kv_heads != 0) {
        return fail(QUIRE_E_ARG, "q_heads is {}: needs a multiple of the {} KV heads",
                    options.q_heads, pool.kv_heads);
    }
    shard->q_heads[g] = options.q_heads;
    quire_be_plan_desc plan{};
    plan.struct_size = sizeof plan;
    plan.shape =
        quire_be_attention_query{sizeof plan.shape,
                                 options.flags,
                                 options.q_heads,
                                 pool.kv_heads,
                                 pool.k_head_dim,
                                 pool.v_head_dim,
                                 options.q_dtype != 0 ? options.q_dtype : uint32_t{QUIRE_DTYPE_F32},
                                 pool.k_dtype,
                                 pool.v_dtype,
                                 block_tokens_,
                                 geometry.groups[g].window,
                                 QUIRE_GROUP_FULL,
                                 0,
                                 0,
                                 0,
                                 0};
    plan.scale = options.scale;
    plan.max_rows = max_rows_;
    plan.max_query_tokens = max_query_;
    plan.max_blocks_per_row = max_blocks_;
    quire_be_plan *made = nullptr;
    QUIRE_TRY(
        ask<&quire_backend_api::plan_create>(*device->api, error, device->handle, &plan, &made));
    if (made == nullptr) return slot_lied(*device->api, error, "plan_create gave no plan");
    shard->plans[g] = made;
    return Status{};
}

Status Batch::create(const quire_batch_desc &desc, const Geometry &geometry, const Shards *shards,
                     quire_error *error) {
    group_count_ = geometry.group_count;
    block_tokens_ = geometry.block_tokens;
    block_shift_ = geometry.block_shift;
    max_rows_ = desc.max_rows;
    max_blocks_ = desc.max_blocks_per_row;
    max_query_ = desc.max_query_tokens;
    if (max_rows_ == 0 || max_blocks_ == 0 || max_query_ == 0) {
        return fail(QUIRE_E_ARG, "max_rows, max_blocks_per_row and max_query_tokens must not be 0");
    }
    constexpr uint32_t lists = QUIRE_VIEW_CSR | QUIRE_VIEW_CONTEXT_SLOTS;
    if ((desc.views & lists) != 0 && desc.max_context_tokens == 0) {
        return fail(QUIRE_E_ARG, "max_context_tokens must not be 0 for CSR and context slots");
    }
    max_context_ = desc.max_context_tokens;
    max_context_blocks_ = (max_context_ >> block_shift_) + max_rows_;
    pad_slot_ = (desc.flags & QUIRE_BATCH_PAD_NULL_SLOT) != 0 ? 0 : -1;
    QUIRE_TRY(lay_out(desc, geometry));
    QUIRE_TRY(allocate(shards, error));
    QUIRE_TRY(make_plans(desc, geometry, error));
    for (current_ = 0; current_ < image_count_; ++current_) {
        images_[current_].query_tokens = max_query_;  // pad everything once
        images_[current_].rows = max_rows_;
        begin_write();
        pad();
        images_[current_].rows = images_[current_].query_tokens = 0;
    }
    current_ = 0;
    return Status{};
}

Status Batch::fits(uint32_t rows, uint32_t query_tokens, uint32_t blocks,
                   uint64_t context_tokens) const {
    if (rows > max_rows_) {
        return fail(QUIRE_E_LIMIT, "the step has {} rows, the batch max_rows {}", rows, max_rows_);
    }
    if (query_tokens > max_query_) {
        return fail(QUIRE_E_LIMIT,
                    "the step computes {} tokens, the batch's max_query_tokens is {}", query_tokens,
                    max_query_);
    }
    if (blocks > max_blocks_) {
        return fail(QUIRE_E_LIMIT, "a row has {} blocks, the batch max_blocks_per_row {}", blocks,
                    max_blocks_);
    }
    if (max_context_ != 0 && context_tokens > max_context_) {
        return fail(QUIRE_E_LIMIT,
                    "the contexts hold {} tokens, the batch's max_context_tokens is {}",
                    context_tokens, max_context_);
    }
    return Status{};
}

bool Batch::writable(const Timeline &timeline) const {
    return !has_memory_ || timeline.has_run(images_[(current_ + 1) % image_count_].step);
}

void Batch::begin_write() {
    row_count_ = query_tokens_ = max_length_ = 0;
    context_tokens_ = 0;
    for (uint32_t g = 0; g < group_count_; ++g) {
        csr_blocks_[g] = 0;
        if (groups_[g].csr_indptr != 0) at<int32_t>(groups_[g].csr_indptr)[0] = 0;
    }
    if (cu_q_ != 0) at<int32_t>(cu_q_)[0] = 0;
}

void Batch::write_table(uint32_t group, uint32_t row, uint64_t handle, const BlockTable &table) {
    RowState &state = row_state(group, row);
    uint32_t *ids = at<uint32_t>(groups_[group].table) + uint64_t{row} * max_blocks_;
    bool same = state.handle == handle && state.epoch == table.epoch;
    if (same && state.length == table.length && state.null_front == table.null_front) return;
    uint32_t from = 0;
    if (same && state.length <= table.length) {
        from = state.length;
        for (uint32_t i = state.null_front; i < table.null_front && i < from; ++i)
            ids[i] = kNullBlock;
    }
    if (from < table.length) {
        std::memcpy(ids + from, table.ids.data + from, uint64_t{table.length - from} * 4);
    }
    if (state.length > table.length) {
        std::memset(ids + table.length, 0, uint64_t{state.length - table.length} * 4);
    }
    state = RowState{handle, table.epoch, table.length, table.null_front, 0};
}

void Batch::write_csr(uint32_t group, uint32_t row, uint32_t length, const BlockTable &table) {
    const GroupOffsets &o = groups_[group];
    uint32_t blocks = (length + block_tokens_ - 1) >> block_shift_;
    uint64_t begin = csr_blocks_[group];
    std::memcpy(at<uint32_t>(o.csr_indices) + begin, table.ids.data, uint64_t{blocks} * 4);
    csr_blocks_[group] = begin + blocks;
    at<int32_t>(o.csr_indptr)[row + 1] = static_cast<int32_t>(begin + blocks);
    uint32_t rest = length & (block_tokens_ - 1);
    at<int32_t>(o.csr_last)[row] = static_cast<int32_t>(rest != 0 ? rest : block_tokens_);
}

void Batch::write_slots(uint32_t group, uint32_t first, uint32_t count, const BlockTable &table) {
    int64_t *out = at<int64_t>(groups_[group].slots) + query_tokens_;
    uint32_t mask = block_tokens_ - 1;
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t position = first + i;
        uint64_t block = table.ids.data[position >> block_shift_];
        out[i] = static_cast<int64_t>(block << block_shift_ | (position & mask));
    }
}

void Batch::write_context(uint32_t group, uint32_t length, const BlockTable &table) {
    int32_t *out = at<int32_t>(groups_[group].context_slots) + context_tokens_;
    uint32_t mask = block_tokens_ - 1;
    for (uint32_t position = 0; position < length; ++position) {
        uint32_t block = table.ids.data[position >> block_shift_];
        out[position] = static_cast<int32_t>(block << block_shift_ | (position & mask));
    }
}

void Batch::add_row(uint64_t handle, const Change &change, const BlockTable *tables) {
    uint32_t row = row_count_;
    uint32_t first = change.first_position;
    uint32_t count = change.compute_count;
    uint32_t length = first + count;
    for (uint32_t g = 0; g < group_count_; ++g) {
        const GroupOffsets &o = groups_[g];
        if (o.table != 0) write_table(g, row, handle, tables[g]);
        if (o.csr_indptr != 0) write_csr(g, row, length, tables[g]);
        if (o.slots != 0) write_slots(g, first, count, tables[g]);
        if (o.context_slots != 0) write_context(g, length, tables[g]);
    }
    if (positions_ != 0) {
        int32_t *positions = at<int32_t>(positions_) + query_tokens_;
        for (uint32_t i = 0; i < count; ++i) positions[i] = static_cast<int32_t>(first + i);
    }
    query_tokens_ += count;
    context_tokens_ += length;
    if (length > max_length_) max_length_ = length;
    if (lengths_ != 0) at<int32_t>(lengths_)[row] = static_cast<int32_t>(length);
    if (cu_q_ != 0) at<int32_t>(cu_q_)[row + 1] = static_cast<int32_t>(query_tokens_);
    row_count_ = row + 1;
}

// Padding behind what this step wrote and in front of what is padded already.
void Batch::pad() {
    Image &image = images_[current_];
    for (uint32_t row = row_count_; row < image.rows; ++row) {
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (groups_[g].table != 0) write_table(g, row, 0, BlockTable{});
            if (groups_[g].csr_last != 0) at<int32_t>(groups_[g].csr_last)[row] = 0;
        }
        if (lengths_ != 0) at<int32_t>(lengths_)[row] = 0;
    }
    // What is repeated changes with every step.
    for (uint32_t row = row_count_; row < max_rows_; ++row) {
        if (cu_q_ != 0) at<int32_t>(cu_q_)[row + 1] = static_cast<int32_t>(query_tokens_);
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (groups_[g].csr_indptr == 0) continue;
            at<int32_t>(groups_[g].csr_indptr)[row + 1] = static_cast<int32_t>(csr_blocks_[g]);
        }
    }
    for (uint32_t i = query_tokens_; i < image.query_tokens; ++i) {
        if (positions_ != 0) at<int32_t>(positions_)[i] = 0;
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (groups_[g].slots != 0) at<int64_t>(groups_[g].slots)[i] = pad_slot_;
        }
    }
}

void Batch::end_write(uint64_t step) {
    pad();
    Image &image = images_[current_];
    image.rows = row_count_;
    image.query_tokens = query_tokens_;
    image.step = step;
    last_step_ = step;
}

Status Batch::upload(uint32_t index, Queue *queue, quire_error *error) {
    Shard &shard = shards_[index];
    const ImageMemory &image = shard.images[current_];
    uint32_t rows = row_count_ > shard.uploaded_rows ? row_count_ : shard.uploaded_rows;
    uint32_t tokens = query_tokens_ > shard.uploaded_tokens ? query_tokens_ : shard.uploaded_tokens;
    quire_be_copy copies[3 + 6 * kMaxGroups];
    uint32_t count = 0;
    auto add = [&](uint64_t offset, uint64_t size_bytes) {
        if (offset == 0 || size_bytes == 0) return;
        if (index != 0) {
            std::memcpy(image.bytes + offset, images_[current_].bytes + offset, size_bytes);
        }
        copies[count++] = quire_be_copy{shard.base + offset, image.address + offset, size_bytes,
                                        QUIRE_BE_COPY_H2D, 0};
    };
    add(cu_q_, 4 * (uint64_t{max_rows_} + 1));
    add(lengths_, 4 * uint64_t{rows});
    add(positions_, 4 * uint64_t{tokens});
    for (uint32_t g = 0; g < group_count_; ++g) {
        const GroupOffsets &o = groups_[g];
        add(o.table, 4 * uint64_t{rows} * max_blocks_);
        add(o.csr_indptr, 4 * (uint64_t{max_rows_} + 1));
        add(o.csr_indices, 4 * csr_blocks_[g]);
        add(o.csr_last, 4 * uint64_t{rows});
        add(o.slots, 8 * uint64_t{tokens});
        add(o.context_slots, 4 * context_tokens_);
    }
    QUIRE_TRY(ask<&quire_backend_api::copy>(*queue->device->api, error, queue->handle,
                                            static_cast<const quire_be_copy *>(copies), count));
    shard.uploaded_rows = row_count_;
    shard.uploaded_tokens = query_tokens_;
    return Status{};
}

Status Batch::views(uint32_t group, uint32_t shard, quire_batch_views *out) const {
    if (group >= group_count_) {
        return fail(QUIRE_E_ARG, "group is {}: the cache has {}", group, group_count_);
    }
    const GroupOffsets &o = groups_[group];
    out->block_table = address(shard, o.table);
    out->csr_indptr = address(shard, o.csr_indptr);
    out->csr_indices = address(shard, o.csr_indices);
    out->csr_last_page_len = address(shard, o.csr_last);
    out->slots = address(shard, o.slots);
    out->context_slots = address(shard, o.context_slots);
    out->lengths = address(shard, lengths_);
    out->positions = address(shard, positions_);
    out->cu_q = address(shard, cu_q_);
    out->block_table_stride = max_blocks_;
    out->row_count = row_count_;
    out->query_tokens = query_tokens_;
    out->max_length = max_length_;
    return Status{};
}

void Batch::fill_kv_write(uint32_t shard, uint32_t group, quire_be_kv_write *args) const {
    args->pool = &shards_[shard].binding->pool(group);
    args->slots = address(shard, groups_[group].slots);
    args->token_count = query_tokens_;
}

void Batch::fill_attention(uint32_t shard, uint32_t group, quire_be_attention *args) const {
    args->pool = &shards_[shard].binding->pool(group);
    args->block_table = address(shard, groups_[group].table);
    args->lengths = address(shard, lengths_);
    args->cu_q = address(shard, cu_q_);
    args->block_table_stride = max_blocks_;
    args->row_count = row_count_;
    args->query_tokens = query_tokens_;
    args->max_length = max_length_;
}

}  // namespace quire
