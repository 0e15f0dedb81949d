// SPDX-License-Identifier: Apache-2.0
//
// An engine that decodes with its own graph, through the C ABI, on the emulator: its results are
// those of an engine that enqueues each step's calls, for the plain kernel and for kernels that
// multiply matrices.

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "engine_rig.hpp"
#include "tests/device/cpu_cache.hpp"

namespace quire::gpu_tests {

namespace {

using test::CacheShape;
using test::CpuCache;
using test::described;

constexpr uint32_t kWidth = 64;
constexpr uint32_t kMostTokens = 560;  // per step
constexpr uint64_t kPart = uint64_t{kMostTokens} * kWidth;

// The types of the pool, its scales, and the given K and V, q and out.
struct Types {
    const char *name;
    uint32_t pool;
    uint32_t scale;
    uint32_t given;
    const char *kernel;             // for decoding
    const char *of_prompt;          // for 64 tokens
    const char *on_cuda = nullptr;  // for both, unless QUIRE_GPU_ATTENTION says otherwise
};
constexpr Types kF32Types = {"f32",           QUIRE_DTYPE_F32, QUIRE_SCALE_NONE,
                             QUIRE_DTYPE_F32, "quire_attend",  "quire_attend"};
constexpr Types kAllTypes[] = {
    kF32Types,
    {"f16", QUIRE_DTYPE_F16, QUIRE_SCALE_NONE, QUIRE_DTYPE_F16, "quire_attend_fragments",
     "quire_attend_prefill", "quire_decode_f16_64"},
    {"fp8", QUIRE_DTYPE_F8_E4M3FN, QUIRE_SCALE_TOKEN_HEAD, QUIRE_DTYPE_F16,
     "quire_attend_fragments", "quire_attend_prefill", "quire_decode_e4m3_64"},
};

// Two sequences of a cache on the vendor's device. Activations are in pinned memory: K, V, q, out.
class Decoder {
 public:
    Decoder(const char *backend, const quire_native *stream, const Types &types = kF32Types)
        : types_(types),
          element_bytes_(types.given == QUIRE_DTYPE_F32 ? 4 : 2),
          cache_(shape_of(backend, types)) {
        must(cache_.api.queue_create(cache_.device, stream, &queue_, &cache_.error));
        decode_ = make_batch(2, 2);
        prompt_ = make_batch(1, kMostTokens);
        whole_ = make_batch(2, 2, QUIRE_ATTENTION_NOT_CAUSAL);
        auto desc = described<quire_memory_desc>();
        desc.size_bytes = 4 * kPart * element_bytes_;
        desc.kind = QUIRE_MEMORY_HOST;
        must(cache_.api.memory_create(cache_.device, &desc, &memory_, &cache_.error));
        auto info = described<quire_memory_info>();
        must(cache_.api.memory_get_info(memory_, &info, &cache_.error));
        address_ = info.address;
        host_ = static_cast<unsigned char *>(info.host_pointer);
        for (quire_seq &seq : seqs_) seq = cache_.create();
    }
    ~Decoder() {
        must(cache_.api.batch_destroy(decode_, &cache_.error));
        must(cache_.api.batch_destroy(prompt_, &cache_.error));
        must(cache_.api.batch_destroy(whole_, &cache_.error));
        must(cache_.api.memory_destroy(memory_, &cache_.error));
        must(cache_.api.queue_destroy(queue_, &cache_.error));
    }
    Decoder(const Decoder &) = delete;
    Decoder &operator=(const Decoder &) = delete;

    // Runs `count` new tokens of each of `seqs` with the calls that `enqueue` enqueues; returns the
    // output of attention.
    template <typename Enqueue>
    std::vector<unsigned char> step(const std::vector<uint32_t> &seqs, uint32_t count,
                                    Enqueue enqueue) {
        std::vector<quire_step_item> items;
        std::vector<uint32_t> tokens;
        for (uint32_t index : seqs) {
            quire_step_item item{};
            item.seq = seqs_[index];
            item.token_offset = static_cast<uint32_t>(tokens.size());
            item.token_count = count;
            items.push_back(item);
            for (uint32_t i = 0; i < count; ++i) tokens.push_back(made_++);
        }
        uint32_t total = made_ - tokens[0];
        for (uint64_t part = 0; part < 3; ++part) {
            for (uint64_t i = 0; i < uint64_t{total} * kWidth; ++i) {
                float angle = static_cast<float>(tokens[0] * 7 + i * (part + 1));
                put(part * kPart + i, std::sin(angle));
            }
        }
        quire_step handle = begin(items, tokens);
        quire_batch *batch = count == 1 ? decode_ : prompt_;
        if (is_whole_) batch = whole_;
        must(cache_.api.step_commit(cache_.cache, handle, batch, &cache_.error));
        enqueue(batch);
        must(cache_.api.step_finish(cache_.cache, handle, nullptr, QUIRE_STEP_OK, &cache_.error));
        EXPECT_EQ(cache_.api.queue_sync(queue_, &cache_.error), wanted_) << cache_.error.message;
        const unsigned char *out = host_ + 3 * kPart * element_bytes_;
        return {out, out + uint64_t{total} * kWidth * element_bytes_};
    }

