// SPDX-License-Identifier: Apache-2.0
//
// Every entry point of the table, with every host allocation and every device operation failing in
// turn: each call returns an error and changes nothing, or succeeds; and an engine can go on.

#include <dlfcn.h>

#include <cstdio>

#include "faulted_handover.hpp"
#include "faulted_lease.hpp"
#include "faulted_report.hpp"
#include "faulted_session.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kLayers = 2, kHeads = 2, kDim = 8, kQueryHeads = 4, kBlock = 4;
constexpr uint64_t kForever = UINT64_MAX;

// An engine that uses the whole API, with calls that fail repeatedly before they succeed.
class Engine {
 public:
    explicit Engine(Faults *faults) : faults_(*faults), api(faulted_api()) {
        g_faults = faults;
        error.struct_size = sizeof error;
    }

    void run() {
        open();
        fences();
        memories();
        sessions();
        serve();
        follow();
        migrate();
        close();
    }

 private:
    void ok(quire_status status) { ASSERT_GE(status, 0) << error.message; }
    // Also accepts that the backend does not support it.
    void asked(quire_status status) {
        ASSERT_TRUE(status >= 0 || status == QUIRE_E_UNSUPPORTED) << error.message;
    }

    void open() {
        quire_instance_desc desc = faults_.host.description();
        ok(api.instance_create(&desc, &instance, &error));
        uint32_t count = 0, index = 0;
        ok(api.backend_count(instance, &count, &error));
        ok(api.backend_load(instance, quire::tests::place(QUIRE_FAILING).c_str(), &index, &error));
        auto info = described<quire_backend_info>();
        ok(api.backend_get_info(instance, index, &info, &error));
        device = open_device();
        auto device_info = described<quire_device_info>();
        ok(api.device_get_info(device, &device_info, &error));
        queue = make_queue(device);
        other_queue = make_queue(device);
    }
    quire_device *open_device() {
        auto desc = described<quire_device_desc>();
        desc.backend = "failing";
        desc.threads = 1;
        quire_device *out = nullptr;
        ok(api.device_open(instance, &desc, &out, &error));
        return out;
    }
    quire_queue *make_queue(quire_device *on) {
        quire_queue *out = nullptr;
        ok(api.queue_create(on, nullptr, &out, &error));
        faults_.queues.insert(out);
        return out;
    }
    void destroy_queue(quire_queue *which) {
        ok(api.queue_sync(which, &error));
        faults_.queues.erase(which);
        ok(api.queue_destroy(which, &error));
    }

    void fences() {
        quire_fence *fence = nullptr;
        uint64_t value = 0;
        ok(api.fence_create(device, 1, &fence, &error));
        ok(api.queue_signal(queue, fence, 2, &error));
        ok(api.queue_after(other_queue, fence, 2, &error));
        ok(api.fence_wait(fence, 2, kForever, &error));
        ok(api.fence_read(fence, &value, &error));
        EXPECT_EQ(value, 2u);
        ok(api.queue_sync(other_queue, &error));
        ok(api.fence_destroy(fence, &error));
        quire_fence *by_host = nullptr;
        ok(api.fence_create(device, 0, &by_host, &error));
        quire_status signalled = api.fence_signal(by_host, 5, &error);
        ok(signalled);
        ok(api.fence_destroy(by_host, &error));
    }

    void memories() {
        auto desc = described<quire_memory_desc>();
        desc.size_bytes = 4096;
        quire_memory *from = nullptr, *to = nullptr;
        ok(api.memory_create(device, &desc, &from, &error));
        ok(api.memory_create(device, &desc, &to, &error));
        auto info = described<quire_memory_info>();
        ok(api.memory_get_info(from, &info, &error));
        ok(api.memory_copy(queue, to, 0, from, 0, 4096, &error));
        float state[2 * kDim] = {}, lse[2] = {}, out[kDim] = {};
        auto merge = described<quire_merge_args>();
        merge.parts = reinterpret_cast<uint64_t>(state);
        merge.lses = reinterpret_cast<uint64_t>(lse);
        merge.out = reinterpret_cast<uint64_t>(out);
        merge.part_count = 2;
        merge.token_count = merge.heads = 1;
        merge.head_dim = kDim;
        asked(api.attention_merge(queue, &merge, &error));
        ok(api.queue_sync(queue, &error));
        ok(api.memory_destroy(from, &error));
        ok(api.memory_destroy(to, &error));
    }

