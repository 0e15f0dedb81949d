// SPDX-License-Identifier: Apache-2.0
//
// Calls on devices, queues, memory and batches with one wrong argument each: the right status, and
// words that say what was wrong. A pointer that must not be NULL is NULL in every function in turn.

#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "objects.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

class RefusedCall : public testing::Test {
 protected:
    RefusedCall() : w(library()) {
        quire_instance_desc host = described<quire_instance_desc>();
        EXPECT_TRUE(w.make(host)) << w.problem();
        auto info = described<quire_memory_info>();
        w.must("memory_get_info", w.api.memory_get_info(w.memory, &info, &w.error));
        address = info.address;
    }
    ~RefusedCall() override {
        w.destroy();
        EXPECT_STREQ(w.problem(), "");
    }
    void refuse(const char *words, quire_status wanted, quire_status got) {
        EXPECT_EQ(got, wanted) << words << ": " << w.error.message;
        EXPECT_NE(std::string(w.error.message).find(words), std::string::npos)
            << words << ": " << w.error.message;
    }

    Objects w;
    uint64_t address = 0;
};

// Calls `function` with `good` once per pointer, which is then NULL; the last is the error. Those
// that may be NULL are in `optional`, counted from 0.
template <typename... P, size_t... I>
void null_each(const char *name, quire_status (*function)(P...), const std::tuple<P...> &good,
               const std::set<size_t> &optional, std::index_sequence<I...>) {
    const auto with_null_at = [&](size_t place) {
        return function([&]() -> P {
            if constexpr (std::is_pointer_v<P>) {
                if (I == place) return nullptr;
            }
            return std::get<I>(good);
        }()...);
    };
    constexpr bool is_pointer[] = {std::is_pointer_v<P>...};
    for (size_t place = 0; place + 1 < sizeof...(P); ++place) {
        if (!is_pointer[place] || optional.contains(place)) continue;
        EXPECT_EQ(with_null_at(place), QUIRE_E_ARG) << name << ", argument " << place;
    }
}

template <typename... P, typename... A>
void null_each(const char *name, quire_status (*function)(P...), const std::set<size_t> &optional,
               A... arguments) {
    null_each(name, function, std::tuple<P...>{arguments...}, optional,
              std::index_sequence_for<P...>{});
}

TEST_F(RefusedCall, for_a_null_in_any_place_of_a_device) {
    auto device = described<quire_device_desc>();
    device.backend = "cpu";
    auto memory = described<quire_memory_desc>();
    memory.size_bytes = 64;
    auto info = described<quire_device_info>();
    auto memory_info = described<quire_memory_info>();
    auto backend = described<quire_backend_info>();
    auto host = described<quire_instance_desc>();
    quire_instance *instance = nullptr;
    quire_device *opened = nullptr;
    quire_queue *queue = nullptr;
    quire_fence *fence = nullptr;
    quire_memory *made = nullptr;
    uint64_t value = 0;
    uint32_t count = 0;
    quire_error *e = &w.error;
    null_each("instance_create", w.api.instance_create, {}, &host, &instance, e);
    null_each("backend_count", w.api.backend_count, {}, w.instance, &count, e);
    null_each("backend_get_info", w.api.backend_get_info, {}, w.instance, 0u, &backend, e);
    null_each("backend_load", w.api.backend_load, {}, w.instance, "/nowhere", &count, e);
    null_each("device_open", w.api.device_open, {}, w.instance, &device, &opened, e);
    null_each("device_get_info", w.api.device_get_info, {}, w.device, &info, e);
    null_each("queue_create", w.api.queue_create, {1}, w.device, nullptr, &queue, e);
    null_each("fence_create", w.api.fence_create, {}, w.device, uint64_t{0}, &fence, e);
    null_each("fence_read", w.api.fence_read, {}, w.fence, &value, e);
    null_each("queue_signal", w.api.queue_signal, {}, w.queue, w.fence, uint64_t{1}, e);
    null_each("queue_after", w.api.queue_after, {}, w.queue, w.fence, uint64_t{0}, e);
    null_each("memory_create", w.api.memory_create, {}, w.device, &memory, &made, e);
    null_each("memory_get_info", w.api.memory_get_info, {}, w.memory, &memory_info, e);
    null_each("memory_copy", w.api.memory_copy, {}, w.queue, w.memory, uint64_t{0}, w.memory,
              uint64_t{64}, uint64_t{16}, e);
    EXPECT_EQ(opened, nullptr);
    EXPECT_EQ(queue, nullptr);
    EXPECT_EQ(fence, nullptr);
    EXPECT_EQ(made, nullptr);
}

