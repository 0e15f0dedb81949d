// SPDX-License-Identifier: Apache-2.0

#include "core/device/batch.hpp"

#include <atomic>

#include "core/device/attention_plan.hpp"
#include "core/device/backend_call.hpp"

namespace quire {

namespace {

constexpr uint32_t kAttentionViews =
    QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_SLOTS | QUIRE_VIEW_LENGTHS | QUIRE_VIEW_CU_Q;

// Reserves `count` elements after what is laid out so far; every view begins on a cache line.
bool allot(uint64_t *end, uint64_t *offset, uint64_t count, uint64_t size_bytes) {
    uint64_t bytes = 0;
    if (!checked_mul(count, size_bytes, &bytes) || bytes >> 48 != 0) return false;
    *offset = *end;
    *end += (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    return true;
}

}  // namespace

Batch::~Batch() { release(); }

void Batch::invalidate() {
    stale_ = true;
    is_open_ = false;
    release();
}

void Batch::release() {
    for (Shard &shard : shards_) {
        for (quire_be_plan *plan : shard.attention_plans) {
            if (plan == nullptr) continue;
            call_void<&quire_backend_api::plan_destroy>(*shard.binding->device()->api, plan);
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
    shards_.clear();
}

void Batch::add_memory(DeviceMemory *sum) const {
    for (const Shard &shard : shards_) {
        if (!has_memory_) continue;
        if (shard.base != 0) sum->device_bytes += size_bytes_;
        for (const ImageMemory &image : shard.images) {
            if (image.bytes != nullptr) sum->host_bytes += size_bytes_;
        }
    }
}

Status Batch::lay_out(const quire_batch_desc &desc, const Geometry &geometry) {
    uint32_t views = desc.views | (desc.attention_count != 0 ? kAttentionViews : 0);
    if (max_mask_words_ != 0) views |= QUIRE_VIEW_MASK | QUIRE_VIEW_POSITIONS;
    if ((flags_ & QUIRE_BATCH_SHARED_PREFIX) != 0) views |= QUIRE_VIEW_SHARED_PREFIX;
    // Rows' common blocks are found by comparing their tables.
    if ((views & QUIRE_VIEW_SHARED_PREFIX) != 0) {
        views |= QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_LENGTHS;
    }
    for (uint32_t i = 0; i < desc.attention_count; ++i) {
        if (desc.attention[i].rope != nullptr) views |= QUIRE_VIEW_POSITIONS;
    }
    uint64_t end = kCacheLine;  // offset 0 means "not kept"
    bool ok = true;
    auto keep = [&](uint32_t view, uint64_t *offset, uint64_t count, uint64_t size_bytes) {
        if ((views & view) != 0) ok = ok && allot(&end, offset, count, size_bytes);
    };
    keep(QUIRE_VIEW_CU_Q, &cu_q_, uint64_t{max_rows_} + 1, 4);
    keep(QUIRE_VIEW_LENGTHS, &lengths_, max_rows_, 4);
    keep(QUIRE_VIEW_POSITIONS, &positions_, max_query_, 4);
    keep(QUIRE_VIEW_MASK, &mask_, max_mask_words_, 4);
    keep(QUIRE_VIEW_MASK, &mask_rows_, max_query_, 4);
    keep(QUIRE_VIEW_MASK, &mask_first_, max_rows_, 4);
    for (uint32_t g = 0; g < group_count_; ++g) {
        GroupOffsets &o = groups_[g];
        keep(QUIRE_VIEW_BLOCK_TABLE, &o.table, uint64_t{max_rows_} * max_blocks_, 4);
        keep(QUIRE_VIEW_CSR, &o.csr_indptr, uint64_t{max_rows_} + 1, 4);
        keep(QUIRE_VIEW_CSR, &o.csr_indices, max_context_blocks_, 4);
        keep(QUIRE_VIEW_CSR, &o.csr_last, max_rows_, 4);
        keep(QUIRE_VIEW_SLOTS, &o.slots, cross_[g] ? max_cross_ : max_query_, 8);
        keep(QUIRE_VIEW_CONTEXT_SLOTS, &o.context_slots, max_context_, 4);
        keep(QUIRE_VIEW_SHARED_PREFIX, &o.shared, max_rows_, 4);
        o.lengths = lengths_;
        if (cross_[g]) keep(QUIRE_VIEW_LENGTHS, &o.lengths, max_rows_, 4);
        uint64_t slots = uint64_t{geometry.groups[g].blocks} * sizes_[g].tokens();
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
        shard.uploaded_cross = max_cross_;
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
                    "attention needs a cache with memory: set attention_count to 0");
    }
    bool a_group = count == group_count_, a_shard = count == group_count_ * shards_.size();
    if (count != 1 && !a_group && !a_shard) {
        return fail(
            QUIRE_E_ARG,
            "attention_count is {}: must be 0, 1, one per group, or one per group and shard",
            count);
    }
    for (uint32_t s = 0; s < shards_.size(); ++s) {
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (!shards_[s].binding->holds(g)) continue;
            uint32_t index = a_group ? g : a_shard ? s * group_count_ + g : 0;
            const quire_attention_desc &options = desc.attention[index];
            QUIRE_TRY(check_attention(options, index, geometry.groups[g]));
            if (count != 1) QUIRE_TRY(check_of_cross(options, index, geometry.groups[g]));
            QUIRE_TRY(make_plan(options, geometry, &shards_[s], g, error));
        }
    }
    return Status{};
}

Status Batch::check_attention(const quire_attention_desc &options, uint32_t index,
                              const GroupGeometry &group) const {
    if (group.kind == QUIRE_GROUP_LATENT && options.scale == 0) {
        return fail(QUIRE_E_ARG,
                    "attention[{}].scale is 0: a latent group needs a scale, because its query "
                    "heads had another dim before absorption",
                    index);
    }
    bool masks = (options.flags & QUIRE_ATTENTION_MASK) != 0;
    if (!group.cross && masks != (max_mask_words_ != 0)) {
        return fail(QUIRE_E_ARG,
                    "max_mask_words is {}, which does not match QUIRE_ATTENTION_MASK in "
                    "attention[{}]: use masks in all groups or in none",
                    max_mask_words_, index);
    }
    return Status{};
}

// A description for all groups is about the sequence's own tokens, so a cross group leaves out what
// does not apply to it. A description for the cross group alone must not ask for such things.
Status Batch::check_of_cross(const quire_attention_desc &options, uint32_t index,
                             const GroupGeometry &group) const {
    if (!group.cross) return Status{};
    if (options.rope != nullptr) {
        return fail(QUIRE_E_ARG, "attention[{}].rope: rows of a cross group have no position",
                    index);
    }
    if ((options.flags & QUIRE_ATTENTION_MASK) != 0) {
        return fail(QUIRE_E_ARG,
                    "attention[{}].flags: QUIRE_ATTENTION_MASK applies to a sequence's own tokens, "
                    "not to a cross group",
                    index);
    }
    return Status{};
}

Status Batch::make_plan(const quire_attention_desc &options, const Geometry &geometry, Shard *shard,
                        uint32_t g, quire_error *error) {
    const Device &device = *shard->binding->device();
    uint32_t kv_heads = shard->binding->pool(g).kv_heads;
    if (options.q_heads == 0 || options.q_heads % kv_heads != 0) {
        return fail(QUIRE_E_ARG, "q_heads is {}: must be a multiple of the {} KV heads",
                    options.q_heads, kv_heads);
    }
    AttentionPlan plan(host_);
    QUIRE_TRY(plan.describe(options, geometry.groups[g], kv_heads, sizes_[g].tokens()));
    plan.desc.max_rows = max_rows_;
    plan.desc.max_query_tokens = max_query_;
    plan.desc.max_blocks_per_row = max_blocks_;
    quire_be_plan *made = nullptr;
    QUIRE_TRY(call<&quire_backend_api::plan_create>(
        *device.api, error, device.handle, static_cast<const quire_be_plan_desc *>(&plan.desc),
        &made));
    if (made == nullptr) return function_lied(*device.api, error, "plan_create returned no plan");
    shard->attention_plans[g] = made;
    shard->q_heads[g] = options.q_heads;
    shard->has_rope[g] = plan.desc.rope != nullptr;
    shard->has_sinks[g] = (plan.desc.shape.flags & QUIRE_ATTENTION_SINK_LOGITS) != 0;
    return Status{};
}

Status Batch::create(const quire_batch_desc &desc, const Geometry &geometry, const Shards *shards,
                     quire_error *error) {
    group_count_ = geometry.group_count;
    max_rows_ = desc.max_rows;
    max_blocks_ = desc.max_blocks_per_row;
    max_query_ = desc.max_query_tokens;
    max_mask_words_ = desc.max_mask_words;
    max_cross_ = desc.max_cross_tokens;
    flags_ = desc.flags;
    for (uint32_t g = 0; g < group_count_; ++g) {
        cross_[g] = geometry.groups[g].cross;
        kept_blocks_[g] = geometry.groups[g].kept_blocks;
        sizes_[g] = geometry.groups[g].size;
    }
    if (max_rows_ == 0 || max_blocks_ == 0 || max_query_ == 0) {
        return fail(QUIRE_E_ARG, "max_rows, max_blocks_per_row and max_query_tokens must not be 0");
    }
    if (max_mask_words_ > uint32_t{INT32_MAX}) {
        return fail(QUIRE_E_LIMIT,
                    "max_mask_words is {}: at most 2^31-1, because rows index mask words by int32",
                    max_mask_words_);
    }
    constexpr uint32_t lists = QUIRE_VIEW_CSR | QUIRE_VIEW_CONTEXT_SLOTS;
    if ((desc.views & lists) != 0 && desc.max_context_tokens == 0) {
        return fail(QUIRE_E_ARG, "max_context_tokens must not be 0 for CSR and context slots");
    }
    max_context_ = desc.max_context_tokens;
    max_context_blocks_ = max_context_ / geometry.block_tokens + max_rows_;
    pad_slot_ = (desc.flags & QUIRE_BATCH_PAD_NULL_SLOT) != 0 ? 0 : -1;
    QUIRE_TRY(lay_out(desc, geometry));
    QUIRE_TRY(allocate(shards, error));
    QUIRE_TRY(make_plans(desc, geometry, error));
    for (current_ = 0; current_ < image_count_; ++current_) {
        Image &image = images_[current_];
        image.query_tokens = max_query_;  // pad everything once
        image.cross_tokens = max_cross_;
        image.rows = max_rows_;
        begin_write();
        pad();
        image.rows = image.query_tokens = image.cross_tokens = 0;
    }
    current_ = 0;
    return Status{};
}

Status Batch::fits(const BatchNeed &need) const {
    if (need.rows > max_rows_) {
        return fail(QUIRE_E_LIMIT, "the step has {} rows, the batch's max_rows is {}", need.rows,
                    max_rows_);
    }
    if (need.query_tokens > max_query_) {
        return fail(QUIRE_E_LIMIT,
                    "the step computes {} tokens, the batch's max_query_tokens is {}",
                    need.query_tokens, max_query_);
    }
    if (need.longest_table > max_blocks_) {
        return fail(QUIRE_E_LIMIT, "a row has {} blocks, the batch's max_blocks_per_row is {}",
                    need.longest_table, max_blocks_);
    }
    uint64_t context = need.context_tokens > need.cross_context_tokens ? need.context_tokens
                                                                       : need.cross_context_tokens;
    if (max_context_ != 0 && context > max_context_) {
        return fail(QUIRE_E_LIMIT,
                    "the contexts hold {} tokens, the batch's max_context_tokens is {}", context,
                    max_context_);
    }
    if (need.cross_tokens > max_cross_) {
        return fail(QUIRE_E_LIMIT,
                    "the step writes {} cross tokens, the batch's max_cross_tokens is {}",
                    need.cross_tokens, max_cross_);
    }
    if (need.mask_words > max_mask_words_) {
        return fail(QUIRE_E_LIMIT,
                    "the step's masks have {} words, the batch's max_mask_words is {}",
                    need.mask_words, max_mask_words_);
    }
    return Status{};
}

Status Batch::check_writable(const Timeline &timeline, uint64_t queue) const {
    if (!has_memory_) return Status{};
    if (!timeline.has_run(images_[(current_ + 1) % image_count_].step)) {
        return fail(QUIRE_E_BUSY,
                    "{} earlier steps of this batch are still running: use another batch or wait",
                    image_count_);
    }
    // Every image is uploaded to the same place, so only one queue's order keeps the steps apart.
    if (!timeline.has_run(last_step_) && timeline.queue_of(last_step_) != queue) {
        return fail(
            QUIRE_E_BUSY,
            "the batch's last step is still running on other queues: use another batch or wait");
    }
    return Status{};
}

Status Batch::upload(uint32_t index, Queue *queue, quire_error *error) {
    Shard &shard = shards_[index];
    const ImageMemory &image = shard.images[current_];
    uint32_t rows = row_count_ > shard.uploaded_rows ? row_count_ : shard.uploaded_rows;
    uint32_t tokens = query_tokens_ > shard.uploaded_tokens ? query_tokens_ : shard.uploaded_tokens;
    uint32_t cross = cross_tokens_ > shard.uploaded_cross ? cross_tokens_ : shard.uploaded_cross;
    quire_be_copy copies[6 + 8 * kMaxGroups];
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
    add(mask_, 4 * uint64_t{mask_words_});
    add(mask_rows_, 4 * uint64_t{tokens});
    add(mask_first_, 4 * uint64_t{rows});
    for (uint32_t g = 0; g < group_count_; ++g) {
        const GroupOffsets &o = groups_[g];
        add(o.table, 4 * uint64_t{rows} * max_blocks_);
        add(o.csr_indptr, 4 * (uint64_t{max_rows_} + 1));
        add(o.csr_indices, 4 * csr_blocks_[g]);
        add(o.csr_last, 4 * uint64_t{rows});
        add(o.slots, 8 * uint64_t{cross_[g] ? cross : tokens});
        add(o.context_slots, 4 * context_tokens_[g]);
        add(o.shared, 4 * uint64_t{rows});
        if (cross_[g]) add(o.lengths, 4 * uint64_t{rows});
    }
    QUIRE_TRY(call<&quire_backend_api::copy>(*queue->device->api, error, queue->handle,
                                             static_cast<const quire_be_copy *>(copies), count));
    shard.uploaded_rows = row_count_;
    shard.uploaded_tokens = query_tokens_;
    shard.uploaded_cross = cross_tokens_;
    static std::atomic<uint64_t> uploads{0};
    shard.rows_id = uploads.fetch_add(1, std::memory_order_relaxed) + 1;
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
    out->lengths = address(shard, o.lengths);
    out->positions = address(shard, positions_);
    out->cu_q = address(shard, cu_q_);
    out->block_table_stride = max_blocks_;
    out->row_count = row_count_;
    out->query_tokens = query_tokens_;
    out->max_length = max_length(group);
    out->mask = address(shard, mask_);
    out->mask_rows = address(shard, mask_rows_);
    out->mask_first = address(shard, mask_first_);
    out->shared_prefix = address(shard, o.shared);
    out->write_tokens = cross_[group] ? cross_tokens_ : query_tokens_;
    return Status{};
}

void Batch::fill_kv_write(uint32_t shard, uint32_t group, quire_be_kv_write *args) const {
    args->pool = &shards_[shard].binding->pool(group);
    args->slots = address(shard, groups_[group].slots);
    const Shard &part = shards_[shard];
    args->token_count = cross_[group] ? cross_tokens_ : query_tokens_;
    args->positions = cross_[group] ? 0 : address(shard, positions_);
    args->plan = part.has_rope[group] ? part.attention_plans[group] : nullptr;
}

void Batch::fill_attention(uint32_t shard, uint32_t group, quire_be_attention *args) const {
    args->pool = &shards_[shard].binding->pool(group);
    args->block_table = address(shard, groups_[group].table);
    args->lengths = address(shard, groups_[group].lengths);
    args->cu_q = address(shard, cu_q_);
    args->block_table_stride = max_blocks_;
    args->row_count = row_count_;
    args->query_tokens = query_tokens_;
    args->max_length = max_length(group);
    args->shared_prefix = address(shard, groups_[group].shared);
    args->rows_id = shards_[shard].rows_id;
    if (cross_[group] || mask_rows_ == 0) return;
    args->positions = address(shard, positions_);
    args->mask = mask_words_ != 0 ? address(shard, mask_) : 0;
    args->mask_rows = address(shard, mask_rows_);
    args->mask_first = address(shard, mask_first_);
}

}  // namespace quire
