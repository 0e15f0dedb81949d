// SPDX-License-Identifier: Apache-2.0

#include "arguments.hpp"

#include "answers.hpp"

namespace quire::fuzz {

Arguments::Arguments(Bytes *input, const std::string &plugin)
    : api(library()), instance(new_instance()), input_(*input), live_before_(live_objects()) {
    uint32_t index = 0;
    require(api.backend_load(instance, plugin.c_str(), &index, error()) == QUIRE_OK,
            "an honest backend is loaded", error_.message);
    auto desc = described<quire_device_desc>();
    desc.backend = "answers";
    require(api.device_open(instance, &desc, &device, error()) == QUIRE_OK,
            "a device of it is opened", error_.message);
    quire_queue *queue = nullptr;
    require(api.queue_create(device, nullptr, &queue, error()) == QUIRE_OK, "a queue is made",
            error_.message);
    queues.push_back(queue);
    // Two caches, with and without memory, so that calls find something to work on.
    for (bool has_memory : {false, true}) {
        auto shard = described<quire_shard_desc>();
        shard.device = device;
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = 8;
        auto cache = described<quire_cache_desc>();
        cache.flags = has_memory ? 0 : QUIRE_CACHE_LOG | QUIRE_CACHE_EVENTS | QUIRE_CACHE_AUDIT;
        cache.shards = &shard;
        cache.shard_stride = sizeof shard;
        cache.shard_count = has_memory ? 1 : 0;
        cache.groups = &group;
        cache.group_count = 1;
        cache.group_stride = sizeof group;
        cache.block_tokens = 4;
        cache.blocks = 12;
        cache.host_bytes = has_memory ? 4096 : 0;
        cache.max_sequences = 4;
        cache.max_sequence_tokens = 40;
        quire_cache *made_cache = nullptr;
        require(api.cache_create(instance, &cache, &made_cache, error()) == QUIRE_OK,
                "a cache is made", error_.message);
        caches.push_back(made_cache);
    }
}

void Arguments::check(const char *name, quire_status status) {
    if (status < 0 && error_.message[0] == 0) broken("a refusal says why:", name);
    require(status != QUIRE_E_INTERNAL, "no call finds a defect of the library:", error_.message);
    require_words(status, error_);
    kept_.clear();
}

void Arguments::close() {
    for (quire_cache *cache : caches) {
        require(api.cache_check(cache, error()) == QUIRE_OK, "a cache is sound", error_.message);
        for (uint64_t handle : handles_) {
            api.step_abort(cache, handle, nullptr);
            api.step_finish(cache, handle, nullptr, QUIRE_STEP_OK, nullptr);
            api.handover_end(cache, handle, nullptr);
        }
    }
    for (quire_batch *batch : batches) {
        require(api.batch_destroy(batch, error()) == QUIRE_OK, "a batch goes", error_.message);
    }
    for (quire_cache *cache : caches) {
        require(api.cache_destroy(cache, error()) == QUIRE_OK, "a cache goes", error_.message);
    }
    for (quire_memory *memory : memories) {
        require(api.memory_destroy(memory, error()) == QUIRE_OK, "memory goes", error_.message);
    }
    for (quire_fence *fence : fences) {
        require(api.fence_destroy(fence, error()) == QUIRE_OK, "a fence goes", error_.message);
    }
    for (quire_queue *queue : queues) {
        require(api.queue_destroy(queue, error()) == QUIRE_OK, "a queue goes", error_.message);
    }
    require(api.device_close(device, error()) == QUIRE_OK, "the device goes", error_.message);
    require(api.instance_destroy(instance, error()) == QUIRE_OK, "the instance goes",
            error_.message);
    require(live_objects() == live_before_, "nothing leaks");
}

uint64_t Arguments::handle() {
    uint8_t kind = input_.byte();
    if (handles_.empty() || kind >= 250) return input_.number();
    uint64_t handle = handles_[kind % handles_.size()];
    if (kind < 225) return handle;
    return handle ^ (uint64_t{1} << (input_.byte() & 63));
}

const char *Arguments::text() {
    if (input_.one_in(8)) return nullptr;
    size_t length = input_.byte() & 63;
    char *text = memory(length + 1);
    for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>(input_.byte());
    // A device file would be opened; a path is what is asked here.
    if (length > 0) text[0] = '#';
    return text;
}

const quire_native *Arguments::native() {
    if (input_.one_in(2)) return nullptr;
    constexpr uint32_t kKinds[] = {QUIRE_NATIVE_NONE, QUIRE_NATIVE_CUDA_STREAM,
                                   QUIRE_NATIVE_CUDA_EVENT, QUIRE_NATIVE_VULKAN_SEMAPHORE};
    quire_native value{};
    value.kind = input_.one_in(8) ? n32() : kKinds[input_.below(4)];
    value.reserved0 = rare32();
    value.value = n64();
    value.aux0 = n64();
    value.aux1 = rare32();
    return inputs(&value, 1, sizeof value);
}

const uint32_t *Arguments::numbers(uint32_t count) {
    auto *values = reinterpret_cast<uint32_t *>(memory(size_t{count} * sizeof(uint32_t)));
    for (uint32_t i = 0; i < count; ++i) values[i] = input_.one_in(8) ? n32() : input_.below(4);
    return values;
}

const int64_t *Arguments::wide_numbers(uint32_t count) {
    auto *values = reinterpret_cast<int64_t *>(memory(size_t{count} * sizeof(int64_t)));
    for (uint32_t i = 0; i < count; ++i)
        values[i] = static_cast<int64_t>(input_.one_in(8) ? n64() : input_.below(20));
    return values;
}

// An extension that no struct takes, or that is shorter than it says.
void Arguments::chain(char *head) {
    quire_chain value{};
    value.struct_type = input_.one_in(2) ? uint32_t{QUIRE_STRUCT_VULKAN_DEVICE} : n32();
    value.struct_size = sizeof value;
    const quire_chain *next = inputs(&value, 1, sizeof value);
    std::memcpy(head + 8, &next, sizeof next);
}

const quire_cache_desc *Arguments::cache_desc() {
    uint32_t group_count = input_.below(4), shard_count = input_.one_in(2) ? 1 : input_.below(3);
    quire_group_desc groups[3];
    for (quire_group_desc &group : groups) {
        group = described<quire_group_desc>();
        group.kind = input_.one_in(2) ? 0 : input_.below(7);
        group.window = group.kind == 1 || group.kind == 2 || input_.one_in(16) ? n32() : 0;
        group.layer_count = input_.one_in(8) ? n32() : 1;
        group.kv_heads = input_.one_in(8) ? n32() : 1;
        group.k_head_dim = input_.one_in(8) ? n32() : 8;
        group.v_head_dim = input_.one_in(8) ? n32() : 8;
        group.k_dtype = rare32();
        group.v_dtype = rare32();
        group.blocks = rare32();
        group.sink_tokens = group.kind == 1 ? n32() : rare32();
        group.k_scale = rare32();
        group.struct_size = struct_size(sizeof group);
    }
    quire_shard_desc shards[2];
    for (quire_shard_desc &shard : shards) {
        shard = described<quire_shard_desc>();
        shard.device = input_.one_in(16) ? nullptr : device;
        shard.layer_begin = rare32();
        shard.layer_count = rare32();
        shard.head_begin = rare32();
        shard.head_count = rare32();
    }
    quire_cache_desc desc{};
    desc.flags = input_.one_in(2) ? 0 : n32() & 511;
    desc.group_count = group_count;
    desc.group_stride = std::max<uint32_t>(stride<quire_group_desc>(), 4);
    desc.groups = inputs(groups, group_count, desc.group_stride);
    desc.shard_count = shard_count;
    desc.shard_stride = std::max<uint32_t>(stride<quire_shard_desc>(), 4);
    desc.shards = inputs(shards, shard_count, desc.shard_stride);
    desc.block_tokens = input_.one_in(8) ? n32() : 4;
    desc.max_sequences = input_.one_in(8) ? n32() : 4;
    desc.max_sequence_tokens = input_.one_in(4) ? n32() : 40;
    desc.blocks = input_.one_in(8) ? n32() : 9;
    desc.pool_bytes = rare32();
    desc.reserve_bytes = rare32();
    desc.pool_fraction = input_.one_in(16) ? real() : 0;
    desc.watermark_blocks = rare32();
    desc.host_bytes = rare32();
    desc.host_blocks = rare32();
    desc.eviction = rare32();
    desc.victim = rare32();
    desc.calibration_margin = input_.one_in(16) ? real() : 0;
    desc.hash_seed = n64();
    Room calibration = input_.one_in(8) ? room() : Room{nullptr, 0};
    desc.calibration = calibration.bytes;
    desc.calibration_bytes = calibration.size_bytes;
    desc.key_bytes = n64();
    return input(desc);
}

const quire_migrate_desc *Arguments::migrate_desc() {
    auto shard = described<quire_shard_desc>();
    shard.device = device;
    quire_migrate_desc desc{};
    desc.shard_count = input_.below(2);
    desc.shard_stride = std::max<uint32_t>(stride<quire_shard_desc>(), 4);
    desc.shards = inputs(&shard, desc.shard_count, desc.shard_stride);
    desc.move_capacity = input_.below(8);
    desc.move_stride = stride<quire_block_move>();
    desc.moves = outputs<quire_block_move>(desc.move_capacity, desc.move_stride);
    desc.blocks = input_.one_in(2) ? 12 : n32();
    desc.pool_fraction = input_.one_in(16) ? real() : 0;
    desc.pool_bytes = rare32();
    desc.reserve_bytes = rare32();
    desc.host_bytes = rare32();
    desc.host_blocks = rare32();
    desc.reserved0 = rare32();
    return input(desc);
}

const quire_size_desc *Arguments::size_desc() {
    quire_size_desc desc{};
    desc.parameters = n64();
    for (uint32_t *number :
         {&desc.layer_count, &desc.kv_heads, &desc.q_heads, &desc.k_head_dim, &desc.v_head_dim,
          &desc.kv_bits, &desc.weight_bits, &desc.block_tokens, &desc.batch, &desc.device_count}) {
        *number = n32();
    }
    desc.context_tokens = n64();
    desc.memory_bytes = n64();
    desc.reserve_bytes = n64();
    desc.utilization = input_.one_in(2) ? 0 : real();
    desc.bytes_per_second = real();
    desc.operations_per_second = real();
    desc.scale_bytes = n32();
    desc.reserved0 = rare32();
    return input(desc);
}

const quire_seq_desc *Arguments::seq_desc() {
    uint32_t count = input_.one_in(4) ? input_.below(3) : 0;
    quire_key keys[2] = {};
    for (quire_key &key : keys) {
        key.type = n32();
        key.size_bytes = input_.below(40);
        key.bytes = bytes(key.size_bytes);
        key.begin = n32();
        key.end = n32();
    }
    quire_seq_desc desc{};
    desc.ns = rare_handle();
    desc.key_count = count;
    desc.key_stride = stride<quire_key>();
    desc.keys = inputs(keys, count, desc.key_stride);
    desc.priority = static_cast<int32_t>(n32());
    desc.cross_tokens = rare32();
    return input(desc);
}

quire_status Arguments::take(void *user, const void *bytes, uint64_t size_bytes) {
    auto *self = static_cast<Arguments *>(user);
    const auto *first = static_cast<const char *>(bytes);
    self->session_.insert(self->session_.end(), first, first + size_bytes);
    return self->stream_status_;
}

quire_status Arguments::give(void *user, void *bytes, uint64_t size_bytes) {
    auto *self = static_cast<Arguments *>(user);
    size_t count = std::min<size_t>(size_bytes, self->session_.size() - self->session_read_);
    std::memset(bytes, 0, size_bytes);
    if (count != 0) std::memcpy(bytes, self->session_.data() + self->session_read_, count);
    self->session_read_ += count;
    return self->stream_status_;
}

const quire_export_desc *Arguments::export_desc() {
    quire_export_desc desc{};
    session_.clear();
    stream_status_ = static_cast<quire_status>(rare32());
    desc.fingerprint[0] = static_cast<uint8_t>(rare32());
    desc.name_space[31] = static_cast<uint8_t>(rare32());
    desc.write = input_.one_in(8) ? nullptr : take;
    desc.user = this;
    return input(desc);
}

const quire_import_desc *Arguments::import_desc() {
    quire_import_desc desc{};
    session_read_ = 0;
    stream_status_ = static_cast<quire_status>(rare32());
    if (!session_.empty() && input_.one_in(4)) {
        session_[input_.number32() % session_.size()] ^= static_cast<char>(input_.byte());
    }
    desc.fingerprint[0] = static_cast<uint8_t>(rare32());
    desc.name_space[31] = static_cast<uint8_t>(rare32());
    desc.seq = input_.one_in(2) ? nullptr : seq_desc();
    desc.read = input_.one_in(8) ? nullptr : give;
    desc.user = this;
    return input(desc);
}

const quire_handover_send_desc *Arguments::send_desc() {
    const uint32_t count = input_.below(20);
    quire_handover_send_desc desc{};
    desc.fingerprint[0] = static_cast<uint8_t>(rare32());
    desc.name_space[31] = static_cast<uint8_t>(rare32());
    desc.tokens = input_.one_in(2) ? nullptr : numbers(count);
    desc.token_count = desc.tokens != nullptr || input_.one_in(8) ? count : 0;
    desc.reserved0 = rare32();
    desc.staging_bytes = n64() & 0xFFFFF;
    return input(desc);
}

const quire_handover_receive_desc *Arguments::receive_desc() {
    quire_handover_receive_desc desc{};
    desc.fingerprint[0] = static_cast<uint8_t>(rare32());
    desc.name_space[31] = static_cast<uint8_t>(rare32());
    desc.seq = input_.one_in(2) ? nullptr : seq_desc();
    return input(desc);
}

const quire_step_desc *Arguments::step_desc() {
    quire_queue *one_queue = one(queues);
    quire_step_desc desc{};
    desc.flags = input_.below(2);
    desc.queue_count = input_.below(2);
    desc.queues = inputs(&one_queue, desc.queue_count, sizeof one_queue);
    desc.preempt = input_.below(4);
    desc.queue_tag = rare32();
    return input(desc);
}

const quire_batch_desc *Arguments::batch_desc() {
    uint32_t count = input_.below(3);
    quire_attention_desc attention[2];
    for (quire_attention_desc &one : attention) {
        one = described<quire_attention_desc>();
        one.flags = rare32();
        one.q_heads = input_.one_in(8) ? n32() : 2;
        one.q_dtype = rare32();
        one.scale = real();
        one.soft_cap = input_.one_in(4) ? real() : 0;
    }
    // A batch takes the memory that its bounds ask for, and time to pad it: either little, or more
    // than there can be.
    auto bound = [this](uint32_t usual) { return input_.one_in(8) ? n32() % 4096 : usual; };
    bool is_vast = input_.one_in(32);
    quire_batch_desc desc{};
    desc.max_rows = is_vast ? n32() | 0x80000000u : bound(4);
    desc.max_blocks_per_row = is_vast ? n32() | 0x80000000u : bound(10);
    desc.max_query_tokens = bound(32);
    desc.max_context_tokens = bound(128);
    desc.views = n32();
    desc.attention_count = count;
    desc.attention_stride = std::max<uint32_t>(stride<quire_attention_desc>(), 4);
    desc.attention = inputs(attention, count, desc.attention_stride);
    desc.max_mask_words = n32() % 4096;
    desc.max_cross_tokens = n32() % 4096;
    desc.reserved0 = rare32();
    return input(desc);
}

const quire_merge_args *Arguments::merge_args() {
    quire_merge_args args{};
    args.parts = n64();
    args.lses = n64();
    args.out = n64();
    args.lse = n64();
    args.part_count = n32();
    args.token_count = n32();
    args.heads = n32();
    args.head_dim = n32();
    args.dtype = rare32();
    args.reserved0 = rare32();
    return input(args);
}

Items Arguments::items() {
    quire_step_item items[3] = {};
    for (quire_step_item &item : items) {
        item.seq = handle();
        item.token_offset = input_.one_in(4) ? n32() : 0;
        item.token_count = n32();
        item.max_compute = rare32();
        item.draft_count = rare32();
        item.lookahead = rare32();
        item.mask_kind = rare32();
        item.mask_offset = rare32();
        item.mask_rows = rare32();
        item.max_hit_tokens = rare32();
        item.flags = input_.one_in(8) ? rare32() : 0;
    }
    Items all{};
    all.count = input_.below(4);
    all.stride = stride<quire_step_item>();
    all.items = inputs(items, all.count, all.stride);
    all.token_count = input_.byte() & 31;
    all.tokens = numbers(all.token_count);
    all.result_stride = stride<quire_step_result>();
    all.results = outputs<quire_step_result>(all.count, all.result_stride);
    return all;
}

}  // namespace quire::fuzz