TEST_F(RefusedCall, for_a_null_in_any_place_of_a_step) {
    auto desc = described<quire_step_desc>();
    desc.queues = &w.queue;
    desc.queue_count = 1;
    const quire_token tokens[] = {4};
    quire_step_item item{};
    item.seq = w.seq;
    item.token_count = 1;
    quire_step_result result{};
    quire_step step = 0;
    quire_seq seq = 0;
    quire_preemption preemption{};
    quire_block_copy copy{};
    int32_t block = 0;
    uint32_t count = 0;
    quire_error *e = &w.error;
    const uint32_t item_size = sizeof item, result_size = sizeof result;
    null_each("step_begin", w.api.step_begin, {}, w.cache, &desc, &item, 1u, item_size, tokens, 1u,
              &result, result_size, &step, e);
    EXPECT_EQ(step, 0u);
    w.must("step_begin",
           w.api.step_begin(w.cache, &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step, e));
    null_each("step_add", w.api.step_add, {}, w.cache, step, &item, 1u, item_size, tokens, 1u,
              &result, result_size, e);
    null_each("step_drop", w.api.step_drop, {}, w.cache, step, w.seq, &seq, 1u, &count, e);
    null_each("step_preempt", w.api.step_preempt, {}, w.cache, step, w.seq,
              uint32_t{QUIRE_PREEMPT_AUTO}, &count, e);
    null_each("step_preempted", w.api.step_preempted, {}, w.cache, step, &preemption, 1u,
              uint32_t{sizeof preemption}, &count, e);
    null_each("step_blocks", w.api.step_blocks, {}, w.cache, step, w.seq, 0u, 0u, &block, 1u,
              &count, e);
    null_each("step_copies", w.api.step_copies, {}, w.cache, step, &copy, 1u, uint32_t{sizeof copy},
              &count, e);
    w.must("step_abort", w.api.step_abort(w.cache, step, e));
}

TEST_F(RefusedCall, for_a_null_in_any_place_of_a_lease) {
    auto desc = described<quire_lease_desc>();
    auto step_desc = described<quire_step_desc>();
    step_desc.queues = &w.queue;
    step_desc.queue_count = 1;
    auto info = described<quire_lease_info>();
    auto result = described<quire_lease_result>();
    const quire_token token = 4;
    quire_lease lease = 0;
    quire_step step = 0;
    quire_lease_block block{};
    int32_t id = 0;
    const int32_t *ids = &id;
    uint32_t count = 0;
    quire_error *e = &w.error;
    null_each("lease_create", w.api.lease_create, {}, w.cache, &desc, &lease, e);
    EXPECT_EQ(lease, 0u);
    w.must("lease_create", w.api.lease_create(w.cache, &desc, &lease, e));
    w.must("step_begin",
           w.api.step_begin(w.cache, &step_desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step, e));
    null_each("lease_end", w.api.lease_end, {}, w.cache, lease, e);
    null_each("lease_get_info", w.api.lease_get_info, {}, w.cache, lease, &info, e);
    null_each("lease_blocks", w.api.lease_blocks, {}, w.cache, lease, 0u, 0u, &block, 1u,
              uint32_t{sizeof block}, &count, e);
    null_each("lease_take", w.api.lease_take, {}, w.cache, step, lease, 0u, 1u, &id, &result, e);
    null_each("lease_give", w.api.lease_give, {}, w.cache, step, lease, 0u, ids, 1u, e);
    null_each("lease_pin", w.api.lease_pin, {}, w.cache, step, lease, 0u, ids, 1u, &result, e);
    null_each("lease_match", w.api.lease_match, {}, w.cache, step, lease, &token, 1u,
              uint32_t{QUIRE_MATCH_PIN}, &id, &result, e);
    null_each("lease_publish", w.api.lease_publish, {}, w.cache, step, lease, &token, 1u, ids, &id,
              &result, e);
    const int64_t number = 4;
    null_each("lease_find", w.api.lease_find, {}, w.cache, lease, &number, 1u,
              uint32_t{QUIRE_MATCH_LOOK}, &id, &result, e);
    null_each("lease_insert", w.api.lease_insert, {}, w.cache, lease, &number, &number, 1u, &id,
              &result, e);
    refuse("how is 2", QUIRE_E_ARG,
           w.api.lease_find(w.cache, lease, &number, 1, QUIRE_MATCH_PIN, &id, &result, e));
    null_each("lease_forget", w.api.lease_forget, {}, w.cache, lease, 0u, ids, 1u, &count, e);
    null_each("cache_evict", w.api.cache_evict, {}, w.cache, 0u, 1u, &id, &count, e);
    refuse("group is 9", QUIRE_E_ARG,
           w.api.lease_take(w.cache, step, lease, 9, 1, &id, &result, e));
    refuse("how 3", QUIRE_E_ARG,
           w.api.lease_match(w.cache, step, lease, &token, 1, 3, &id, &result, e));
    refuse("first is 1", QUIRE_E_ARG,
           w.api.lease_blocks(w.cache, lease, 0, 1, &block, 1, sizeof block, &count, e));
    w.must("step_abort", w.api.step_abort(w.cache, step, e));
    w.must("lease_end", w.api.lease_end(w.cache, lease, e));
}

