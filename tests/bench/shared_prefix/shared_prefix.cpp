// SPDX-License-Identifier: Apache-2.0
//
// Attention of rows that share a prefix, in a batch with that information and in one without.
//
// Floor: the step of one row alone, which reads the prefix once.
//
// The three alternate, round by round; medians are printed.

#include <benchmark/benchmark.h>
#include <quire/dyn.h>
#include <quire/quire.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr uint32_t kRows = 16, kPrefix = 2048, kBlockTokens = 16;
constexpr uint32_t kQueryHeads = 8, kKvHeads = 2, kDim = 128;
constexpr uint32_t kRounds = 15;

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

class Scene {
 public:
    Scene() {
        char why[512];
        if (quire_dyn_load(nullptr, &api_, why, sizeof why) < 0) fail(why);
        auto host = described<quire_instance_desc>();
        must(api_->instance_create(&host, &instance_, &error_));
        auto place = described<quire_device_desc>();
        place.backend = "cpu";
        must(api_->device_open(instance_, &place, &device_, &error_));
        must(api_->queue_create(device_, nullptr, &queue_, &error_));
        make_cache();
        told_ = make_batch(QUIRE_BATCH_SHARED_PREFIX);
        untold_ = make_batch(0);
        activations_ = make_memory();
        fill_prefix();
    }
    ~Scene() {
        must(api_->batch_destroy(told_, &error_));
        must(api_->batch_destroy(untold_, &error_));
        must(api_->cache_destroy(cache_, &error_));
        must(api_->memory_destroy(memory_, &error_));
        must(api_->queue_destroy(queue_, &error_));
        must(api_->device_close(device_, &error_));
        must(api_->instance_destroy(instance_, &error_));
    }
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;

    double told_ms() { return step_ms(told_, kRows); }
    double untold_ms() { return step_ms(untold_, kRows); }
    double one_row_ms() { return step_ms(untold_, 1); }

 private:
    [[noreturn]] static void fail(const char *why) {
        std::fprintf(stderr, "%s\n", why);
        std::exit(1);
    }
    void must(quire_status status) {
        if (status < 0) fail(error_.message);
    }

    void make_cache() {
        auto group = described<quire_group_desc>();
        group.layer_count = 1;
        group.kv_heads = kKvHeads;
        group.k_head_dim = group.v_head_dim = kDim;
        auto shard = described<quire_shard_desc>();
        shard.device = device_;
        auto desc = described<quire_cache_desc>();
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.block_tokens = kBlockTokens;
        desc.blocks = kPrefix / kBlockTokens + 64;
        must(api_->cache_create(instance_, &desc, &cache_, &error_));
    }

    quire_batch *make_batch(uint32_t flags) {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = kQueryHeads;
        auto desc = described<quire_batch_desc>();
        desc.flags = flags;
        desc.max_rows = kRows;
        desc.max_blocks_per_row = kPrefix / kBlockTokens + 8;
        desc.max_query_tokens = kPrefix;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        quire_batch *batch = nullptr;
        must(api_->batch_create(cache_, &desc, &batch, &error_));
        return batch;
    }

    // Read as Q, K and V; the output is written after them.
    uint64_t make_memory() {
        auto desc = described<quire_memory_desc>();
        desc.kind = QUIRE_MEMORY_HOST;
        desc.size_bytes = uint64_t{2} * kPrefix * kQueryHeads * kDim * sizeof(float);
        must(api_->memory_create(device_, &desc, &memory_, &error_));
        auto info = described<quire_memory_info>();
        must(api_->memory_get_info(memory_, &info, &error_));
        auto *numbers = static_cast<float *>(info.host_pointer);
        for (uint32_t i = 0; i < kPrefix * kQueryHeads * kDim; ++i) {
            numbers[i] = static_cast<float>(i % 1021) / 1021.0f - 0.5f;
        }
        return info.address;
    }

    void fill_prefix() {
        auto desc = described<quire_seq_desc>();
        must(api_->seq_create(cache_, &desc, &seqs_[0], &error_));
        run(untold_, 1, kPrefix - 1, false);
        for (uint32_t i = 1; i < kRows; ++i) {
            must(api_->seq_fork(cache_, seqs_[0], kPrefix - 1, &seqs_[i], &error_));
        }
    }

    // A step of `count` new tokens for each of the first `rows` sequences.
    void run(quire_batch *batch, uint32_t rows, uint32_t count, bool attends) {
        std::vector<uint32_t> tokens(count);
        for (uint32_t i = 0; i < count; ++i) tokens[i] = i;
        std::vector<quire_step_item> items(rows);
        std::vector<quire_step_result> results(rows);
        for (uint32_t i = 0; i < rows; ++i) {
            items[i].seq = seqs_[i];
            items[i].token_count = count;
        }
        auto desc = described<quire_step_desc>();
        desc.queues = &queue_;
        desc.queue_count = 1;
        quire_step step = 0;
        must(api_->step_begin(cache_, &desc, items.data(), rows, sizeof items[0], tokens.data(),
                              count, results.data(), sizeof results[0], &step, &error_));
        must(api_->step_commit(cache_, step, batch, &error_));
        auto write = described<quire_kv_args>();
        write.k = write.v = activations_;
        must(api_->kv_write(batch, &write, queue_, &error_));
        must(api_->queue_sync(queue_, &error_));
        auto begin = std::chrono::steady_clock::now();
        if (attends) attend(batch);
        must(api_->queue_sync(queue_, &error_));
        attend_ms_ =
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                .count();
        must(api_->step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_));
        must(api_->queue_sync(queue_, &error_));
    }

    void attend(quire_batch *batch) {
        auto args = described<quire_attend_args>();
        args.q = activations_;
        args.out = activations_ + uint64_t{kPrefix} * kQueryHeads * kDim * sizeof(float);
        must(api_->attend(batch, &args, queue_, &error_));
    }

    double step_ms(quire_batch *batch, uint32_t rows) {
        run(batch, rows, 1, true);
        for (uint32_t i = 0; i < rows; ++i) {
            must(api_->seq_truncate(cache_, seqs_[i], kPrefix - 1, &error_));
        }
        return attend_ms_;
    }

    const quire_api *api_ = nullptr;
    quire_error error_ = described<quire_error>();
    quire_instance *instance_ = nullptr;
    quire_device *device_ = nullptr;
    quire_queue *queue_ = nullptr;
    quire_cache *cache_ = nullptr;
    quire_batch *told_ = nullptr, *untold_ = nullptr;
    quire_memory *memory_ = nullptr;
    uint64_t activations_ = 0;
    quire_seq seqs_[kRows] = {};
    double attend_ms_ = 0;
};

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

void shared_prefix(benchmark::State &state) {
    Scene scene;
    std::vector<double> told, untold, one_row;
    for (auto _ : state) {
        for (uint32_t round = 0; round < kRounds; ++round) {
            told.push_back(scene.told_ms());
            untold.push_back(scene.untold_ms());
            one_row.push_back(scene.one_row_ms());
        }
    }
    state.counters["told_ms"] = median(told);
    state.counters["untold_ms"] = median(untold);
    state.counters["gain"] = median(untold) / median(told);
    state.counters["one_row_ms"] = median(one_row);
}
BENCHMARK(shared_prefix)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