    void run(quire_batch *batch) {
        auto kv = described<quire_kv_args>();
        kv.k = address_;
        kv.v = address_ + kPart * element_bytes_;
        kv.dtype = types_.given;
        must(cache_.api.kv_write(batch, &kv, queue_, &cache_.error));
        this->attend(batch);
    }
    void attend(quire_batch *batch) {
        auto attend = described<quire_attend_args>();
        attend.q = address_ + 2 * kPart * element_bytes_;
        attend.out = address_ + 3 * kPart * element_bytes_;
        must(cache_.api.attend(batch, &attend, queue_, &cache_.error));
    }

    // Whether the next steps see all keys, which no decode kernel serves. A last token does anyway.
    void see_all(bool is_whole) { is_whole_ = is_whole; }
    // Sets the expected status of the next steps.
    void expect(quire_status status) { wanted_ = status; }
    // The error that a call on the queue returns now; "" if there is none.
    std::string refusal() {
        auto copied = cache_.api.memory_copy(queue_, memory_, 0, memory_, kPart, 4, &cache_.error);
        return copied < 0 ? cache_.error.message : "";
    }
    uint32_t computed(uint32_t index) {
        auto info = described<quire_seq_info>();
        must(cache_.api.seq_get_info(cache_.cache, seqs_[index], &info, &cache_.error));
        return info.computed_tokens;
    }
    void note_what_is_done() {
        quire_step empty = begin({}, {});
        must(cache_.api.step_abort(cache_.cache, empty, &cache_.error));
    }

    void must(quire_status status) { ASSERT_GE(status, 0) << cache_.error.message; }

 private:
    static CacheShape shape_of(const char *backend, const Types &types) {
        CacheShape shape;
        shape.k_dtype = types.pool;
        shape.k_scale = types.scale;
        shape.blocks = 64;
        shape.head_dim = kWidth;
        shape.backend = backend;
        return shape;
    }
    void put(uint64_t index, float value) {
        auto half = static_cast<_Float16>(value);
        const void *element = &value;
        if (element_bytes_ == sizeof half) element = &half;
        std::memcpy(host_ + index * element_bytes_, element, element_bytes_);
    }
    quire_batch *make_batch(uint32_t rows, uint32_t tokens, uint32_t flags = 0) {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        attention.q_dtype = types_.given;
        attention.flags = flags;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = rows;
        desc.max_blocks_per_row = 60;
        desc.max_query_tokens = tokens;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        quire_batch *batch = nullptr;
        must(cache_.api.batch_create(cache_.cache, &desc, &batch, &cache_.error));
        return batch;
    }
    quire_step begin(const std::vector<quire_step_item> &items,
                     const std::vector<uint32_t> &tokens) {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue_;
        desc.queue_count = 1;
        std::vector<quire_step_result> results(items.size());
        quire_step step = 0;
        must(cache_.api.step_begin(cache_.cache, &desc, items.data(),
                                   static_cast<uint32_t>(items.size()), sizeof items[0],
                                   tokens.data(), static_cast<uint32_t>(tokens.size()),
                                   results.data(), sizeof results[0], &step, &cache_.error));
        for (const quire_step_result &result : results) {
            EXPECT_EQ(result.compute_count, tokens.size() / items.size());
        }
        return step;
    }

    const Types types_;
    const uint64_t element_bytes_;
    CpuCache cache_;
    quire_queue *queue_ = nullptr;
    quire_batch *decode_ = nullptr;
    quire_batch *whole_ = nullptr;
    quire_batch *prompt_ = nullptr;
    quire_memory *memory_ = nullptr;
    quire_seq seqs_[2] = {};
    uint64_t address_ = 0;
    unsigned char *host_ = nullptr;
    uint32_t made_ = 0;
    quire_status wanted_ = QUIRE_OK;
    bool is_whole_ = false;
};

}  // namespace

class GraphCache : public Engine {
 protected:
    static constexpr const char *kVariable = "QUIRE_GPU_ATTENTION";

