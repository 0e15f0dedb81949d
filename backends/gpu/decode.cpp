// SPDX-License-Identifier: Apache-2.0

#include "decode.hpp"

#include <algorithm>

#include "device.hpp"
#include "enqueue.hpp"
#include "queue.hpp"
#include "work_shape.hpp"

namespace quire::gpu {

namespace {

// Enough for four times what the largest GPUs run at once, so that no multiprocessor is idle for
// long at the end, and few enough to cost little where nothing is left to do.
constexpr uint64_t kMostDecodeBlocks = 1024;
struct Instance {
    uint32_t format;
    uint32_t dim;
    KernelName narrow, wide;
};
constexpr Instance kInstances[] = {
#define QUIRE_INSTANCE(name, format, dim) \
    {format, dim, KernelName::decode_##name##_##dim, KernelName::decode_wide_##name##_##dim},
    QUIRE_DECODE_INSTANCES(QUIRE_INSTANCE)
#undef QUIRE_INSTANCE
};

const Instance *find_instance(uint32_t format, uint32_t dim) {
    for (const Instance &instance : kInstances) {
        if (instance.format == format && instance.dim == dim) return &instance;
    }
    return nullptr;
}

// Names a list for the call; empty if no other call may use it. The caller sets plan and rows_id.
ListedRows rows_of(Enqueue &enqueue, Queue &queue, const AttendCall &call) {
    ListedRows rows;
    rows.scratch = queue.scratch;
    rows.block_table = call.block_table;
    rows.lengths = call.lengths;
    rows.cu_q = call.cu_q;
    rows.shared_prefix = call.shared_prefix;
    rows.block_table_stride = call.block_table_stride;
    rows.row_count = call.row_count;
    rows.query_tokens = call.query_tokens;
    rows.block_count = call.block_count;
    rows.block_tokens = call.block_tokens;
    rows.chunk_count = call.chunk_count;
    if (!enqueue.is_captured()) return rows;
    const Driver &driver = *queue.device->context.driver;
    bool is_known = driver.capture_id != nullptr &&
                    driver.capture_id(queue.stream, &rows.capture) == 0 && rows.capture != 0;
    return is_known ? rows : ListedRows{};
}

quire_status launch_list(Enqueue &enqueue, AttendCall *call, quire_error *error) {
    for (KernelName name : {KernelName::rows, KernelName::items}) {
        if (quire_status status = enqueue.launch(name, call->row_count, &call->head, error)) {
            return status;
        }
    }
    return QUIRE_OK;
}

}  // namespace

bool has_decode_instance(uint32_t format, uint32_t dim) {
    return find_instance(format, dim) != nullptr;
}

quire_status launch_decode(Enqueue &enqueue, Queue &queue, uint64_t plan, uint64_t rows_id,
                           AttendCall *call, quire_error *error) {
    call->unit_queries = unit_queries_of(*call);
    WorkShape shape = work_shape_of(*call);
    if (quire_status status =
            queue.device->check(queue.reserve_scratch(shape.bytes()), "scratch memory", error)) {
        return status;
    }
    call->tickets = queue.scratch;
    call->row_works = call->tickets + shape.ticket_bytes;
    call->round_begins = call->row_works + shape.row_bytes;
    call->items = call->round_begins + shape.begin_bytes;
    call->states = call->items + shape.item_bytes;
    call->values = call->states + shape.state_bytes;
    call->round_count = shape.round_count;
    call->round_states = shape.round_states;
    call->heads_inverse = ((1u << 16) + call->heads_per_kv - 1) / call->heads_per_kv;
    ListedRows rows = rows_of(enqueue, queue, *call);
    bool may_share = rows.scratch != 0 && shape.tokens >= call->query_tokens &&
                     (enqueue.is_captured() || !queue.was_captured);
    rows.plan = plan;
    rows.rows_id = may_share ? rows_id : 0;
    bool is_listed = rows.rows_id != 0 && rows == queue.listed;
    queue.listed = {};  // until the call has succeeded
    const Instance *instance = find_instance(call->k_format, call->k_dim);
    KernelName name = call->unit_queries == kNarrowQueries ? instance->narrow : instance->wide;
    uint64_t items = shape.item_bytes / kWorkItemBytes;
    uint64_t blocks = std::min(items * call->kv_heads, kMostDecodeBlocks);
    for (uint64_t first = 0; first < call->query_tokens; first += shape.tokens) {
        call->first_token = static_cast<uint32_t>(first);
        call->end_token =
            static_cast<uint32_t>(std::min<uint64_t>(first + shape.tokens, call->query_tokens));
        if (!is_listed) {
            if (quire_status status = launch_list(enqueue, call, error)) return status;
        }
        for (call->round = 0; call->round < shape.round_count; ++call->round) {
            if (quire_status status = enqueue.launch(name, blocks, &call->head, error)) {
                return status;
            }
        }
    }
    queue.listed = rows;
    return QUIRE_OK;
}

}  // namespace quire::gpu
