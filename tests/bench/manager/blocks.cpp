// SPDX-License-Identifier: Apache-2.0
//
// The cost of a block: taking and giving back after a pool of a million was churned, and evicting
// from a million cached ones. Measured on the core's own structures; an engine adds the calls.
//
// Floor: one read-modify-write of a random cache line of an array as large as the pool's records:
// the least that finding a block's record costs.

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/blocks/journal.hpp"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kBlocks = 1u << 20;

// As the library's own allocator does for large tables.
void use_large_pages(void *memory, uint64_t size_bytes) {
    constexpr uintptr_t large = uintptr_t{2} << 20;
    uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + large - 1) / large * large;
    uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + size_bytes) / large * large;
    if (begin < end) madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
}

HostAllocator host_allocator() {
    return HostAllocator{
        [](void *, uint64_t size, uint64_t alignment) {
            void *memory =
                std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
            use_large_pages(memory, size);
            return memory;
        },
        [](void *, void *pointer, uint64_t, uint64_t) { std::free(pointer); }, nullptr};
}

double floor_nanoseconds() {
    struct alignas(64) Line {
        uint32_t value;
        uint32_t rest[15];
    };
    HostAllocator host = host_allocator();
    Array<Line> lines(&host);
    if (!lines.create(kBlocks)) std::abort();
    std::vector<uint32_t> order(kBlocks);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    auto begin = Clock::now();
    for (uint32_t i : order) ++lines[i].value;
    benchmark::DoNotOptimize(lines.data());
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kBlocks;
}

// Takes every block and gives them back in random order.
void churn(BlockPool *pool) {
    std::vector<uint32_t> held;
    for (uint32_t block = pool->take_free(kNoBarrier); block != kNone;
         block = pool->take_free(kNoBarrier)) {
        held.push_back(block);
    }
    std::shuffle(held.begin(), held.end(), std::mt19937(2));
    for (uint32_t block : held) pool->drop_ref(block, 0);
}

void append_and_free(benchmark::State &state) {
    HostAllocator host = host_allocator();
    Timeline timeline;
    BlockPool pool(&host, &timeline);
    if (!pool.create(kBlocks, false)) state.SkipWithError("no memory");
    churn(&pool);
    // Other sequences' batches are freed in between, so that the same few blocks do not return each
    // time.
    uint32_t batch = static_cast<uint32_t>(state.range(0));
    std::vector<std::vector<uint32_t>> ring(1024, std::vector<uint32_t>(batch));
    for (auto &blocks : ring) {
        for (uint32_t &block : blocks) block = pool.take_free(kNoBarrier);
    }
    uint64_t at = 0;
    for (auto _ : state) {
        std::vector<uint32_t> &blocks = ring[at++ * 769 % ring.size()];
        for (uint32_t &block : blocks) pool.drop_ref(block, 0);
        for (uint32_t &block : blocks) block = pool.take_free(kNoBarrier);
    }
    double blocks = static_cast<double>(state.iterations()) * batch;
    state.counters["ns_per_block"] =
        benchmark::Counter(blocks, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    state.counters["floor_ns"] = floor_nanoseconds();
    state.counters["target_ns"] = 20;
}
BENCHMARK(append_and_free)->ArgName("batch")->Arg(64)->Arg(1)->MinTime(1);

// A journal whose blocks are all cached, in random order of age.
struct CachedPool {
    CachedPool() : host(host_allocator()), journal(&host, &timeline) {
        quire_cache_desc desc{};
        desc.blocks = kBlocks;
        desc.group_count = 1;
        quire_group_desc group{};
        group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        ok = compute_geometry(desc, &group, 0, &geometry).ok() &&
             journal.create(geometry, {.max_sequences = 1, .seed = 1}).ok();
    }

    void fill() {
        BlockPool &pool = journal.pool(0);
        uint32_t root_words[2] = {0, 0};
        if (!journal.tree().scopes().open_account(0, UINT64_MAX)) std::abort();
        root = journal.tree().scopes().use_root(0, root_words, 2, false);
        churn(&pool);
        std::vector<uint32_t> held;
        for (uint32_t i = 0; i + 1 < kBlocks; ++i) {
            uint32_t tokens[16];
            for (uint32_t k = 0; k < 16; ++k) tokens[k] = i * 16 + k;
            TreeCursor at = journal.tree().root_cursor(root);
            uint64_t hash = journal.tree().hash_block(at.hash, tokens, Extra{});
            uint32_t node = journal.tree().insert(root, at, hash, tokens, Extra{});
            uint32_t block = pool.take_free(kNoBarrier);
            journal.tree().change_blocks(node)[0] = block;
            pool[block].node = node;
            held.push_back(block);
        }
        std::shuffle(held.begin(), held.end(), std::mt19937(3));
        for (uint32_t block : held) pool.drop_ref(block, 0);
    }

    HostAllocator host;
    Timeline timeline;
    Geometry geometry;
    Journal journal;
    uint32_t root = 0;
    bool ok = false;
};

void evict(benchmark::State &state) {
    constexpr uint32_t batch = 64;
    CachedPool cached;
    if (!cached.ok) state.SkipWithError("no memory");
    StepEdits step;
    step.edits.bind(&cached.host);
    if (!step.edits.reserve(batch)) state.SkipWithError("no memory");
    cached.fill();
    for (auto _ : state) {
        cached.journal.resume(&step);
        for (uint32_t i = 0; i < batch; ++i) cached.journal.take(0, kNoBarrier, Taker{0, 0, false});
        cached.journal.settle(step, EditRange{0, batch, 0, 0});
        step.edits.shrink(0);
    }
    double blocks = static_cast<double>(state.iterations()) * batch;
    state.counters["ns_per_block"] =
        benchmark::Counter(blocks, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    state.counters["floor_ns"] = floor_nanoseconds();
    state.counters["target_ns"] = 50;
}
BENCHMARK(evict)->Iterations(kBlocks / 64 - 1);

}  // namespace
