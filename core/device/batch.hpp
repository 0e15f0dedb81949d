// SPDX-License-Identifier: Apache-2.0
//
// batch: memory with fixed addresses that holds a step's tables: block tables, CSR, slots, lengths.
//
// A step is written into a host image. Without a device the engine reads the image itself. With one
// the image is uploaded on the step's queue, and there are several images, so that a step can be
// written while an earlier step's upload still waits on its queue. With several shards each shard
// has images of its own, in memory that its device reaches: the library writes those of the first
// shard, and copies what is uploaded into the others'.
//
// Each image remembers what its rows hold. A decoding sequence that stays in the same row costs
// only the new part of its table, not its whole length.
//
// Threads: written under the cache's lock; launches on a committed batch read it without the lock.
#pragma once

#include <atomic>

#include "core/device/mask.hpp"
#include "core/device/shards.hpp"
#include "quire/batch.h"

namespace quire {

// One item's part of what a step writes.
struct BatchRow {
    uint64_t handle;
    uint32_t first_position;  // of the tokens to compute
    uint32_t compute_count;
    uint32_t cross_length;   // rows of the sequence in cross groups
    uint32_t cross_written;  // of them, written in this step: all or none
    MaskView mask;           // of the last mask.rows tokens
};

// A step's need of a batch, over all its rows or for the longest one.
struct BatchNeed {
    uint32_t rows = 0;
    uint32_t longest_table = 0;
    uint64_t query_tokens = 0;
    uint64_t context_tokens = 0;
    uint64_t cross_context_tokens = 0;
    uint64_t cross_tokens = 0;
    uint64_t mask_words = 0;
};

class Batch {
 public:
    static constexpr uint32_t kImages = 4;

    explicit Batch(const HostAllocator *host) : host_(host), shards_(host), rows_(host) {}
    ~Batch();

    // desc.attention: one entry for all groups, one per group, or [shard][group].
    Status create(const quire_batch_desc &desc, const Geometry &geometry, const Shards *shards,
                  quire_error *error);

    // The cache left the devices that hold this batch: gives back their memory and makes the batch
    // unusable. Launches check for this without the cache's lock.
    void invalidate();
    bool stale() const { return stale_; }
    Status check_fresh() const {
        if (!stale_) [[likely]]
            return Status{};
        return fail(QUIRE_E_STALE, "the cache was migrated: destroy the batch and make a new one");
    }
    Batch *next = nullptr;  // of the cache's batches
    void add_memory(DeviceMemory *sum) const;

    Status fits(const BatchNeed &need) const;
    // OK if an image may be written for a step on the queue; BUSY while earlier steps need theirs.
    Status check_writable(const Timeline &timeline, uint64_t queue) const;

    // Moves on to the next image. REQUIRES: check_writable().
    void turn() { current_ = (current_ + 1) % image_count_; }
    // Rows are added in item order, between begin_write and end_write.
    void begin_write();
    void add_row(const BatchRow &row, const BlockTable *tables);
    void end_write(uint64_t step);
    // REQUIRES: the queue's mutex is held.
    Status upload(uint32_t shard, Queue *queue, quire_error *error);

    // REQUIRES: shard is one of the cache's, or 0.
    Status views(uint32_t group, uint32_t shard, quire_batch_views *out) const;
    uint64_t last_step() const { return last_step_; }
    // The step is over: nothing may be launched on it. A later step in the batch stays as it is.
    void end(uint64_t step) {
        if (step == last_step_) is_open_ = false;
    }

    // For launches on a shard. REQUIRES: the shard holds layers of the group.
    bool committed() const { return is_open_ && row_count_ != 0; }
    quire_be_plan *attention_plan(uint32_t shard, uint32_t group) const {
        return shards_[shard].attention_plans[group];
    }
    uint32_t q_heads(uint32_t shard, uint32_t group) const { return shards_[shard].q_heads[group]; }
    bool has_rope(uint32_t shard, uint32_t group) const { return shards_[shard].has_rope[group]; }
    bool has_sinks(uint32_t shard, uint32_t group) const { return shards_[shard].has_sinks[group]; }
    void fill_kv_write(uint32_t shard, uint32_t group, quire_be_kv_write *args) const;
    void fill_attention(uint32_t shard, uint32_t group, quire_be_attention *args) const;
    uint32_t query_tokens() const { return query_tokens_; }