    quire_cache *make_cache(quire_device *on, uint32_t flags) {
        quire_group_desc groups[2] = {};
        for (quire_group_desc &group : groups) {
            group.struct_size = sizeof group;
            group.layer_count = 1;
            group.kv_heads = kHeads;
            group.k_head_dim = group.v_head_dim = kDim;
            group.k_dtype = QUIRE_DTYPE_F32;
        }
        groups[1].kind = QUIRE_GROUP_WINDOW;
        groups[1].window = 6;
        auto shard = described<quire_shard_desc>();
        shard.device = on;
        auto desc = described<quire_cache_desc>();
        desc.flags = flags;
        desc.groups = groups;
        desc.group_count = 2;
        desc.group_stride = sizeof groups[0];
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.blocks = 40;
        desc.block_tokens = kBlock;
        desc.host_blocks = 20;
        desc.max_sequences = 16;
        quire_cache *out = nullptr;
        ok(api.cache_create(instance, &desc, &out, &error));
        faults_.caches.insert(out);
        faults_.queue_of[out] = on == device ? queue : rank_queue_;
        return out;
    }
    void destroy_cache(quire_cache *which) {
        faults_.caches.erase(which);
        ok(api.cache_destroy(which, &error));
    }
    quire_batch *make_batch(quire_cache *of) {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = kQueryHeads;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 4;
        desc.max_blocks_per_row = 16;
        desc.max_query_tokens = 64;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        desc.views = QUIRE_VIEW_BLOCK_TABLE;
        quire_batch *out = nullptr;
        ok(api.batch_create(of, &desc, &out, &error));
        auto views = described<quire_batch_views>();
        ok(api.batch_get_views(out, 0, 0, &views, &error));
        return out;
    }

    quire_seq_desc sequence_desc(quire_namespace ns) {
        static const std::string picture(70, 'p');
        static const quire_key keys[] = {{QUIRE_KEY_SALT, 4, "salt", 0, 0},
                                         {QUIRE_KEY_MEDIA, 70, picture.data(), 3, 9}};
        auto desc = described<quire_seq_desc>();
        desc.ns = ns;
        desc.keys = keys;
        desc.key_count = 2;
        desc.key_stride = sizeof keys[0];
        return desc;
    }
    quire_seq sequence(quire_namespace ns) {
        auto desc = sequence_desc(ns);
        quire_seq out = 0;
        ok(api.seq_create(cache, &desc, &out, &error));
        return out;
    }

