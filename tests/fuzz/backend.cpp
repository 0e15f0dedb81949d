// SPDX-License-Identifier: Apache-2.0
//
// backend: a hostile backend. Every answer of its table comes from the input (answers.hpp), while
// an engine goes through the life of a device: opening, memory, a cache with steps, forks, swaps
// and a migration, and the end of everything.
//
// The library must refuse in words and must not crash. As long as no answer contradicted itself,
// everything is given back in the end.
//
// Threads: none.

#include "answers.hpp"
#include "library.hpp"
#include "simulated.hpp"

namespace {

using namespace quire::fuzz;

constexpr uint32_t kRows = 4, kLayers = 1, kMostSteps = 6;

// One engine's life with devices of the hostile backend.
class Life {
 public:
    explicit Life(Bytes *input) : api_(library()), input_(*input) {}

    void run() {
        instance_ = new_instance();
        std::string path = simulated_plugin(hostile_table(&input_));
        uint32_t index = 0;
        if (ok(api_.backend_load(instance_, path.c_str(), &index, fresh()))) {
            look(index);
            for (int i = 0; i < 2; ++i) open(i);
            if (devices_[0] != nullptr) use_device();
            if (queues_[0] != nullptr) use_cache();
        }
        close();
    }

 private:
    quire_error *fresh() {
        error_ = new_error();
        return &error_;
    }
    bool ok(quire_status status) {
        require_words(status, error_);
        return status == QUIRE_OK;
    }

    void look(uint32_t index) {
        auto info = described<quire_backend_info>();
        ok(api_.backend_get_info(instance_, index, &info, fresh()));
    }

    void open(int i) {
        auto desc = described<quire_device_desc>();
        desc.backend = "answers";
        desc.index = static_cast<uint32_t>(i);
        if (!ok(api_.device_open(instance_, &desc, &devices_[i], fresh()))) {
            require(devices_[i] == nullptr, "no device comes from a call that failed");
            return;
        }
        auto info = described<quire_device_info>();
        ok(api_.device_get_info(devices_[i], &info, fresh()));
        ok(api_.queue_create(devices_[i], nullptr, &queues_[i], fresh()));
    }

    void use_device() {
        quire_fence *fence = nullptr;
        uint64_t value = 0;
        if (ok(api_.fence_create(devices_[0], 3, &fence, fresh()))) {
            ok(api_.fence_signal(fence, 5, fresh()));
            if (queues_[0] != nullptr) ok(api_.queue_signal(queues_[0], fence, 7, fresh()));
            if (queues_[1] != nullptr) ok(api_.queue_after(queues_[1], fence, 7, fresh()));
            ok(api_.fence_read(fence, &value, fresh()));
            ok(api_.fence_wait(fence, 6, 0, fresh()));
            ok(api_.fence_destroy(fence, fresh()));
        }
        use_memory();
        if (queues_[0] == nullptr) return;
        ok(api_.queue_sync(queues_[0], fresh()));
        quire_native native{};
        native.kind = QUIRE_NATIVE_CUDA_EVENT;
        ok(api_.queue_signal_native(queues_[0], &native, fresh()));
        ok(api_.queue_after_native(queues_[0], &native, fresh()));
    }

    void use_memory() {
        alignas(4096) static char own[4096];
        quire_memory *memories[3] = {};
        for (uint32_t i = 0; i < 3; ++i) {
            auto desc = described<quire_memory_desc>();
            desc.size_bytes = 4096;
            desc.kind = i == 0 ? QUIRE_MEMORY_DEVICE : QUIRE_MEMORY_HOST;
            desc.host_pointer = i == 2 ? own : nullptr;
            if (!ok(api_.memory_create(devices_[0], &desc, &memories[i], fresh()))) continue;
            auto info = described<quire_memory_info>();
            ok(api_.memory_get_info(memories[i], &info, fresh()));
        }
        for (quire_memory *from : memories) {
            if (from == nullptr || memories[0] == nullptr || queues_[0] == nullptr) continue;
            ok(api_.memory_copy(queues_[0], memories[0], 64, from, 128, 64, fresh()));
        }
        for (quire_memory *memory : memories) {
            if (memory != nullptr) ok(api_.memory_destroy(memory, fresh()));
        }
    }