TEST_F(RefusedCall, for_a_null_in_any_place_of_a_session) {
    quire_error *e = &w.error;
    auto save = described<quire_export_desc>();
    auto restore = described<quire_import_desc>();
    auto session = described<quire_session_info>();
    const char *const file = "/nowhere/at/all";
    quire_seq back = 0;
    null_each("seq_export_wait", w.api.seq_export_wait, {3}, w.cache, w.seq, &save, &session,
              uint64_t{0}, e);
    null_each("seq_import", w.api.seq_import, {3}, w.cache, &restore, &back, &session, e);
    null_each("seq_save_wait", w.api.seq_save_wait, {4}, w.cache, w.seq, &save, file, &session,
              uint64_t{0}, e);
    null_each("seq_restore", w.api.seq_restore, {4}, w.cache, &restore, file, &back, &session, e);
    EXPECT_EQ(back, 0u);
}

TEST_F(RefusedCall, for_a_null_in_any_place_of_a_report) {
    uint64_t size = 0;
    char byte = 0;
    null_each("cache_report_loads", w.api.cache_report_loads, {}, w.cache,
              static_cast<void *>(&byte), uint64_t{1}, &size, &w.error);
    null_each("cache_take_report", w.api.cache_take_report, {}, w.cache,
              static_cast<const void *>(&byte), uint64_t{1}, &w.error);
    refuse("follows no leader", QUIRE_E_UNSUPPORTED,
           w.api.cache_report_loads(w.cache, nullptr, 0, &size, &w.error));
    refuse("leads no others", QUIRE_E_UNSUPPORTED,
           w.api.cache_take_report(w.cache, &byte, 1, &w.error));
}

TEST_F(RefusedCall, for_a_null_in_any_place_of_a_handover) {
    quire_error *e = &w.error;
    const quire_token token = 1;
    auto send = described<quire_handover_send_desc>();
    send.tokens = &token;
    send.token_count = 1;
    auto receive = described<quire_handover_receive_desc>();
    auto progress = described<quire_handover_progress>();
    quire_handover none = 0, sender = 0, receiver = 0;
    uint64_t size = 0;
    char byte = 0;
    null_each("handover_send", w.api.handover_send, {}, w.cache, w.seq, &send, &none, e);
    null_each("handover_receive", w.api.handover_receive, {}, w.cache, &receive, &none, e);
    EXPECT_EQ(none, 0u);
    w.must("handover_send", w.api.handover_send(w.cache, w.seq, &send, &sender, e));
    w.must("handover_receive", w.api.handover_receive(w.cache, &receive, &receiver, e));
    null_each("handover_layers", w.api.handover_layers, {}, w.cache, sender, quire_step{1}, 0u, 1u,
              e);
    null_each("handover_read", w.api.handover_read, {5}, w.cache, sender, &byte, uint64_t{1}, &size,
              &progress, e);
    null_each("handover_write", w.api.handover_write, {5}, w.cache, receiver, &byte, uint64_t{1},
              &size, &progress, e);
    null_each("handover_end", w.api.handover_end, {}, w.cache, sender, e);
    w.must("handover_end", w.api.handover_end(w.cache, sender, e));
    w.must("handover_end", w.api.handover_end(w.cache, receiver, e));
}

