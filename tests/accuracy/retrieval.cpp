// SPDX-License-Identifier: Apache-2.0

#include "retrieval.hpp"

#include <algorithm>

namespace quire::test {

Retrieval::Retrieval(const Haystack &haystack, const Format &format) : haystack_(haystack) {
    error_.struct_size = sizeof error_;
    auto instance_desc = described<quire_instance_desc>();
    must(api_.instance_create(&instance_desc, &instance_, &error_));
    auto device_desc = described<quire_device_desc>();
    device_desc.backend = "cpu";
    must(api_.device_open(instance_, &device_desc, &device_, &error_));
    must(api_.queue_create(device_, nullptr, &queue_, &error_));
    create_cache(format);
    create_batch();
    for (Array &array : arrays_) array = make_array();
    auto desc = described<quire_seq_desc>();
    must(api_.seq_create(cache_, &desc, &text_, &error_));
}

Retrieval::~Retrieval() {
    must(api_.queue_sync(queue_, &error_));
    must(api_.cache_check(cache_, &error_));
    must(api_.batch_destroy(batch_, &error_));
    must(api_.cache_destroy(cache_, &error_));
    for (Array &array : arrays_) must(api_.memory_destroy(array.memory, &error_));
    must(api_.queue_destroy(queue_, &error_));
    must(api_.device_close(device_, &error_));
    must(api_.instance_destroy(instance_, &error_));
}

Retrieval::Array Retrieval::make_array() {
    auto desc = described<quire_memory_desc>();
    desc.kind = QUIRE_MEMORY_HOST;
    desc.size_bytes = uint64_t{kChunk} * kQHeads * haystack_.shape().head_dim * sizeof(float);
    Array array;
    must(api_.memory_create(device_, &desc, &array.memory, &error_));
    auto info = described<quire_memory_info>();
    must(api_.memory_get_info(array.memory, &info, &error_));
    array.address = info.address;
    array.values = static_cast<float *>(info.host_pointer);
    return array;
}

void Retrieval::create_cache(const Format &format) {
    const HaystackShape &shape = haystack_.shape();
    auto group = described<quire_group_desc>();
    group.layer_count = 1;
    group.kv_heads = kKvHeads;
    group.k_head_dim = group.v_head_dim = shape.head_dim;
    group.k_dtype = format.dtype;
    group.k_scale = format.scale;
    auto shard = described<quire_shard_desc>();
    shard.device = device_;
    auto desc = described<quire_cache_desc>();
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.shards = &shard;
    desc.shard_count = 1;
    desc.shard_stride = sizeof shard;
    // The text, a copy of its last block for each fork, and the null block.
    desc.blocks = shape.positions / shape.block_tokens + kNeedles + 1;
    desc.block_tokens = shape.block_tokens;
    must(api_.cache_create(instance_, &desc, &cache_, &error_));
}

void Retrieval::create_batch() {
    auto attention = described<quire_attention_desc>();
    attention.q_heads = kQHeads;
    attention.scale = 1.0f;  // the queries' own length is the sharpness
    auto desc = described<quire_batch_desc>();
    desc.max_rows = kNeedles;
    desc.max_blocks_per_row = haystack_.shape().positions / haystack_.shape().block_tokens;
    desc.max_query_tokens = kChunk;
    desc.views = QUIRE_VIEW_BLOCK_TABLE;
    desc.attention = &attention;
    desc.attention_count = 1;
    desc.attention_stride = sizeof attention;
    must(api_.batch_create(cache_, &desc, &batch_, &error_));
}

// Opens and commits a step of the items and computes all their tokens.
quire_step Retrieval::begin(const std::vector<quire_step_item> &items,
                            const std::vector<uint32_t> &words) {
    auto desc = described<quire_step_desc>();
    desc.queues = &queue_;
    desc.queue_count = 1;
    std::vector<quire_step_result> results(items.size());
    quire_step step = 0;
    must(api_.step_begin(cache_, &desc, items.data(), static_cast<uint32_t>(items.size()),
                         sizeof items[0], words.data(), static_cast<uint32_t>(words.size()),
                         results.data(), sizeof results[0], &step, &error_));
    for (size_t i = 0; i < items.size(); ++i) {
        EXPECT_EQ(results[i].outcome, uint32_t{QUIRE_ITEM_RUN});
        EXPECT_EQ(results[i].compute_count, items[i].token_count);
    }
    must(api_.step_commit(cache_, step, batch_, &error_));
    return step;
}

void Retrieval::write() {
    auto kv = described<quire_kv_args>();
    kv.k = arrays_[kK].address;
    kv.v = arrays_[kV].address;
    must(api_.kv_write(batch_, &kv, queue_, &error_));
}

void Retrieval::finish(quire_step step) {
    must(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_));
    must(api_.queue_sync(queue_, &error_));
}