 private:
    // Byte offsets into an image; 0 = the view is not kept (the image begins with a spare line).
    struct GroupOffsets {
        uint64_t table, csr_indptr, csr_indices, csr_last, slots, context_slots, shared;
        uint64_t lengths;  // a cross group's own, else those that all groups share
    };
    struct Image {
        uint8_t *bytes = nullptr;  // the first shard's
        uint32_t rows = 0;         // written in the image
        uint32_t query_tokens = 0;
        uint32_t cross_tokens = 0;
        uint64_t step = 0;  // the step whose upload reads it
    };
    struct ImageMemory {
        uint8_t *bytes;
        uint64_t address;  // of `bytes`, as the backend addresses it
    };
    // A batch's part on one device. Without a device there is one, whose memory is an image's.
    struct Shard {
        const Binding *binding;
        uint64_t base;  // address of the memory that views point into
        ImageMemory images[kImages];
        quire_be_plan *attention_plans[kMaxGroups];
        uint32_t q_heads[kMaxGroups];
        bool has_rope[kMaxGroups];
        bool has_sinks[kMaxGroups];
        uint32_t uploaded_rows;
        uint32_t uploaded_tokens;
        uint32_t uploaded_cross;
        uint64_t rows_id;  // of the last upload; of no other batch's
    };
    // The content of a row of an image's block table.
    struct RowState {
        uint64_t handle;
        uint64_t epoch;
        uint32_t length;
        uint32_t null_front;
    };

    void release();
    Status lay_out(const quire_batch_desc &desc, const Geometry &geometry);
    Status allocate(const Shards *shards, quire_error *error);
    Status allocate_image(Shard *shard, uint32_t image, quire_error *error);
    Status check_attention(const quire_attention_desc &options, uint32_t index,
                           const GroupGeometry &group) const;
    Status check_of_cross(const quire_attention_desc &options, uint32_t index,
                          const GroupGeometry &group) const;
    Status make_plans(const quire_batch_desc &desc, const Geometry &geometry, quire_error *error);
    Status make_plan(const quire_attention_desc &options, const Geometry &geometry, Shard *shard,
                     uint32_t group, quire_error *error);
    void write_table(uint32_t group, uint32_t row, uint64_t handle, const BlockTable &table);
    void write_csr(uint32_t group, uint32_t row, uint32_t length, const BlockTable &table);
    void write_slots(uint32_t group, uint32_t at_slot, uint32_t first, uint32_t count,
                     const BlockTable &table);
    void write_context(uint32_t group, uint32_t length, const BlockTable &table);
    void write_shared(uint32_t group, uint32_t row, uint32_t length);
    void write_positions(const BatchRow &row);
    void write_mask(uint32_t row, const BatchRow &item);
    void pad();
    template <typename T>
    T *at(uint64_t offset) {
        return reinterpret_cast<T *>(images_[current_].bytes + offset);
    }
    RowState &row_state(uint32_t group, uint32_t row) {
        return rows_[(uint64_t{current_} * group_count_ + group) * max_rows_ + row];
    }
    // True if the row shows this table already: in most steps a decoded sequence's has not changed.
    static bool shows(const RowState &state, uint64_t handle, const BlockTable &table) {
        return state.handle == handle && state.epoch == table.epoch &&
               state.length == table.length && state.null_front == table.null_front;
    }
    // The longest of the rows that were written, in the group.
    uint32_t max_length(uint32_t group) const {
        return cross_[group] ? max_cross_length_ : max_length_;
    }
    uint64_t address(uint32_t shard, uint64_t offset) const {
        return offset != 0 ? shards_[shard].base + offset : 0;
    }

    const HostAllocator *host_;
    bool has_memory_ = false;
    Array<Shard> shards_;
    uint32_t group_count_ = 0;
    BlockSize sizes_[kMaxGroups];
    uint32_t max_rows_ = 0;
    uint32_t max_blocks_ = 0;
    uint32_t max_query_ = 0;
    uint64_t max_context_ = 0;
    uint64_t max_context_blocks_ = 0;
    int64_t pad_slot_ = -1;
    uint64_t cu_q_ = 0, lengths_ = 0, positions_ = 0;  // offsets shared by all groups
    uint64_t mask_ = 0, mask_rows_ = 0, mask_first_ = 0;
    uint32_t max_mask_words_ = 0;
    uint32_t max_cross_ = 0;
    uint32_t flags_ = 0;
    bool cross_[kMaxGroups] = {};
    uint32_t kept_blocks_[kMaxGroups] = {};
    GroupOffsets groups_[kMaxGroups] = {};
    uint64_t size_bytes_ = 0;
    uint32_t image_count_ = 0;
    uint32_t current_ = 0;
    Image images_[kImages];
    Array<RowState> rows_;                  // [image][group][row]
    uint64_t csr_blocks_[kMaxGroups] = {};  // written so far
    uint64_t context_tokens_[kMaxGroups] = {};
    uint32_t cross_tokens_ = 0;
    uint32_t mask_words_ = 0;
    uint32_t row_count_ = 0;
    uint32_t query_tokens_ = 0;
    uint32_t max_length_ = 0;
    uint32_t max_cross_length_ = 0;
    uint64_t last_step_ = 0;
    std::atomic<bool> stale_{false};
    std::atomic<bool> is_open_{false};  // last_step_ is committed and not over
};

}  // namespace quire