TEST_F(RefusedCall, for_a_null_in_any_place_of_a_cache) {
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = 1;
    group.k_head_dim = group.v_head_dim = 64;
    auto desc = described<quire_cache_desc>();
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.blocks = 8;
    auto info = described<quire_cache_info>();
    auto pool = described<quire_pool_info>();
    auto stats = described<quire_cache_stats>();
    auto ns_desc = described<quire_namespace_desc>();
    auto ns_info = described<quire_namespace_info>();
    auto seq_desc = described<quire_seq_desc>();
    auto seq_info = described<quire_seq_info>();
    auto events = described<quire_events_info>();
    auto size = described<quire_size_info>();
    auto size_desc = described<quire_size_desc>();
    auto moved = described<quire_migrate_info>();
    auto migrate = described<quire_migrate_desc>();
    quire_cache_event event{};
    quire_token_span span{};
    quire_cache *cache = nullptr;
    quire_namespace ns = 0;
    quire_seq seq = 0;
    quire_token token = 0;
    uint32_t count = 0, path = 0;
    uint64_t bytes = 0;
    char buffer[8];
    quire_error *e = &w.error;
    const uint32_t span_size = sizeof span, event_size = sizeof event;
    null_each("cache_create", w.api.cache_create, {}, w.instance, &desc, &cache, e);
    EXPECT_EQ(cache, nullptr);
    null_each("cache_get_info", w.api.cache_get_info, {}, w.cache, &info, e);
    null_each("cache_get_pool", w.api.cache_get_pool, {}, w.cache, 0u, 0u, &pool, e);
    null_each("cache_get_stats", w.api.cache_get_stats, {}, w.cache, &stats, e);
    null_each("namespace_create", w.api.namespace_create, {}, w.cache, &ns_desc, &ns, e);
    EXPECT_EQ(ns, 0u);
    null_each("namespace_get_info", w.api.namespace_get_info, {}, w.cache, w.ns, &ns_info, e);
    null_each("seq_create", w.api.seq_create, {}, w.cache, &seq_desc, &seq, e);
    null_each("seq_fork", w.api.seq_fork, {}, w.cache, w.seq, 3u, &seq, e);
    EXPECT_EQ(seq, 0u);
    null_each("seq_set_tokens", w.api.seq_set_tokens, {}, w.cache, &span, 1u, span_size, &token, 1u,
              e);
    null_each("seq_get_info", w.api.seq_get_info, {}, w.cache, w.seq, &seq_info, e);
    null_each("seq_accept_path", w.api.seq_accept_path, {}, w.cache, w.seq, &path, 1u, e);
    null_each("prefix_probe", w.api.prefix_probe, {}, w.cache, w.seq, &token, 1u, &count, e);
    null_each("cache_events", w.api.cache_events, {5}, w.cache, 0u, &event, 1u, event_size, &token,
              1u, &events, e);
    refuse("tokens is NULL", QUIRE_E_ARG,
           w.api.cache_events(w.cache, 0, &event, 1, event_size, nullptr, 1, &events, e));
    refuse("flags", QUIRE_E_ARG,
           w.api.cache_events(w.cache, 2, &event, 1, event_size, &token, 1, &events, e));
    null_each("cache_dump", w.api.cache_dump, {}, w.cache, 0u, static_cast<void *>(buffer),
              uint64_t{8}, &bytes, e);
    null_each("step_log", w.api.step_log, {}, w.cache, w.step, static_cast<void *>(buffer),
              uint64_t{8}, &bytes, e);
    null_each("size_estimate", w.api.size_estimate, {}, &size_desc, &size, e);
    null_each("cache_migrate", w.api.cache_migrate, {}, w.cache, &migrate, &moved, e);
    null_each("calibration_merge", w.api.calibration_merge, {}, static_cast<const void *>(buffer),
              uint64_t{8}, static_cast<const void *>(buffer), uint64_t{8},
              static_cast<void *>(buffer), uint64_t{8}, &bytes, e);
}