    quire_cache_desc cache_desc(quire_shard_desc *shards, quire_group_desc *group) {
        for (int i = 0; i < 2; ++i) {
            shards[i] = described<quire_shard_desc>();
            shards[i].device = devices_[i];
            shards[i].head_begin = static_cast<uint32_t>(i);
            shards[i].head_count = 1;
        }
        shard_count_ = devices_[1] != nullptr && queues_[1] != nullptr && input_.one_in(4) ? 2 : 1;
        if (shard_count_ == 1) shards[0].head_count = 0;
        *group = described<quire_group_desc>();
        group->layer_count = kLayers;
        group->kv_heads = 2;
        group->k_head_dim = group->v_head_dim = 8;
        uint8_t kind = input_.byte();
        group->k_dtype = kind & 1 ? QUIRE_DTYPE_I8 : QUIRE_DTYPE_F16;
        group->k_scale = kind & 1 ? QUIRE_SCALE_TOKEN_HEAD : QUIRE_SCALE_NONE;
        auto desc = described<quire_cache_desc>();
        if (kind & 2) desc.flags |= QUIRE_CACHE_ZERO_ON_FREE;
        if ((kind & 5) == 4) desc.flags |= QUIRE_CACHE_CALIBRATE;
        desc.shards = shards;
        desc.shard_count = shard_count_;
        desc.shard_stride = sizeof *shards;
        desc.groups = group;
        desc.group_count = 1;
        desc.group_stride = sizeof *group;
        desc.block_tokens = 4;
        desc.max_sequences = kRows;
        desc.max_sequence_tokens = 32;
        desc.host_bytes = kind & 8 ? 1 << 16 : 0;
        if (kind & 16) {
            desc.pool_fraction = 0.00001F;
        } else {
            desc.blocks = 10;
        }
        return desc;
    }

    void use_cache() {
        quire_shard_desc shards[2];
        quire_group_desc group;
        quire_cache_desc desc = cache_desc(shards, &group);
        if (!ok(api_.cache_create(instance_, &desc, &cache_, fresh()))) {
            require(cache_ == nullptr, "no cache comes from a call that failed");
            return;
        }
        make_batch();
        for (quire_seq &seq : seqs_) {
            auto seq_desc = described<quire_seq_desc>();
            ok(api_.seq_create(cache_, &seq_desc, &seq, fresh()));
        }
        for (uint32_t i = 0; i < kMostSteps && (i < 2 || !input_.ended()); ++i) step();
        migrate();
        step();
        std::vector<char> calibration(4096);
        uint64_t size_bytes = 0;
        ok(api_.cache_save_calibration_wait(cache_, calibration.data(), calibration.size(),
                                            &size_bytes, 0, fresh()));
        ok(api_.cache_reset(cache_, fresh()));
    }

    void make_batch() {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 2;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = kRows;
        desc.max_blocks_per_row = 8;
        desc.max_query_tokens = 32;
        desc.max_context_tokens = 128;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        ok(api_.batch_create(cache_, &desc, &batch_, fresh()));
    }

    void step() {
        auto desc = described<quire_step_desc>();
        desc.queues = queues_;
        desc.queue_count = shard_count_;
        desc.flags = QUIRE_STEP_MAY_PREEMPT;
        desc.preempt = input_.one_in(2) ? QUIRE_PREEMPT_SWAP : QUIRE_PREEMPT_AUTO;
        quire_token tokens[24];
        for (uint32_t i = 0; i < 24; ++i) tokens[i] = i % 5;
        quire_step_item items[2] = {};
        for (uint32_t i = 0; i < 2; ++i) {
            items[i].seq = seqs_[i];
            items[i].token_count = 1 + input_.byte() % 8;
        }
        quire_step_result results[2];
        quire_step step = 0;
        uint32_t freed = 0;
        if (!ok(api_.step_begin(cache_, &desc, items, 2, sizeof items[0], tokens, 24, results,
                                sizeof results[0], &step, fresh()))) {
            return;
        }
        if (input_.one_in(4)) {
            ok(api_.step_preempt(cache_, step, seqs_[2], QUIRE_PREEMPT_SWAP, &freed, fresh()));
        }
        if (!ok(api_.step_commit(cache_, step, batch_, fresh()))) {
            api_.step_abort(cache_, step, fresh());
            return;
        }
        launch();
        quire_native native{};
        native.kind = QUIRE_NATIVE_CUDA_EVENT;
        ok(api_.step_finish(cache_, step, input_.one_in(8) ? &native : nullptr,
                            input_.one_in(8) ? QUIRE_STEP_FAILED : QUIRE_STEP_OK, fresh()));
        change_sequences();
    }