    struct Item {
        quire_seq seq;
        Tokens tokens;
        uint32_t drafts = 0;
        uint32_t lookahead = 0;
    };
    quire_step_desc step_desc(quire_queue *const *on) {
        auto desc = described<quire_step_desc>();
        desc.queues = on;
        desc.queue_count = 1;
        return desc;
    }
    quire_step_item described_item(const Item &item) {
        quire_step_item out{};
        out.seq = item.seq;
        out.token_count = static_cast<uint32_t>(item.tokens.size());
        out.draft_count = item.drafts;
        out.lookahead = item.lookahead;
        return out;
    }
    quire_step begin(const Item &item) {
        quire_step_desc desc = step_desc(&queue);
        quire_step_item described = described_item(item);
        quire_step out = 0;
        ok(api.step_begin(cache, &desc, &described, item.seq != 0, sizeof described,
                          item.tokens.data(), described.token_count, &result_, sizeof result_, &out,
                          &error));
        return out;
    }
    void add(quire_step step, const Item &item) {
        quire_step_item described = described_item(item);
        ok(api.step_add(cache, step, &described, 1, sizeof described, item.tokens.data(),
                        described.token_count, &result_, sizeof result_, &error));
    }
    // Launches all layers of a committed step.
    void launch(quire_batch *into) {
        auto views = described<quire_batch_views>();
        ok(library().batch_get_views(into, 0, 0, &views, &error));
        k_.assign(size_t{views.query_tokens} * kHeads * kDim, 0.5f);
        q_.assign(size_t{views.query_tokens} * kQueryHeads * kDim, 0.25f);
        out_.assign(q_.size(), 0.0f);
        for (uint32_t layer = 0; layer < kLayers; ++layer) {
            auto kv = described<quire_kv_args>();
            kv.k = kv.v = reinterpret_cast<uint64_t>(k_.data());
            kv.layer = layer;
            ok(api.kv_write(into, &kv, queue, &error));
            auto attend = described<quire_attend_args>();
            attend.q = reinterpret_cast<uint64_t>(q_.data());
            attend.out = reinterpret_cast<uint64_t>(out_.data());
            attend.layer = layer;
            ok(api.attend(into, &attend, queue, &error));
        }
    }
    // Starts over whenever the commit loses the step: its items' tokens are then already known.
    void step(std::vector<Item> items) {
        for (;;) {
            quire_step open = begin({});
            for (const Item &item : items) add(open, item);
            list(open);
            quire_status status = api.step_commit(cache, open, batch, &error);
            if (status == QUIRE_E_DEVICE_LOST) {
                for (Item &item : items) {
                    auto info = described<quire_seq_info>();
                    ok(library().seq_get_info(cache, item.seq, &info, &error));
                    EXPECT_NE(info.flags & QUIRE_SEQ_LOST, 0u);
                    if (item.drafts == 0) item.tokens.clear();
                }
                continue;
            }
            ok(status);
            launch(batch);
            read_log(open);
            ok(api.step_finish(cache, open, nullptr, QUIRE_STEP_OK, &error));
            return;
        }
    }
    void list(quire_step open) {
        quire_block_copy copies[64];
        quire_preemption preempted[16];
        uint32_t count = 0;
        ok(api.step_copies(cache, open, copies, 64, sizeof copies[0], &count, &error));
        ok(api.step_preempted(cache, open, preempted, 16, sizeof preempted[0], &count, &error));
    }
    void read_log(quire_step open) {
        if (!keeps_log_) return;
        uint64_t size = 0;
        ok(api.step_log(cache, open, nullptr, 0, &size, &error));
        logs_.emplace_back(size);
        ok(api.step_log(cache, open, logs_.back().data(), size, &size, &error));
    }

    // In a cache of their own: one with a log has none.
    void sessions() {
        cache = make_cache(device, 0);
        batch = make_batch(cache);
        quire_seq seq = sequence(0);
        step({{seq, tokens_from(1, 19)}});
        FaultedSession session(api, cache, seq, sequence_desc(0));
        step({{session.back(), {20, 21}}, {session.restored(), {20, 21}}});
        handover();
        ok(api.queue_sync(queue, &error));
        ok(api.step_abort(cache, begin({}), &error));  // which notices that all has run
        ok(api.batch_destroy(batch, &error));
        destroy_cache(cache);
    }

    // A prompt that leaves as it is computed, and comes back into the same cache.
    void handover() {
        const Tokens tokens = tokens_from(40, 10);
        const quire_seq seq = sequence(0);
        const FaultedHandover handed(api, cache, seq, sequence_desc(0), tokens, [&](auto layers) {
            quire_step open = begin({seq, tokens});
            while (api.step_commit(cache, open, batch, &error) == QUIRE_E_DEVICE_LOST)
                open = begin({seq, {}});  // it lost the step, and its tokens are known
            launch(batch);
            layers(open);
            ok(api.step_finish(cache, open, nullptr, QUIRE_STEP_OK, &error));
            ok(api.queue_sync(queue, &error));
        });
        step({{handed.back(), {20, 21}}});
    }