TEST_F(RefusedCall, for_a_copy_that_is_not_within_its_memories) {
    auto desc = described<quire_memory_desc>();
    desc.size_bytes = 256;
    quire_memory *other = nullptr;
    w.must("memory_create", w.api.memory_create(w.device, &desc, &other, &w.error));
    const auto copy = [&](uint64_t to, uint64_t from, uint64_t bytes) {
        return w.api.memory_copy(w.queue, other, to, w.memory, from, bytes, &w.error);
    };
    refuse("reaches past a memory's end", QUIRE_E_ARG, copy(0, 0, 257));
    refuse("reaches past a memory's end", QUIRE_E_ARG, copy(257, 0, 0));
    refuse("reaches past a memory's end", QUIRE_E_ARG, copy(UINT64_MAX, 0, 2));
    refuse("reaches past a memory's end", QUIRE_E_ARG, copy(0, 4096, 1));
    EXPECT_EQ(copy(256, 4096, 0), QUIRE_OK) << w.error.message;
    EXPECT_EQ(copy(0, 4096 - 256, 256), QUIRE_OK) << w.error.message;
    refuse("overlap", QUIRE_E_ARG,
           w.api.memory_copy(w.queue, w.memory, 0, w.memory, 15, 16, &w.error));
    refuse("overlap", QUIRE_E_ARG,
           w.api.memory_copy(w.queue, w.memory, 15, w.memory, 0, 16, &w.error));
    EXPECT_EQ(w.api.memory_copy(w.queue, w.memory, 16, w.memory, 0, 16, &w.error), QUIRE_OK);
    desc.size_bytes = 0;
    quire_memory *none = nullptr;
    refuse("size_bytes is 0", QUIRE_E_ARG, w.api.memory_create(w.device, &desc, &none, &w.error));
    w.must("queue_sync", w.api.queue_sync(w.queue, &w.error));
    w.must("memory_destroy", w.api.memory_destroy(other, &w.error));
}

TEST_F(RefusedCall, for_objects_of_two_devices) {
    auto desc = described<quire_device_desc>();
    desc.backend = "cpu";
    desc.threads = 1;
    quire_device *device = nullptr;
    quire_queue *queue = nullptr;
    w.must("device_open", w.api.device_open(w.instance, &desc, &device, &w.error));
    w.must("queue_create", w.api.queue_create(device, nullptr, &queue, &w.error));
    refuse("another device", QUIRE_E_ARG, w.api.queue_signal(queue, w.fence, 1, &w.error));
    refuse("another device", QUIRE_E_ARG, w.api.queue_after(queue, w.fence, 0, &w.error));
    refuse("must belong to one device", QUIRE_E_ARG,
           w.api.memory_copy(queue, w.memory, 0, w.memory, 64, 16, &w.error));
    auto kv = described<quire_kv_args>();
    kv.k = kv.v = address;
    refuse("holds no shard", QUIRE_E_ARG, w.api.kv_write(w.batch, &kv, queue, &w.error));
    w.must("queue_destroy", w.api.queue_destroy(queue, &w.error));
    w.must("device_close", w.api.device_close(device, &w.error));
}

TEST_F(RefusedCall, for_a_launch_without_its_addresses) {
    const auto write = [&](const std::function<void(quire_kv_args *)> &spoil) {
        auto args = described<quire_kv_args>();
        args.k = args.v = address;
        spoil(&args);
        return w.api.kv_write(w.batch, &args, w.queue, &w.error);
    };
    refuse("k or v is 0", QUIRE_E_ARG, write([](auto *a) { a->k = 0; }));
    refuse("k or v is 0", QUIRE_E_ARG, write([](auto *a) { a->v = 0; }));
    refuse("no rope", QUIRE_E_ARG, write([&](auto *a) { a->q = address; }));
    EXPECT_LT(write([](auto *a) { a->layer = 1; }), 0);
    EXPECT_LT(write([](auto *a) { a->dtype = 1; }), 0);
    const auto attend = [&](const std::function<void(quire_attend_args *)> &spoil) {
        auto args = described<quire_attend_args>();
        args.q = address;
        args.out = address + 1024;
        spoil(&args);
        return w.api.attend(w.batch, &args, w.queue, &w.error);
    };
    refuse("q or out is 0", QUIRE_E_ARG, attend([](auto *a) { a->q = 0; }));
    refuse("q or out is 0", QUIRE_E_ARG, attend([](auto *a) { a->out = 0; }));
    refuse("sinks", QUIRE_E_ARG, attend([&](auto *a) { a->sinks = address; }));
    EXPECT_LT(attend([](auto *a) { a->layer = 1; }), 0);
    EXPECT_EQ(write([](auto *) {}), QUIRE_OK) << w.error.message;
    EXPECT_EQ(attend([](auto *) {}), QUIRE_OK) << w.error.message;
}

