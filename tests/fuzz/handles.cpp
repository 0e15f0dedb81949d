// SPDX-License-Identifier: Apache-2.0
//
// handles: every function of the table, in any order, with any handles, sizes of structs, flags,
// reserved fields and numbers. Objects and arrays are real, as the headers ask of a caller.
//
// A refusal has words; the caches stay sound; in the end everything is given back.
//
// Threads: none.

#include <map>
#include <string>

#include "answers.hpp"
#include "arguments.hpp"
#include "library.hpp"
#include "simulated.hpp"

namespace {

using namespace quire::fuzz;

constexpr uint32_t kMostCalls = 200;

struct Call {
    const char *name;
    quire_status (*run)(Arguments *a);
};

const Call kCalls[] = {
    {"backend_count",
     [](Arguments *a) { return a->api.backend_count(a->instance, a->number_out(), a->error()); }},
    {"backend_get_info",
     [](Arguments *a) {
         return a->api.backend_get_info(a->instance, a->n32(), a->output<quire_backend_info>(),
                                        a->error());
     }},
    {"backend_load",
     [](Arguments *a) {
         return a->api.backend_load(a->instance, a->text(), a->number_out(), a->error());
     }},
    {"device_get_info",
     [](Arguments *a) {
         return a->api.device_get_info(a->device, a->output<quire_device_info>(), a->error());
     }},
    {"queue_create",
     [](Arguments *a) {
         return a->made(&a->queues, [&](auto out) {
             return a->api.queue_create(a->device, a->native(), out, a->error());
         });
     }},
    {"queue_destroy",
     [](Arguments *a) {
         return a->gone(&a->queues, [&](auto *q) { return a->api.queue_destroy(q, a->error()); });
     }},
    {"queue_sync", [](Arguments *a) { return a->api.queue_sync(a->one(a->queues), a->error()); }},
    {"fence_create",
     [](Arguments *a) {
         return a->made(&a->fences, [&](auto out) {
             return a->api.fence_create(a->device, 1 + (a->n64() & 7), out, a->error());
         });
     }},
    {"fence_destroy",
     [](Arguments *a) {
         return a->gone(&a->fences, [&](auto *f) { return a->api.fence_destroy(f, a->error()); });
     }},
    {"fence_read",
     [](Arguments *a) { return a->api.fence_read(a->one(a->fences), a->size_out(), a->error()); }},
    {"fence_signal",
     [](Arguments *a) { return a->api.fence_signal(a->one(a->fences), a->n64(), a->error()); }},
    {"fence_wait",
     [](Arguments *a) {
         return a->api.fence_wait(a->one(a->fences), a->n64(), a->n64() & 1023, a->error());
     }},
    {"queue_signal",
     [](Arguments *a) {
         return a->api.queue_signal(a->one(a->queues), a->one(a->fences), a->n64(), a->error());
     }},
    // A value that was reached: a queue that waits for another one would wait for ever.
    {"queue_after",
     [](Arguments *a) {
         return a->api.queue_after(a->one(a->queues), a->one(a->fences), 1, a->error());
     }},
    {"queue_signal_native",
     [](Arguments *a) {
         return a->api.queue_signal_native(a->one(a->queues), a->native(), a->error());
     }},
    {"queue_after_native",
     [](Arguments *a) {
         return a->api.queue_after_native(a->one(a->queues), a->native(), a->error());
     }},
    {"memory_create",
     [](Arguments *a) {
         return a->made(&a->memories, [&](auto out) {
             quire_memory_desc desc{};
             desc.size_bytes = a->n64();
             desc.kind = a->n32();
             desc.reserved0 = a->rare32();
             return a->api.memory_create(a->device, a->input(desc), out, a->error());
         });
     }},
    {"memory_destroy",
     [](Arguments *a) {
         return a->gone(&a->memories,
                        [&](auto *m) { return a->api.memory_destroy(m, a->error()); });
     }},
    {"memory_get_info",
     [](Arguments *a) {
         return a->api.memory_get_info(a->one(a->memories), a->output<quire_memory_info>(),
                                       a->error());
     }},
    {"memory_copy",
     [](Arguments *a) {
         return a->api.memory_copy(a->one(a->queues), a->one(a->memories), a->n64(),
                                   a->one(a->memories), a->n64(), a->n64(), a->error());
     }},
    {"cache_create",
     [](Arguments *a) {
         return a->made(&a->caches, [&](auto out) {
             return a->api.cache_create(a->instance, a->cache_desc(), out, a->error());
         });
     }},
    {"cache_get_info",
     [](Arguments *a) {
         return a->api.cache_get_info(a->cache(), a->output<quire_cache_info>(), a->error());
     }},
    {"cache_get_pool",
     [](Arguments *a) {
         return a->api.cache_get_pool(a->cache(), a->n32(), a->n32(), a->output<quire_pool_info>(),
                                      a->error());
     }},
    {"cache_get_stats",
     [](Arguments *a) {
         return a->api.cache_get_stats(a->cache(), a->output<quire_cache_stats>(), a->error());
     }},
    {"cache_reset", [](Arguments *a) { return a->api.cache_reset(a->cache(), a->error()); }},
    {"cache_check", [](Arguments *a) { return a->api.cache_check(a->cache(), a->error()); }},
    {"cache_dump",
     [](Arguments *a) {
         Room room = a->room();
         return a->api.cache_dump(a->cache(), a->n32(), room.bytes, room.size_bytes, a->size_out(),
                                  a->error());
     }},
    {"cache_events",
     [](Arguments *a) {
         uint32_t capacity = a->below(8), stride = a->stride<quire_cache_event>();
         uint32_t tokens = a->below(16);
         return a->api.cache_events(a->cache(), a->n32(),
                                    a->outputs<quire_cache_event>(capacity, stride), capacity,
                                    stride, a->outputs<quire_token>(tokens, sizeof(quire_token)),
                                    tokens, a->output<quire_events_info>(), a->error());
     }},
    {"cache_save_calibration_wait",
     [](Arguments *a) {
         Room room = a->room();
         return a->api.cache_save_calibration_wait(a->cache(), room.bytes, room.size_bytes,
                                                   a->size_out(), a->n64() & 1023, a->error());
     }},
    {"cache_migrate",
     [](Arguments *a) {
         return a->api.cache_migrate(a->cache(), a->migrate_desc(), a->output<quire_migrate_info>(),
                                     a->error());
     }},
    {"cache_migrate_wait",
     [](Arguments *a) {
         return a->api.cache_migrate_wait(a->cache(), a->migrate_desc(),
                                          a->output<quire_migrate_info>(), a->n64() & 1023,
                                          a->error());
     }},
    {"calibration_get_info",
     [](Arguments *a) {
         Room room = a->room();
         return a->api.calibration_get_info(room.bytes, room.size_bytes,
                                            a->output<quire_calibration_info>(), a->error());
     }},
    {"calibration_get_layer",
     [](Arguments *a) {
         Room room = a->room();
         uint32_t capacity = a->below(16);
         return a->api.calibration_get_layer(
             room.bytes, room.size_bytes, a->n32(), a->output<quire_calibration_layer>(),
             a->outputs<float>(capacity, sizeof(float)), capacity, a->error());
     }},
    {"calibration_merge",
     [](Arguments *a) {
         Room left = a->room(), right = a->room(), out = a->room();
         return a->api.calibration_merge(left.bytes, left.size_bytes, right.bytes, right.size_bytes,
                                         out.bytes, out.size_bytes, a->size_out(), a->error());
     }},
    {"size_estimate",
     [](Arguments *a) {
         return a->api.size_estimate(a->size_desc(), a->output<quire_size_info>(), a->error());
     }},
    {"namespace_create",
     [](Arguments *a) {
         quire_namespace_desc desc{};
         desc.key_size_bytes = a->below(40);
         desc.key = a->bytes(desc.key_size_bytes);
         desc.quota_blocks = a->n32();
         desc.key_bytes = a->n64();
         return a->handle_made([&](auto out) {
             return a->api.namespace_create(a->cache(), a->input(desc), out, a->error());
         });
     }},
    {"namespace_destroy",
     [](Arguments *a) { return a->api.namespace_destroy(a->cache(), a->handle(), a->error()); }},
    {"namespace_get_info",
     [](Arguments *a) {
         return a->api.namespace_get_info(a->cache(), a->handle(),
                                          a->output<quire_namespace_info>(), a->error());
     }},
    {"seq_create",
     [](Arguments *a) {
         return a->handle_made([&](auto out) {
             return a->api.seq_create(a->cache(), a->seq_desc(), out, a->error());
         });
     }},
    {"seq_end",
     [](Arguments *a) {
         return a->api.seq_end(a->cache(), a->handle(), a->rare32() & 3, a->error());
     }},
    {"seq_fork",
     [](Arguments *a) {
         return a->handle_made([&](auto out) {
             return a->api.seq_fork(a->cache(), a->handle(), a->n32(), out, a->error());
         });
     }},
    {"seq_truncate",
     [](Arguments *a) {
         return a->api.seq_truncate(a->cache(), a->handle(), a->n32(), a->error());
     }},
    {"seq_accept",
     [](Arguments *a) { return a->api.seq_accept(a->cache(), a->handle(), a->n32(), a->error()); }},
    {"seq_accept_path",
     [](Arguments *a) {
         uint32_t count = a->below(6);
         return a->api.seq_accept_path(a->cache(), a->handle(), a->numbers(count), count,
                                       a->error());
     }},
    {"seq_set_tokens",
     [](Arguments *a) {
         uint32_t count = a->below(3), stride = a->stride<quire_token_span>();
         quire_token_span spans[3] = {};
         for (quire_token_span &span : spans) {
             span = {a->handle(), a->n32(), a->n32(), a->n32(), a->rare32()};
         }
         uint32_t tokens = a->below(16);
         return a->api.seq_set_tokens(a->cache(), a->inputs(spans, count, stride), count, stride,
                                      a->numbers(tokens), tokens, a->error());
     }},
    {"seq_get_info",
     [](Arguments *a) {
         return a->api.seq_get_info(a->cache(), a->handle(), a->output<quire_seq_info>(),
                                    a->error());
     }},
    {"prefix_probe",
     [](Arguments *a) {
         uint32_t tokens = a->below(16);
         return a->api.prefix_probe(a->cache(), a->handle(), a->numbers(tokens), tokens,
                                    a->number_out(), a->error());
     }},
    {"step_begin",
     [](Arguments *a) {
         Items items = a->items();
         return a->handle_made([&](auto out) {
             return a->api.step_begin(a->cache(), a->step_desc(), items.items, items.count,
                                      items.stride, items.tokens, items.token_count, items.results,
                                      items.result_stride, out, a->error());
         });
     }},
    {"step_add",
     [](Arguments *a) {
         Items items = a->items();
         return a->api.step_add(a->cache(), a->handle(), items.items, items.count, items.stride,
                                items.tokens, items.token_count, items.results, items.result_stride,
                                a->error());
     }},
    {"step_drop",
     [](Arguments *a) {
         uint32_t capacity = a->below(6);
         return a->api.step_drop(a->cache(), a->handle(), a->handle(),
                                 a->outputs<quire_seq>(capacity, sizeof(quire_seq)), capacity,
                                 a->number_out(), a->error());
     }},
    {"step_preempt",
     [](Arguments *a) {
         return a->api.step_preempt(a->cache(), a->handle(), a->handle(), a->n32() & 7,
                                    a->number_out(), a->error());
     }},
    {"step_preempted",
     [](Arguments *a) {
         uint32_t capacity = a->below(6), stride = a->stride<quire_preemption>();
         return a->api.step_preempted(a->cache(), a->handle(),
                                      a->outputs<quire_preemption>(capacity, stride), capacity,
                                      stride, a->number_out(), a->error());
     }},
    {"step_abort",
     [](Arguments *a) { return a->api.step_abort(a->cache(), a->handle(), a->error()); }},
    {"step_commit",
     [](Arguments *a) {
         return a->api.step_commit(a->cache(), a->handle(), a->one(a->batches), a->error());
     }},
    {"step_finish",
     [](Arguments *a) {
         return a->api.step_finish(a->cache(), a->handle(), a->native(), a->n32() & 3, a->error());
     }},
    {"step_blocks",
     [](Arguments *a) {
         uint32_t capacity = a->below(16);
         return a->api.step_blocks(a->cache(), a->rare_handle(), a->handle(), a->n32() & 3,
                                   a->n32(), a->outputs<int32_t>(capacity, sizeof(int32_t)),
                                   capacity, a->number_out(), a->error());
     }},
    {"step_copies",
     [](Arguments *a) {
         uint32_t capacity = a->below(6), stride = a->stride<quire_block_copy>();
         return a->api.step_copies(a->cache(), a->handle(),
                                   a->outputs<quire_block_copy>(capacity, stride), capacity, stride,
                                   a->number_out(), a->error());
     }},
    {"step_log",
     [](Arguments *a) {
         Room room = a->room();
         return a->api.step_log(a->cache(), a->handle(), room.bytes, room.size_bytes, a->size_out(),
                                a->error());
     }},
    {"log_apply",
     [](Arguments *a) {
         Room room = a->room();
         return a->handle_made([&](auto out) {
             return a->api.log_apply(a->cache(), room.bytes, room.size_bytes, a->step_desc(),
                                     a->one(a->batches), out, a->error());
         });
     }},
    {"cache_report_loads",
     [](Arguments *a) {
         Room room = a->room();
         return a->api.cache_report_loads(a->cache(), room.bytes, room.size_bytes, a->size_out(),
                                          a->error());
     }},
    {"cache_take_report",
     [](Arguments *a) {
         Room room = a->room();
         return a->api.cache_take_report(a->cache(), room.bytes, room.size_bytes, a->error());
     }},
    {"batch_create",
     [](Arguments *a) {
         return a->made(&a->batches, [&](auto out) {
             return a->api.batch_create(a->cache(), a->batch_desc(), out, a->error());
         });
     }},
    {"batch_destroy",
     [](Arguments *a) {
         return a->gone(&a->batches, [&](auto *b) { return a->api.batch_destroy(b, a->error()); });
     }},
    {"batch_get_views",
     [](Arguments *a) {
         return a->api.batch_get_views(a->one(a->batches), a->n32() & 3, a->n32() & 3,
                                       a->output<quire_batch_views>(), a->error());
     }},
    {"kv_write",
     [](Arguments *a) {
         quire_kv_args args{0,
                            0,
                            nullptr,
                            a->n64(),
                            a->n64(),
                            a->n32() & 7,
                            a->n32(),
                            a->signed64(),
                            a->signed64(),
                            a->n64(),
                            a->signed64()};
         return a->api.kv_write(a->one(a->batches), a->input(args), a->one(a->queues), a->error());
     }},
    {"attend",
     [](Arguments *a) {
         quire_attend_args args{0,
                                0,
                                nullptr,
                                a->n64(),
                                a->n64(),
                                a->n64(),
                                a->n32() & 7,
                                a->rare32(),
                                a->signed64(),
                                a->signed64(),
                                a->n64()};
         return a->api.attend(a->one(a->batches), a->input(args), a->one(a->queues), a->error());
     }},
    {"seq_export_wait",
     [](Arguments *a) {
         return a->api.seq_export_wait(a->cache(), a->handle(), a->export_desc(),
                                       a->output<quire_session_info>(), a->n64() & 1023,
                                       a->error());
     }},
    {"seq_import",
     [](Arguments *a) {
         return a->handle_made([&](auto out) {
             return a->api.seq_import(a->cache(), a->import_desc(), out,
                                      a->output<quire_session_info>(), a->error());
         });
     }},
    {"seq_save_wait",
     [](Arguments *a) {
         const char *path = a->absent();
         return a->api.seq_save_wait(a->cache(), a->handle(), a->export_desc(), path,
                                     a->output<quire_session_info>(), a->n64() & 1023, a->error());
     }},
    {"seq_restore",
     [](Arguments *a) {
         const char *path = a->absent();
         return a->handle_made([&](auto out) {
             return a->api.seq_restore(a->cache(), a->import_desc(), path, out,
                                       a->output<quire_session_info>(), a->error());
         });
     }},
    {"handover_send",
     [](Arguments *a) {
         return a->handle_made([&](auto out) {
             return a->api.handover_send(a->cache(), a->handle(), a->send_desc(), out, a->error());
         });
     }},
    {"handover_layers",
     [](Arguments *a) {
         return a->api.handover_layers(a->cache(), a->handle(), a->handle(), a->n32(), a->n32(),
                                       a->error());
     }},
    {"handover_read",
     [](Arguments *a) {
         return a->read_handover([&](void *buffer, uint64_t capacity, uint64_t *size) {
             return a->api.handover_read(a->cache(), a->handle(), buffer, capacity, size,
                                         a->output<quire_handover_progress>(), a->error());
         });
     }},
    {"handover_receive",
     [](Arguments *a) {
         return a->handle_made([&](auto out) {
             return a->api.handover_receive(a->cache(), a->receive_desc(), out, a->error());
         });
     }},
    {"handover_write",
     [](Arguments *a) {
         return a->write_handover([&](const char *bytes, uint64_t size_bytes, uint64_t *used) {
             return a->api.handover_write(a->cache(), a->handle(), bytes, size_bytes, used,
                                          a->output<quire_handover_progress>(), a->error());
         });
     }},
    {"handover_end",
     [](Arguments *a) { return a->api.handover_end(a->cache(), a->handle(), a->error()); }},
    {"attention_merge",
     [](Arguments *a) {
         return a->api.attention_merge(a->one(a->queues), a->merge_args(), a->error());
     }},
    {"lease_create",
     [](Arguments *a) {
         return a->handle_made([&](auto out) {
             quire_lease_desc desc{};
             desc.ns = a->rare_handle();
             return a->api.lease_create(a->cache(), a->input(desc), out, a->error());
         });
     }},
    {"lease_end",
     [](Arguments *a) { return a->api.lease_end(a->cache(), a->handle(), a->error()); }},
    {"lease_get_info",
     [](Arguments *a) {
         return a->api.lease_get_info(a->cache(), a->handle(), a->output<quire_lease_info>(),
                                      a->error());
     }},
    {"lease_blocks",
     [](Arguments *a) {
         uint32_t count = a->below(6), stride = a->stride<quire_lease_block>();
         return a->api.lease_blocks(a->cache(), a->handle(), a->below(4), a->below(4),
                                    a->outputs<quire_lease_block>(count, stride), count, stride,
                                    a->number_out(), a->error());
     }},
    {"lease_take",
     [](Arguments *a) {
         uint32_t count = a->below(6);
         return a->api.lease_take(a->cache(), a->handle(), a->handle(), a->below(4), count,
                                  a->outputs<int32_t>(count, 4), a->output<quire_lease_result>(),
                                  a->error());
     }},
    {"lease_give",
     [](Arguments *a) {
         uint32_t count = a->below(6);
         return a->api.lease_give(a->cache(), a->handle(), a->handle(), a->below(4),
                                  reinterpret_cast<const int32_t *>(a->numbers(count)), count,
                                  a->error());
     }},
    {"lease_pin",
     [](Arguments *a) {
         uint32_t count = a->below(6);
         return a->api.lease_pin(a->cache(), a->handle(), a->handle(), a->below(4),
                                 reinterpret_cast<const int32_t *>(a->numbers(count)), count,
                                 a->output<quire_lease_result>(), a->error());
     }},
    // Room for the blocks of each token in every group.
    {"lease_match",
     [](Arguments *a) {
         uint32_t tokens = a->below(16);
         return a->api.lease_match(a->cache(), a->rare_handle(), a->handle(), a->numbers(tokens),
                                   tokens, a->below(4), a->outputs<int32_t>(tokens * 16, 4),
                                   a->output<quire_lease_result>(), a->error());
     }},
    {"lease_publish",
     [](Arguments *a) {
         uint32_t tokens = a->below(16);
         const auto *ids = reinterpret_cast<const int32_t *>(a->numbers(tokens * 16));
         return a->api.lease_publish(a->cache(), a->handle(), a->handle(), a->numbers(tokens),
                                     tokens, ids, a->outputs<int32_t>(tokens * 16, 4),
                                     a->output<quire_lease_result>(), a->error());
     }},
    {"lease_find",
     [](Arguments *a) {
         uint32_t tokens = a->below(16);
         return a->api.lease_find(a->cache(), a->handle(), a->wide_numbers(tokens), tokens,
                                  a->below(4), a->outputs<int32_t>(tokens * 16, 4),
                                  a->output<quire_lease_result>(), a->error());
     }},
    {"lease_insert",
     [](Arguments *a) {
         uint32_t tokens = a->below(16);
         const int64_t *slots = a->wide_numbers(tokens);
         return a->api.lease_insert(a->cache(), a->handle(), a->wide_numbers(tokens), slots, tokens,
                                    a->outputs<int32_t>(tokens, 4), a->output<quire_lease_result>(),
                                    a->error());
     }},
    {"lease_forget",
     [](Arguments *a) {
         uint32_t count = a->below(6);
         return a->api.lease_forget(a->cache(), a->handle(), a->below(4),
                                    reinterpret_cast<const int32_t *>(a->numbers(count)), count,
                                    a->number_out(), a->error());
     }},
    {"cache_evict",
     [](Arguments *a) {
         uint32_t count = a->below(6);
         return a->api.cache_evict(a->cache(), a->below(4), count, a->outputs<int32_t>(count, 4),
                                   a->number_out(), a->error());
     }},
};

// Made and given back around the calls; abandoning is the target `backend`; stores are plugins of
// their own, which tests/tiers and tests/stores try.
constexpr const char *kElsewhere[] = {
    "instance_create", "instance_destroy",  "device_open",       "device_close",
    "cache_destroy",   "cache_abandon",     "queue_abandon",     "device_abandon",
    "tier_open",       "tier_close_wait",   "tier_get_info",     "tier_get_stats",
    "tier_list",       "tier_request_wait", "cache_attach_tier", "cache_detach_tier_wait",
    "cache_poll_tier", "cache_load_wait",   "cache_cancel_load", "cache_get_tier_stats"};

bool every_function_is_called() {
    std::map<std::string, int> rows;
    for (const Call &call : kCalls) ++rows[call.name];
    for (const char *name : kElsewhere) ++rows[name];
#define QUIRE_HAS_ROW(name, parameters) \
    require(rows[#name] == 1, "each function has one row, and not " #name);
    QUIRE_API_LIST(QUIRE_HAS_ROW)
#undef QUIRE_HAS_ROW
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static const bool complete = every_function_is_called();
    Bytes input(data, size_bytes);
    Arguments arguments(&input, simulated_plugin(honest_table()));
    for (uint32_t calls = 0; complete && calls < kMostCalls && !input.ended(); ++calls) {
        const Call &call = kCalls[input.byte() % std::size(kCalls)];
        arguments.check(call.name, call.run(&arguments));
    }
    arguments.close();
    return 0;
}