void Retrieval::attend() {
    auto attend = described<quire_attend_args>();
    attend.q = arrays_[kQ].address;
    attend.out = arrays_[kOut].address;
    must(api_.attend(batch_, &attend, queue_, &error_));
}

void Retrieval::read(bool with_values) {
    const std::vector<uint32_t> &words = haystack_.words();
    size_t row = size_t{kKvHeads} * haystack_.shape().head_dim;
    for (uint32_t first = 0; first < words.size(); first += kChunk) {
        uint32_t count = std::min(kChunk, static_cast<uint32_t>(words.size()) - first);
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t p = first + i;
            // The first word has no predecessor; no query asks for the one used here.
            haystack_.put_k(words[p == 0 ? words.size() - 1 : p - 1], p,
                            arrays_[kK].values + i * row);
            haystack_.put_v(words[p], p, arrays_[kV].values + i * row);
        }
        if (!with_values) std::fill_n(arrays_[kV].values, count * row, 0.0f);
        quire_step_item item{};
        item.seq = text_;
        item.token_count = count;
        quire_step step = begin({item}, {words.begin() + first, words.begin() + first + count});
        write();
        finish(step);
    }
}

std::vector<std::optional<uint32_t>> Retrieval::ask(Marker marker, const Spoil &spoil) {
    uint32_t dim = haystack_.shape().head_dim;
    auto length = static_cast<uint32_t>(haystack_.words().size());
    std::vector<quire_step_item> items(kNeedles);
    std::vector<uint32_t> words(kNeedles);
    for (uint32_t row = 0; row < kNeedles; ++row) {
        must(api_.seq_fork(cache_, text_, length, &items[row].seq, &error_));
        items[row].token_offset = row;
        items[row].token_count = 1;
        words[row] = marker(row);
        size_t at = size_t{row} * kKvHeads * dim;
        haystack_.put_k(haystack_.words().back(), length, arrays_[kK].values + at);
        haystack_.put_v(words[row], length, arrays_[kV].values + at);
        for (uint32_t head = 0; head < kQHeads; ++head) {
            haystack_.put_q(marker(needle_of(row, head)), head / (kQHeads / kKvHeads),
                            arrays_[kQ].values + (row * kQHeads + head) * dim);
        }
    }
    quire_step step = begin(items, words);
    write();
    if (spoil) {
        must(api_.queue_sync(queue_, &error_));  // the queue writes the table
        auto views = described<quire_batch_views>();
        must(api_.batch_get_views(batch_, 0, 0, &views, &error_));
        spoil(reinterpret_cast<int32_t *>(views.block_table));
    }
    attend();
    finish(step);
    std::vector<std::optional<uint32_t>> answers;
    for (uint32_t i = 0; i < kNeedles * kQHeads; ++i) {
        uint32_t kv_head = i % kQHeads / (kQHeads / kKvHeads);
        answers.push_back(haystack_.nearest(arrays_[kOut].values + i * dim, kv_head));
    }
    for (const quire_step_item &item : items) {
        must(api_.seq_end(cache_, item.seq, QUIRE_END_DROP_PREFIX, &error_));
    }
    return answers;
}

float &Retrieval::scale(uint32_t position, uint32_t kv_head, bool is_v) {
    uint32_t block_tokens = haystack_.shape().block_tokens;
    std::vector<int32_t> blocks(haystack_.shape().positions / block_tokens);
    uint32_t count = 0;
    must(api_.step_blocks(cache_, 0, text_, 0, 0, blocks.data(),
                          static_cast<uint32_t>(blocks.size()), &count, &error_));
    auto pool = described<quire_pool_info>();
    must(api_.cache_get_pool(cache_, 0, 0, &pool, &error_));
    int64_t offset = blocks[position / block_tokens] * pool.block_stride +
                     (is_v ? pool.v_scale_offset : pool.k_scale_offset) +
                     kv_head * pool.scale_head_stride +
                     position % block_tokens * int64_t{sizeof(float)};
    return *reinterpret_cast<float *>(pool.address + static_cast<uint64_t>(offset));
}

}  // namespace quire::test