TEST_F(RefusedCall, for_parts_that_cannot_be_merged) {
    const auto merge = [&](const std::function<void(quire_merge_args *)> &spoil) {
        auto args = described<quire_merge_args>();
        args.parts = address;
        args.lses = address + 512;
        args.out = address + 1024;
        args.part_count = args.token_count = args.heads = 1;
        args.head_dim = 64;
        spoil(&args);
        return w.api.attention_merge(w.queue, &args, &w.error);
    };
    const char *addresses = "parts, lses or out is 0";
    refuse(addresses, QUIRE_E_ARG, merge([](auto *a) { a->parts = 0; }));
    refuse(addresses, QUIRE_E_ARG, merge([](auto *a) { a->lses = 0; }));
    refuse(addresses, QUIRE_E_ARG, merge([](auto *a) { a->out = 0; }));
    const char *counts = "part_count, heads and head_dim must not be 0";
    refuse(counts, QUIRE_E_ARG, merge([](auto *a) { a->part_count = 0; }));
    refuse(counts, QUIRE_E_ARG, merge([](auto *a) { a->heads = 0; }));
    refuse(counts, QUIRE_E_ARG, merge([](auto *a) { a->head_dim = 0; }));
    refuse("dtype", QUIRE_E_UNSUPPORTED, merge([](auto *a) { a->dtype = QUIRE_DTYPE_I8; }));
    refuse("larger than 2^48", QUIRE_E_LIMIT,
           merge([](auto *a) { a->token_count = a->heads = UINT32_MAX; }));
    EXPECT_EQ(merge([](auto *) {}), QUIRE_OK) << w.error.message;
}

TEST_F(RefusedCall, for_a_batch_that_the_cache_cannot_fill) {
    Manager books;
    auto attention = described<quire_attention_desc>();
    attention.q_heads = 1;
    const auto create = [&](quire_cache *cache,
                            const std::function<void(quire_batch_desc *)> &spoil) {
        auto desc = described<quire_batch_desc>();
        desc.max_rows = desc.max_blocks_per_row = desc.max_query_tokens = 4;
        desc.attention = &attention;
        desc.attention_stride = sizeof attention;
        spoil(&desc);
        quire_batch *out = nullptr;
        quire_status status = w.api.batch_create(cache, &desc, &out, &w.error);
        if (status == QUIRE_OK) w.api.batch_destroy(out, nullptr);
        return status;
    };
    refuse("attention_count is 4097", QUIRE_E_ARG,
           create(w.cache, [](auto *d) { d->attention_count = 4097; }));
    refuse("needs a cache with memory", QUIRE_E_UNSUPPORTED,
           create(books.cache(), [](auto *d) { d->attention_count = 1; }));
    EXPECT_EQ(create(books.cache(), [](auto *) {}), QUIRE_OK) << w.error.message;
    auto views = described<quire_batch_views>();
    refuse("group is 1", QUIRE_E_ARG, w.api.batch_get_views(w.batch, 1, 0, &views, &w.error));
}

TEST_F(RefusedCall, for_a_host_that_gives_half_an_allocator) {
    auto host = described<quire_instance_desc>();
    host.allocate = [](void *, uint64_t, uint64_t) -> void * { return nullptr; };
    quire_instance *out = nullptr;
    refuse("allocate and release", QUIRE_E_ARG, w.api.instance_create(&host, &out, &w.error));
    EXPECT_EQ(out, nullptr);
}

}  // namespace