    void serve() {
        keeps_log_ = true;
        cache = make_cache(device, QUIRE_CACHE_LOG | QUIRE_CACHE_CALIBRATE | QUIRE_CACHE_EVENTS);
        batch = make_batch(cache);
        look();
        auto ns_desc = described<quire_namespace_desc>();
        quire_namespace ns = 0;
        ok(api.namespace_create(cache, &ns_desc, &ns, &error));
        auto ns_info = described<quire_namespace_info>();
        ok(api.namespace_get_info(cache, ns, &ns_info, &error));
        quire_seq tenant = sequence(ns);
        step({{tenant, tokens_from(1, 9)}});
        ok(api.seq_end(cache, tenant, QUIRE_END_DROP_PREFIX, &error));
        ok(api.namespace_destroy(cache, ns, &error));
        first_ = sequence(0);
        second_ = sequence(0);
        step({{first_, tokens_from(1, 19)}, {second_, tokens_from(1, 14)}});
        uint32_t hits = 0;
        quire_seq probe = sequence(0);
        Tokens wanted = tokens_from(1, 19);
        ok(api.prefix_probe(cache, probe, wanted.data(), 19, &hits, &error));
        EXPECT_EQ(hits, 16u);
        ok(api.seq_end(cache, probe, 0, &error));
        FaultedLease(api, cache, queue);
        FaultedInsert(api, instance);
        take_back();
        forks();
        drafts();
        preempt();
        calibrate();
    }
    void look() {
        auto info = described<quire_cache_info>();
        auto pool = described<quire_pool_info>();
        auto stats = described<quire_cache_stats>();
        ok(api.cache_get_info(cache, &info, &error));
        ok(api.cache_get_pool(cache, 0, 0, &pool, &error));
        ok(api.cache_get_stats(cache, &stats, &error));
        ok(api.cache_check(cache, &error));
        uint64_t dump_bytes = 0;
        ok(api.cache_dump(cache, 0, nullptr, 0, &dump_bytes, &error));
        quire_cache_event events[16];
        auto read = described<quire_events_info>();
        ok(api.cache_events(cache, 0, events, 16, sizeof *events, nullptr, 0, &read, &error));
        auto size = described<quire_size_desc>();
        size.layer_count = size.kv_heads = 1;
        size.k_head_dim = 8;
        size.memory_bytes = 1 << 20;
        auto sized = described<quire_size_info>();
        ok(api.size_estimate(&size, &sized, &error));
    }
    // A step that is undone leaves no trace, whatever failed meanwhile.
    void take_back() {
        std::string before = faults_.state();
        quire_step open = begin({first_, {7, 8}});
        add(open, {second_, {9}});
        quire_seq dropped[4];
        uint32_t count = 0;
        ok(api.step_drop(cache, open, second_, dropped, 4, &count, &error));
        ok(api.step_abort(cache, open, &error));
        EXPECT_EQ(difference(undone_state(before), undone_state(faults_.state())), "");
    }
    void forks() {
        quire_seq fork = 0;
        ok(api.seq_fork(cache, first_, 18, &fork, &error));
        step({{fork, {50, 51, 52, 53}}});
        ok(api.seq_truncate(cache, fork, 10, &error));
        auto info = described<quire_seq_info>();
        ok(api.seq_get_info(cache, fork, &info, &error));
        int32_t ids[16];
        uint32_t count = 0;
        ok(api.step_blocks(cache, 0, fork, 0, 0, ids, 16, &count, &error));
        ok(api.seq_end(cache, fork, 0, &error));
    }
    void drafts() {
        step({{first_, {QUIRE_TOKEN_UNKNOWN}}});
        auto info = described<quire_seq_info>();
        ok(library().seq_get_info(cache, first_, &info, &error));
        quire_token_span span{};
        span.seq = first_;
        span.position = info.known_tokens - 1;
        span.token_count = 1;
        quire_token name = 77;
        ok(api.seq_set_tokens(cache, &span, 1, sizeof span, &name, 1, &error));
        step({{first_, {60, 61, 62}, 2}});
        ok(api.seq_accept(cache, first_, 1, &error));
        step({{first_, {63, 64, 65}, 2}});
        uint32_t path[] = {0};
        ok(api.seq_accept_path(cache, first_, path, 1, &error));
    }
    void preempt() {
        for (uint32_t how : {QUIRE_PREEMPT_SWAP, QUIRE_PREEMPT_RECOMPUTE}) {
            for (;;) {
                uint32_t freed = 0;
                quire_step open = begin({});
                ok(api.step_preempt(cache, open, second_, how, &freed, &error));
                quire_status status = api.step_commit(cache, open, nullptr, &error);
                if (status == QUIRE_E_DEVICE_LOST) {
                    without_faults([&] { step({{second_, {}}}); });
                    continue;
                }
                ok(status);
                read_log(open);
                ok(api.step_finish(cache, open, nullptr, QUIRE_STEP_OK, &error));
                break;
            }
            step({{second_, {90}}});
        }
        quire_step failed = begin({second_, {91}});
        while (api.step_commit(cache, failed, batch, &error) == QUIRE_E_DEVICE_LOST)
            failed = begin({second_, {}});
        read_log(failed);
        ok(api.step_finish(cache, failed, nullptr, QUIRE_STEP_FAILED, &error));
    }
    template <typename Body>
    void without_faults(Body body) {
        quire_api faulted = api;
        api = library();
        body();
        api = faulted;
    }
    void calibrate() {
        uint64_t size = 0;
        ok(api.cache_save_calibration_wait(cache, nullptr, 0, &size, kForever, &error));
        std::vector<unsigned char> a(size), both(size);
        ok(api.cache_save_calibration_wait(cache, a.data(), size, &size, kForever, &error));
        ok(api.calibration_merge(a.data(), size, a.data(), size, both.data(), size, &size, &error));
        EXPECT_EQ(a, both);
        auto info = described<quire_calibration_info>();
        ok(api.calibration_get_info(a.data(), size, &info, &error));
        auto layer = described<quire_calibration_layer>();
        float amax[2 * kHeads];
        ok(api.calibration_get_layer(a.data(), size, 0, &layer, amax, 2 * kHeads, &error));
        EXPECT_EQ(amax[0], 0.5f);
    }