    void TearDown() override {
        unsetenv(kVariable);
        Engine::TearDown();
    }
    // The kernel of the types, where this one serves the shape by default.
    static const char *kernel_of(const Types &types, const char *plain) {
        bool has_other = types.on_cuda != nullptr && vendor().name == std::string("cuda");
        return has_other && std::getenv(kVariable) == nullptr ? types.on_cuda : plain;
    }
    // Only checked on the emulator, whose launches can be counted.
    void expect_launched(const char *kernel, uint64_t before) {
        if (!is_steered()) return;
        EXPECT_GT(launches(kernel), before) << kernel;
    }
    uint64_t launches(const char *kernel) {
        if (!is_steered()) return 0;
        return symbol<uint64_t (*)(const char *)>("fakegpu_launches")(kernel);
    }
    void decode(const Types &types);
    void read_prompts(const Types &types);
};

void GraphCache::decode(const Types &types) {
    quire_native stream = as_stream(stream_);
    Decoder by_graph(vendor().name, &stream, types);
    Decoder by_calls(vendor().name, nullptr, types);
    const char *kernel = kernel_of(types, types.kernel);
    uint64_t before = launches(kernel);
    auto captured = [&](quire_batch *batch) {
        begin_capture();
        by_graph.run(batch);
        ASSERT_EQ(end_capture(), 0);
        launch();
    };
    auto replayed = [&](quire_batch *) { launch(); };
    auto on_graph_queue = [&](quire_batch *batch) { by_graph.run(batch); };
    auto called = [&](quire_batch *batch) { by_calls.run(batch); };
    // The graph is captured after a short prompt; contexts then grow past a chunk of places.
    EXPECT_EQ(by_graph.step({0}, 5, on_graph_queue), by_calls.step({0}, 5, called));
    EXPECT_EQ(by_graph.step({0, 1}, 1, captured), by_calls.step({0, 1}, 1, called));
    for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(by_graph.step({0, 1}, 1, replayed), by_calls.step({0, 1}, 1, called)) << i;
    }
    EXPECT_EQ(by_graph.step({1}, kMostTokens, on_graph_queue),
              by_calls.step({1}, kMostTokens, called));
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(by_graph.step({1, 0}, 1, replayed), by_calls.step({1, 0}, 1, called)) << i;
        ASSERT_EQ(by_graph.step({1}, 1, replayed), by_calls.step({1}, 1, called)) << i;
    }
    expect_launched(kernel, before);
    destroy_graph();
}

// A graph of 64 tokens of a prompt, launched for the next ones, and for fewer.
void GraphCache::read_prompts(const Types &types) {
    quire_native stream = as_stream(stream_);
    Decoder by_graph(vendor().name, &stream, types);
    Decoder by_calls(vendor().name, nullptr, types);
    const char *kernel = kernel_of(types, types.of_prompt);
    uint64_t before = launches(kernel);
    auto called = [&](quire_batch *batch) { by_calls.run(batch); };
    auto captured = [&](quire_batch *batch) {
        begin_capture();
        by_graph.run(batch);
        ASSERT_EQ(end_capture(), 0);
        launch();
    };
    auto replayed = [&](quire_batch *) { launch(); };
    EXPECT_EQ(by_graph.step({0}, 64, captured), by_calls.step({0}, 64, called));
    for (uint32_t count : {64u, 40u, 64u, 2u}) {
        ASSERT_EQ(by_graph.step({0}, count, replayed), by_calls.step({0}, count, called)) << count;
        ASSERT_EQ(by_graph.step({1}, count, replayed), by_calls.step({1}, count, called)) << count;
    }
    expect_launched(kernel, before);
    destroy_graph();
}

TEST_P(GraphCache, decodes_what_single_calls_decode) {
    for (const Types &types : kAllTypes) {
        SCOPED_TRACE(types.name);
        decode(types);
    }
    if (vendor().name != std::string("cuda")) return;  // else this is what was just done
    setenv(kVariable, "plain", 1);
    decode(kAllTypes[1]);
    decode(kAllTypes[2]);
}

TEST_P(GraphCache, reads_prompts_as_single_calls_do) {
    for (const Types &types : kAllTypes) {
        SCOPED_TRACE(types.name);
        read_prompts(types);
    }
    if (vendor().name != std::string("cuda")) return;
    setenv(kVariable, "plain", 1);
    read_prompts(kAllTypes[1]);
    read_prompts(kAllTypes[2]);
}

