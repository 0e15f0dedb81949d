// SPDX-License-Identifier: Apache-2.0
//
// A captured graph: two batches take turns, their backend calls are recorded once each, and from
// then on only replayed, argument for argument, after commits that rewrite the tables in place.
// This must give the bits of an engine that makes every call anew.

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "cpu_cache.hpp"
#include "recorder.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kWidth = 64, kRows = 3, kSteps = 60;

// A number that depends on all of its coordinates.
float number(uint32_t kind, uint32_t row, uint32_t step, uint32_t i) {
    return std::sin(static_cast<float>(1 + kind * 7919 + row * 104'729 + step * 1299 + i));
}

class Engine {
 public:
    // With a backend that the search finds, or one loaded from a path.
    Engine(const char *backend, const char *path)
        : cache_({.blocks = 40, .backend = backend, .path = path}) {
        cache_.must(cache_.api.queue_create(cache_.device, nullptr, &queue_, &cache_.error));
        for (Batch &batch : batches_) make(&batch);
        for (quire_seq &seq : seqs_) seq = cache_.create();
    }
    ~Engine() {
        for (Batch &batch : batches_) {
            EXPECT_GE(cache_.api.batch_destroy(batch.handle, &cache_.error), 0);
        }
        EXPECT_GE(cache_.api.queue_destroy(queue_, &cache_.error), 0);
    }
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    // Computes one token of each live sequence; `launch` enqueues the kernels of batch 0 or 1.
    template <typename Launch>
    std::vector<float> step(uint32_t number_of_step, Launch launch) {
        Batch &batch = batches_[number_of_step % 2];
        quire_step step = begin(number_of_step);
        cache_.must(cache_.api.step_commit(cache_.cache, step, batch.handle, &cache_.error));
        expect_fixed(batch);
        fill(&batch, number_of_step);
        launch(number_of_step % 2);
        cache_.must(
            cache_.api.step_finish(cache_.cache, step, nullptr, QUIRE_STEP_OK, &cache_.error));
        cache_.must(cache_.api.queue_sync(queue_, &cache_.error));
        return std::vector<float>(batch.out, batch.out + live_.size() * kWidth);
    }

    void launch(uint32_t which) {
        Batch &batch = batches_[which];
        auto kv = described<quire_kv_args>();
        kv.k = reinterpret_cast<uint64_t>(batch.k);
        kv.v = reinterpret_cast<uint64_t>(batch.v);
        cache_.must(cache_.api.kv_write(batch.handle, &kv, queue_, &cache_.error));
        auto args = described<quire_attend_args>();
        args.q = reinterpret_cast<uint64_t>(batch.q);
        args.out = reinterpret_cast<uint64_t>(batch.out);
        cache_.must(cache_.api.attend(batch.handle, &args, queue_, &cache_.error));
    }

    // The sequence leaves; rows after the remaining ones become padding.
    void leave(uint32_t row) {
        cache_.must(cache_.api.seq_end(cache_.cache, seqs_[live_[row]], 0, &cache_.error));
        live_.erase(live_.begin() + row);
    }
    // A fork takes a free place; its first write copies the block that it shares.
    void join_fork_of(uint32_t row) {
        uint32_t place = 0;
        while (std::find(live_.begin(), live_.end(), place) != live_.end()) ++place;
        auto info = described<quire_seq_info>();
        cache_.must(cache_.api.seq_get_info(cache_.cache, seqs_[live_[row]], &info, &cache_.error));
        cache_.must(cache_.api.seq_fork(cache_.cache, seqs_[live_[row]], info.computed_tokens,
                                        &seqs_[place], &cache_.error));
        live_.push_back(place);
    }

 private:
    struct Batch {
        quire_batch *handle = nullptr;
        quire_batch_views views{};
        float q[kRows * kWidth], k[kRows * kWidth], v[kRows * kWidth], out[kRows * kWidth];
    };

    void make(Batch *batch) {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = desc.max_query_tokens = kRows;
        desc.max_blocks_per_row = 8;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        cache_.must(cache_.api.batch_create(cache_.cache, &desc, &batch->handle, &cache_.error));
        batch->views = views(*batch);
    }
    quire_batch_views views(const Batch &batch) {
        auto out = described<quire_batch_views>();
        cache_.must(cache_.api.batch_get_views(batch.handle, 0, 0, &out, &cache_.error));
        return out;
    }
    void expect_fixed(const Batch &batch) {
        quire_batch_views now = views(batch);
        EXPECT_EQ(now.block_table, batch.views.block_table);
        EXPECT_EQ(now.slots, batch.views.slots);
        EXPECT_EQ(now.lengths, batch.views.lengths);
        EXPECT_EQ(now.cu_q, batch.views.cu_q);
    }

    quire_step begin(uint32_t number_of_step) {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue_;
        desc.queue_count = 1;
        std::vector<quire_step_item> items(live_.size());
        std::vector<uint32_t> tokens;
        for (uint32_t row = 0; row < live_.size(); ++row) {
            items[row].seq = seqs_[live_[row]];
            items[row].token_offset = row;
            items[row].token_count = 1;
            tokens.push_back(100'000 * live_[row] + number_of_step);
        }
        std::vector<quire_step_result> results(live_.size());
        quire_step step = 0;
        cache_.must(cache_.api.step_begin(
            cache_.cache, &desc, items.data(), static_cast<uint32_t>(items.size()),
            sizeof(quire_step_item), tokens.data(), static_cast<uint32_t>(tokens.size()),
            results.data(), sizeof(quire_step_result), &step, &cache_.error));
        for (const quire_step_result &result : results)
            EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
        return step;
    }
    void fill(Batch *batch, uint32_t number_of_step) {
        for (uint32_t i = 0; i < live_.size() * kWidth; ++i) {
            uint32_t who = live_[i / kWidth];
            batch->q[i] = number(0, who, number_of_step, i % kWidth);
            batch->k[i] = number(1, who, number_of_step, i % kWidth);
            batch->v[i] = number(2, who, number_of_step, i % kWidth);
        }
    }

    CpuCache cache_;
    quire_queue *queue_ = nullptr;
    Batch batches_[2];
    quire_seq seqs_[kRows] = {};
    std::vector<uint32_t> live_ = {0, 1, 2};
};

struct Recorder {
    void (*start)(uint32_t);
    void (*stop)();
    int32_t (*replay)(uint32_t);
    uint64_t (*rows_id)(uint32_t, uint32_t);

    explicit Recorder(const std::string &path) {
        void *module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        EXPECT_NE(module, nullptr) << dlerror();
        start = reinterpret_cast<void (*)(uint32_t)>(dlsym(module, "quire_recorder_start"));
        stop = reinterpret_cast<void (*)()>(dlsym(module, "quire_recorder_stop"));
        replay = reinterpret_cast<int32_t (*)(uint32_t)>(dlsym(module, "quire_recorder_replay"));
        rows_id = reinterpret_cast<uint64_t (*)(uint32_t, uint32_t)>(
            dlsym(module, "quire_recorder_rows_id"));
    }
};

// The events between the steps, the same for both engines.
void live_through(Engine *engine, uint32_t step) {
    if (step == 21) engine->leave(1);
    if (step == 30) engine->join_fork_of(0);
    if (step == 45) engine->leave(0);
}

TEST(Replay, calls_of_two_alternating_batches_replay_unchanged) {
    const std::string path = quire::tests::place(QUIRE_RECORDER);
    Recorder recorder(path);
    Engine plain("cpu", nullptr), graphed("recorder", path.c_str());
    for (uint32_t step = 0; step < kSteps; ++step) {
        live_through(&plain, step);
        live_through(&graphed, step);
        auto wanted = plain.step(step, [&](uint32_t which) { plain.launch(which); });
        auto got = graphed.step(step, [&](uint32_t which) {
            if (step < 2) {
                recorder.start(which);
                graphed.launch(which);
                recorder.stop();
            } else {
                EXPECT_EQ(recorder.replay(which), 2);
            }
        });
        ASSERT_EQ(got, wanted) << "step " << step;
    }
}

// The calls of a step have the same rows, and no other step has.
TEST(Replay, rows_have_a_number_of_their_own_in_each_step) {
    const std::string path = quire::tests::place(QUIRE_RECORDER);
    Recorder recorder(path);
    Engine engine("recorder", path.c_str());
    std::set<uint64_t> ids;
    for (uint32_t step = 0; step < 6; ++step) {
        engine.step(step, [&](uint32_t which) {
            recorder.start(which);
            engine.launch(which);
            engine.launch(which);
            recorder.stop();
            uint64_t id = recorder.rows_id(which, 1);
            EXPECT_EQ(recorder.rows_id(which, 3), id);
            EXPECT_NE(id, 0u);
            EXPECT_TRUE(ids.insert(id).second) << id;
        });
    }
}

// The comparison can fail: without its kernels, a batch keeps its previous output.
TEST(Replay, step_without_its_calls_gives_something_else) {
    Engine plain("cpu", nullptr), idle("cpu", nullptr);
    for (uint32_t step = 0; step < 4; ++step) {
        auto wanted = plain.step(step, [&](uint32_t which) { plain.launch(which); });
        auto got = idle.step(step, [&](uint32_t which) {
            if (step < 2) idle.launch(which);
        });
        EXPECT_EQ(got == wanted, step < 2) << "step " << step;
    }
}

}  // namespace