    // Another rank applies all logs. A rank that a fault loses starts over, up to the same log.
    void follow() {
        quire_device *rank = open_device();
        quire_queue *on = rank_queue_ = make_queue(rank);
        quire_cache *follower = make_cache(rank, QUIRE_CACHE_FOLLOWER | QUIRE_CACHE_CALIBRATE);
        for (size_t i = 0; i < logs_.size(); ++i) {
            while (apply(follower, on, i) == QUIRE_E_DEVICE_LOST) {
                ok(library().queue_sync(on, &error));
                without_faults([&] {
                    destroy_cache(follower);
                    follower = make_cache(rank, QUIRE_CACHE_FOLLOWER | QUIRE_CACHE_CALIBRATE);
                    for (size_t k = 0; k < i; ++k) ok(apply(follower, on, k));
                });
            }
        }
        uint64_t size = 0;  // it has no loads to report; the leader takes a report of none
        ok(api.cache_report_loads(follower, nullptr, 0, &size, &error));
        const auto none = empty_report(logs_[0]);
        ok(api.cache_take_report(cache, none.data(), none.size(), &error));
        destroy_cache(follower);
        destroy_queue(on);
        ok(api.device_close(rank, &error));
    }
    quire_status apply(quire_cache *follower, quire_queue *on, size_t i) {
        quire_step_desc desc = step_desc(&on);
        quire_step step = 0;
        quire_status status = api.log_apply(follower, logs_[i].data(), logs_[i].size(), &desc,
                                            nullptr, &step, &error);
        if (status < 0) return status;
        ok(api.step_finish(follower, step, nullptr, QUIRE_STEP_OK, &error));
        ok(api.queue_sync(on, &error));
        return status;
    }