// Calls with a step's rows use the work list of the first of them.
TEST_P(GraphCache, layers_share_a_work_list) {
    bool has_lists = vendor().name == std::string("cuda") && is_steered();
    const Types &types = kAllTypes[1];
    quire_native stream = as_stream(stream_);
    Decoder layered(vendor().name, &stream, types);
    Decoder by_calls(vendor().name, nullptr, types);
    auto called = [&](quire_batch *batch) { by_calls.run(batch); };
    auto three = [&](quire_batch *batch) {
        layered.run(batch);
        layered.attend(batch);
        layered.attend(batch);
    };
    // Compares what a step gives, and counts the lists that it makes.
    auto expect_lists = [&](uint32_t count, uint64_t lists, auto enqueue) {
        std::vector<unsigned char> wanted = by_calls.step({0, 1}, count, called);
        uint64_t before = launches("quire_items");
        EXPECT_EQ(layered.step({0, 1}, count, enqueue), wanted);
        uint64_t made = launches("quire_items") - before;
        EXPECT_EQ(made, has_lists ? lists : 0u);
    };
    layered.step({0}, 9, three), by_calls.step({0}, 9, called);
    layered.step({1}, 500, three), by_calls.step({1}, 500, called);
    expect_lists(1, 1, three);
    expect_lists(1, 1, three);
    expect_lists(1, 1, [&](quire_batch *batch) {
        begin_capture();
        three(batch);
        ASSERT_EQ(end_capture(), 0);
        launch();
    });
    // What a graph runs is counted when it is captured.
    for (int i = 0; i < 20; ++i) expect_lists(1, 0, [&](quire_batch *) { launch(); });
    // A graph might have been launched between any two of these.
    expect_lists(1, 3, three);
    destroy_graph();
    // The second graph is not only launched after the first.
    expect_lists(1, 2, [&](quire_batch *batch) {
        for (int i = 0; i < 2; ++i) {
            begin_capture();
            i == 0 ? layered.run(batch) : layered.attend(batch);
            ASSERT_EQ(end_capture(), 0);
            launch();
            destroy_graph();
        }
    });
}

// A graph of another plan uses the memory where the list lies, and may be launched between layers.
TEST_P(GraphCache, layers_share_no_list_beside_any_graph) {
    const Types &types = kAllTypes[1];
    quire_native stream = as_stream(stream_);
    Decoder layered(vendor().name, &stream, types);
    Decoder by_calls(vendor().name, nullptr, types);
    auto called = [&](quire_batch *batch) { by_calls.run(batch); };
    auto run = [&](quire_batch *batch) { layered.run(batch); };
    for (uint32_t row : {0u, 1u}) {
        EXPECT_EQ(layered.step({row}, 9 + row * 520, run),
                  by_calls.step({row}, 9 + row * 520, called));
    }
    layered.see_all(true);
    auto captured = [&](quire_batch *batch) {
        begin_capture();
        layered.attend(batch);
        ASSERT_EQ(end_capture(), 0);
        layered.run(batch);
    };
    layered.step({0, 1}, 1, captured), by_calls.step({0, 1}, 1, called);
    layered.see_all(false);
    for (int i = 0; i < 3; ++i) {
        auto interrupted = [&](quire_batch *batch) {
            layered.run(batch);
            launch();
            layered.attend(batch);
        };
        ASSERT_EQ(layered.step({0, 1}, 1, interrupted), by_calls.step({0, 1}, 1, called)) << i;
    }
    destroy_graph();
}

TEST_P(GraphCache, of_fewer_rows_than_the_step_fails_it) {
    quire_native stream = as_stream(stream_);
    auto decoder = std::make_unique<Decoder>(vendor().name, &stream);
    auto called = [&](quire_batch *batch) { decoder->run(batch); };
    decoder->step({0}, 5, called);
    decoder->step({1}, 7, called);
    decoder->step({0}, 1, [&](quire_batch *batch) {
        begin_capture();
        decoder->run(batch);
        ASSERT_EQ(end_capture(), 0);
        launch();
    });
    EXPECT_EQ(decoder->computed(0), 6u);
    decoder->expect(QUIRE_E_DEVICE_LOST);
    decoder->step({0, 1}, 1, [&](quire_batch *) { launch(); });
    EXPECT_NE(
        decoder->refusal().find("a graph captured for 1 query tokens was launched for a step of 2"),
        std::string::npos)
        << decoder->refusal();
    decoder->note_what_is_done();
    EXPECT_EQ(decoder->computed(0), 6u);
    EXPECT_EQ(decoder->computed(1), 7u);
    destroy_graph();
    decoder.reset();
}

INSTANTIATE_TEST_SUITE_P(Vendors, GraphCache, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