    void launch() {
        if (batch_ == nullptr) return;
        auto views = described<quire_batch_views>();
        ok(api_.batch_get_views(batch_, 0, 0, &views, fresh()));
        auto write = described<quire_kv_args>();
        write.k = write.v = reinterpret_cast<uint64_t>(room_);
        ok(api_.kv_write(batch_, &write, queues_[0], fresh()));
        auto attend = described<quire_attend_args>();
        attend.q = attend.out = reinterpret_cast<uint64_t>(room_);
        ok(api_.attend(batch_, &attend, queues_[0], fresh()));
    }

    void change_sequences() {
        uint32_t path[1] = {0};
        switch (input_.below(8)) {
            case 1:
                ok(api_.seq_end(cache_, seqs_[2], 0, fresh()));
                ok(api_.seq_fork(cache_, seqs_[0], 3, &seqs_[2], fresh()));
                break;
            case 2:
                ok(api_.seq_truncate(cache_, seqs_[0], 1, fresh()));
                break;
            case 3:
                ok(api_.seq_accept_path(cache_, seqs_[1], path, 1, fresh()));
                break;
            default:
                break;
        }
    }

    void migrate() {
        if (!input_.one_in(2)) return;
        auto shard = described<quire_shard_desc>();
        shard.device = devices_[input_.one_in(2) && devices_[1] != nullptr ? 1 : 0];
        auto desc = described<quire_migrate_desc>();
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.blocks = 12;
        auto info = described<quire_migrate_info>();
        if (ok(api_.cache_migrate(cache_, &desc, &info, fresh()))) shard_count_ = 1;
    }

    // The device may be lost or pretend to work for ever: what cannot be destroyed is abandoned.
    void close() {
        auto info = described<quire_abandon_info>();
        bool whole = true;
        if (batch_ != nullptr) whole &= ok(api_.batch_destroy(batch_, fresh()));
        if (cache_ != nullptr && !ok(api_.cache_destroy(cache_, fresh()))) {
            whole = false;
            ok(api_.cache_abandon(cache_, &info, fresh()));
        }
        for (quire_queue *queue : queues_) {
            if (queue == nullptr || ok(api_.queue_destroy(queue, fresh()))) continue;
            whole = false;
            ok(api_.queue_abandon(queue, fresh()));
        }
        for (quire_device *device : devices_) {
            if (device == nullptr || ok(api_.device_close(device, fresh()))) continue;
            whole = false;
            ok(api_.device_abandon(device, &info, fresh()));
        }
        whole &= ok(api_.instance_destroy(instance_, fresh()));
        if (whole && !contradicted()) require(live_objects() == live_before_, "nothing leaks");
    }

    const quire_api &api_;
    Bytes &input_;
    int64_t live_before_ = live_objects();
    quire_error error_ = new_error();
    quire_instance *instance_ = nullptr;
    quire_device *devices_[2] = {};
    quire_queue *queues_[2] = {};
    quire_cache *cache_ = nullptr;
    quire_batch *batch_ = nullptr;
    quire_seq seqs_[3] = {};
    uint32_t shard_count_ = 1;
    alignas(64) char room_[4096] = {};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    Bytes input(data, size_bytes);
    Life life(&input);
    life.run();
    return 0;
}