    void migrate() {
        quire_device *target = open_device();
        ok(api.queue_sync(queue, &error));
        auto shard = described<quire_shard_desc>();
        shard.device = target;
        auto desc = described<quire_migrate_desc>();
        desc.flags = QUIRE_MIGRATE_COPY_HOST_TIER;
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        auto info = described<quire_migrate_info>();
        ok(api.cache_migrate_wait(cache, &desc, &info, kForever, &error));
        shard.device = device;
        ok(api.cache_migrate(cache, &desc, &info, &error));
        ok(api.batch_destroy(batch, &error));
        batch = make_batch(cache);
        ok(api.device_close(target, &error));
        step({{first_, {100, 101}}});
        ok(api.cache_reset(cache, &error));
        quire_native none{};
        asked(api.queue_signal_native(queue, &none, &error));
        asked(api.queue_after_native(queue, &none, &error));
    }

    void close() {
        ok(api.seq_end(cache, first_, 0, &error));
        ok(api.seq_end(cache, second_, 0, &error));
        ok(api.queue_sync(queue, &error));
        ok(api.step_abort(cache, begin({}), &error));  // which notices that all has run
        ok(api.batch_destroy(batch, &error));
        destroy_cache(cache);
        destroy_queue(queue);
        destroy_queue(other_queue);
        ok(api.device_close(device, &error));
        ok(api.instance_destroy(instance, &error));
    }

    Faults &faults_;
    quire_api api;
    quire_error error{};
    quire_instance *instance = nullptr;
    quire_device *device = nullptr;
    quire_queue *queue = nullptr, *other_queue = nullptr, *rank_queue_ = nullptr;
    quire_cache *cache = nullptr;
    quire_batch *batch = nullptr;
    quire_seq first_ = 0, second_ = 0;
    bool keeps_log_ = false;
    quire_step_result result_{};
    std::vector<float> k_, q_, out_;
    std::vector<std::vector<unsigned char>> logs_;
};

template <typename Function>
Function *find(const char *name) {
    void *module = dlopen(quire::tests::place(QUIRE_FAILING).c_str(), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function *>(dlsym(module, name));
}

// first: the first fault that each call meets. If a call can do without what that fault refuses, it
// succeeds, and its later faults are not tried.
uint64_t run(FaultKind kind, uint64_t first, bool looks, const char *title) {
    auto *plant = find<decltype(quire_failing_plant_call)>("quire_failing_plant_call");
    auto *answer = find<decltype(quire_failing_answer)>("quire_failing_answer");
    Faults faults(kind, first, looks, plant, answer);
    Engine(&faults).run();
    answer(QUIRE_E_DEVICE_LOST);
    g_faults = nullptr;
    EXPECT_EQ(faults.host.live_bytes, 0);
    EXPECT_EQ(faults.host.live_blocks, 0);
    EXPECT_EQ(not_called(faults), kLeaks);
    uint64_t refused = 0, absorbed = 0;
    for (const auto &[name, count] : faults.counts) {
        refused += count.refused;
        absorbed += count.absorbed;
        if (count.refused + count.absorbed == 0) continue;
        std::printf("%-14s %-28s %4llu calls, %4llu faults refused, %3llu absorbed\n", title,
                    name.c_str(), static_cast<unsigned long long>(count.calls),
                    static_cast<unsigned long long>(count.refused),
                    static_cast<unsigned long long>(count.absorbed));
    }
    std::printf("%s, %s compared: %zu entry points, %llu faults refused, %llu absorbed\n", title,
                looks ? "dumps" : "counts", faults.counts.size(),
                static_cast<unsigned long long>(refused),
                static_cast<unsigned long long>(absorbed));
    return refused;
}

TEST(FaultedCalls, host_memory) {
    for (uint64_t first = 1; first <= 3; ++first) {
        for (bool looks : {false, true}) {
            EXPECT_GT(run(FaultKind::host_memory, first, looks, "host memory"), 100u);
        }
    }
}

TEST(FaultedCalls, device_lost) {
    for (uint64_t first = 1; first <= 3; ++first) {
        for (bool looks : {false, true}) {
            EXPECT_GT(run(FaultKind::device_lost, first, looks, "device lost"), 50u);
        }
    }
}

TEST(FaultedCalls, device_memory) {
    for (uint64_t first = 1; first <= 3; ++first) {
        for (bool looks : {false, true}) {
            EXPECT_GT(run(FaultKind::device_memory, first, looks, "device memory"), 50u);
        }
    }
}

}  // namespace
