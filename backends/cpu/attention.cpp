// SPDX-License-Identifier: Apache-2.0

#include "attention.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <new>

#include "checks.hpp"
#include "device.hpp"
#include "kernels/attend.hpp"
#include "kernels/instances.hpp"
#include "kernels/kv_write.hpp"
#include "pool_view.hpp"
#include "queue.hpp"

namespace quire::cpu {

namespace {

struct KvWriteCall {
    quire_be_kv_write args;
    quire_be_pool pool;
    const Element *given;
    const Element *k;
    const Element *v;
};

bool check_slots(const KvWriteCall &call, Fault *fault) {
    const auto *slots = reinterpret_cast<const int64_t *>(call.args.slots);
    int64_t slot_count = int64_t{call.pool.block_count} * call.pool.block_tokens;
    for (uint32_t t = 0; t < call.args.token_count; ++t) {
        if (slots[t] < slot_count) continue;
        fault->set("kv_write was given slot %" PRId64 " for token %u; the pool has %" PRId64
                   " slots",
                   slots[t], t, slot_count);
        return false;
    }
    return true;
}

void run_kv_write(const void *arguments, quire_be_device *, Fault *fault) {
    const auto *call = static_cast<const KvWriteCall *>(arguments);
    if (!check_slots(*call, fault)) return;
    write_kv(call->args, call->pool, *call->given, *call->k, *call->v);
}

bool check_blocks(const AttendCall &call, uint32_t row, int64_t length, int64_t first_position,
                  Fault *fault) {
    const auto *table = reinterpret_cast<const int32_t *>(call.args.block_table);
    const int32_t *blocks = table + int64_t{row} * call.args.block_table_stride;
    int64_t begin = 0;
    int64_t end = 0;
    visible_keys(call, first_position, length, &begin, &end);  // the row's first token sees oldest
    int64_t block_end = (length + call.pool.block_tokens - 1) / call.pool.block_tokens;
    if (block_end > call.args.block_table_stride) {
        fault->set("row %u has %" PRId64 " tokens, more than its %u blocks hold", row, length,
                   call.args.block_table_stride);
        return false;
    }
    for (int64_t i = begin / call.pool.block_tokens; i < block_end; ++i) {
        if (blocks[i] >= 0 && static_cast<uint32_t>(blocks[i]) < call.pool.block_count) continue;
        fault->set("row %u names block %d at place %" PRId64 "; the pool has %u blocks", row,
                   blocks[i], i, call.pool.block_count);
        return false;
    }
    return true;
}

bool check_rows(const AttendCall &call, Fault *fault) {
    const auto *cu_q = reinterpret_cast<const int32_t *>(call.args.cu_q);
    const auto *lengths = reinterpret_cast<const int32_t *>(call.args.lengths);
    for (uint32_t row = 0; row < call.args.row_count; ++row) {
        int64_t begin = cu_q[row];
        int64_t end = cu_q[row + 1];
        if (begin < 0 || end < begin || end > call.args.query_tokens || lengths[row] < 0) {
            fault->set("row %u has query tokens %" PRId64 " to %" PRId64 " of %u and length %d",
                       row, begin, end, call.args.query_tokens, lengths[row]);
            return false;
        }
        if (begin == end) continue;
        if (!check_blocks(call, row, lengths[row], lengths[row] - (end - begin), fault)) {
            return false;
        }
    }
    return true;
}

// One item is some query tokens of one KV head.
struct SharedAttend {
    const AttendCall *call;
    AttendScratch *scratch;
    uint32_t tokens_per_item;
};

void run_attend_item(const void *context, uint32_t item, uint32_t thread) {
    const auto *shared = static_cast<const SharedAttend *>(context);
    const AttendCall &call = *shared->call;
    uint32_t begin = item / call.pool.kv_heads * shared->tokens_per_item;
    uint32_t end = std::min(begin + shared->tokens_per_item, call.args.query_tokens);
    attend(call, item % call.pool.kv_heads, begin, end, &shared->scratch[thread]);
}

void run_attention(const void *arguments, quire_be_device *device, Fault *fault) {
    const auto *call = static_cast<const AttendCall *>(arguments);
    if (!check_rows(*call, fault)) return;
    // Long pieces share the loading of tiles, many pieces keep all threads busy to the end.
    uint32_t pieces = 4 * device->pool.thread_count() / call->pool.kv_heads + 1;
    uint32_t tokens = call->args.query_tokens;
    SharedAttend shared = {call, device->scratch, std::clamp(tokens / pieces, 1u, kQueries)};
    uint32_t token_groups = (tokens - 1) / shared.tokens_per_item + 1;
    device->pool.run(token_groups * call->pool.kv_heads, run_attend_item, &shared);
}

quire_status check_fits_plan(const quire_be_plan &plan, const quire_be_attention &args,
                             quire_error *error) {
    const quire_be_attention_query &shape = plan.shape;
    const quire_be_pool &pool = *args.pool;
    if (pool.kv_heads != shape.kv_heads || pool.k_head_dim != shape.k_head_dim ||
        pool.v_head_dim != shape.v_head_dim || pool.k_dtype != shape.k_dtype ||
        pool.v_dtype != shape.v_dtype || pool.block_tokens != shape.block_tokens) {
        return fail(error, QUIRE_E_ARG,
                    "the pool has another shape than the plan: heads, head dims, types and "
                    "block_tokens must be equal");
    }
    if (args.row_count > plan.max_rows || args.query_tokens > plan.max_query_tokens) {
        return fail(error, QUIRE_E_ARG,
                    "%u rows and %u query tokens, but the plan was made for %u and %u",
                    args.row_count, args.query_tokens, plan.max_rows, plan.max_query_tokens);
    }
    return QUIRE_OK;
}

quire_status check_attention(const quire_be_plan &plan, quire_be_attention *args,
                             quire_error *error) {
    const quire_be_attention_query &shape = plan.shape;
    constexpr uint64_t kIntAlignment = alignof(int32_t) - 1;
    uint64_t tables = args->block_table | args->lengths | args->cu_q | args->lse;
    if (args->block_table == 0 || args->lengths == 0 || args->cu_q == 0 ||
        (tables & kIntAlignment) != 0) {
        return fail(error, QUIRE_E_ARG,
                    "block_table, lengths or cu_q is NULL, or one of them or lse is not aligned to "
                    "4 bytes");
    }
    if (quire_status status = check_elements(args->q, *plan.q, "q", error)) return status;
    if (quire_status status = check_elements(args->out, *plan.q, "out", error)) return status;
    uint64_t q_elements = uint64_t{shape.q_heads} * shape.k_head_dim;
    uint64_t out_elements = uint64_t{shape.q_heads} * shape.v_head_dim;
    if (quire_status status =
            resolve_stride(&args->q_token_stride, q_elements, "q_token_stride", error)) {
        return status;
    }
    return resolve_stride(&args->out_token_stride, out_elements, "out_token_stride", error);
}

quire_status check_kv_write(KvWriteCall *call, quire_error *error) {
    quire_be_kv_write &args = call->args;
    const quire_be_pool &pool = call->pool;
    if (args.slots == 0 || args.slots % alignof(int64_t) != 0) {
        return fail(error, QUIRE_E_ARG, "slots is NULL or not aligned to 8 bytes");
    }
    if (quire_status status = check_elements(args.k, *call->given, "k", error)) return status;
    if (quire_status status = check_elements(args.v, *call->given, "v", error)) return status;
    uint64_t k_elements = uint64_t{pool.kv_heads} * pool.k_head_dim;
    uint64_t v_elements = uint64_t{pool.kv_heads} * pool.v_head_dim;
    if (quire_status status =
            resolve_stride(&args.k_token_stride, k_elements, "k_token_stride", error)) {
        return status;
    }
    return resolve_stride(&args.v_token_stride, v_elements, "v_token_stride", error);
}

}  // namespace

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    if (quire_status status = check_struct(query, sizeof *query, "query", error)) return status;
    if (quire_status status = check_output(answer, sizeof *answer, "answer", error)) return status;
    char reason[sizeof answer->reason] = {};
    const Instance *instance = find_instance(*query, reason, sizeof reason);
    answer->support = instance != nullptr ? instance->support : uint32_t{QUIRE_BE_NO};
    answer->alignment = instance != nullptr ? instance->alignment_bytes : 0;
    answer->reserved0 = 0;
    answer->workspace_bytes = 0;
    std::memcpy(answer->reason, reason, sizeof reason);
    return QUIRE_OK;
}

quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    if (quire_status status = check_struct(desc, sizeof *desc, "desc", error)) return status;
    const quire_be_attention_query &shape = desc->shape;
    if (quire_status status = check_struct(&shape, sizeof shape, "desc->shape", error)) {
        return status;
    }
    if (shape.q_heads == 0) {
        return fail(error, QUIRE_E_ARG, "desc->shape.q_heads is 0; a plan is for attention");
    }
    char reason[160] = {};
    if (find_instance(shape, reason, sizeof reason) == nullptr) {
        return fail(error, QUIRE_E_UNSUPPORTED, "%s", reason);
    }
    if (!std::isfinite(desc->scale)) return fail(error, QUIRE_E_ARG, "scale is not finite");
    auto *plan = new (std::nothrow) quire_be_plan;
    if (plan == nullptr) return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a plan");
    plan->device = device;
    plan->shape = shape;
    plan->scale = desc->scale != 0.0f
                      ? desc->scale
                      : static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.k_head_dim)));
    plan->max_rows = desc->max_rows;
    plan->max_query_tokens = desc->max_query_tokens;
    plan->q = find_element(shape.q_dtype);
    plan->k = find_element(shape.k_dtype);
    plan->v = find_element(shape.v_dtype);
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *out = plan;
    return QUIRE_OK;
}

void plan_destroy(quire_be_plan *plan) {
    if (plan == nullptr) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    delete plan;
}

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_struct(args, sizeof *args, "args", error)) return status;
    if (quire_status status = check_pool(args->pool, args->layer, error)) return status;
    KvWriteCall call = {*args, *args->pool, find_element(args->dtype),
                        find_element(args->pool->k_dtype), find_element(args->pool->v_dtype)};
    if (call.given == nullptr) {
        return fail(error, QUIRE_E_UNSUPPORTED, "K and V are given as type 0x%x: known are %s",
                    args->dtype, kElementNames);
    }
    if (args->token_count == 0) return QUIRE_OK;
    if (quire_status status = check_kv_write(&call, error)) return status;
    return queue->submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<KvWriteCall>() = call;
        command->kind = CommandKind::run;
        command->run = run_kv_write;
    });
}

quire_status attention(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                       quire_error *error) {
    if (queue == nullptr || plan == nullptr) {
        return fail(error, QUIRE_E_ARG, "queue or plan is NULL");
    }
    if (plan->device != queue->device) {
        return fail(error, QUIRE_E_ARG, "the plan was made for another device");
    }
    if (quire_status status = check_struct(args, sizeof *args, "args", error)) return status;
    if (quire_status status = check_pool(args->pool, args->layer, error)) return status;
    if (quire_status status = check_fits_plan(*plan, *args, error)) return status;
    if (args->row_count == 0 || args->query_tokens == 0) return QUIRE_OK;
    AttendCall call = {
        *args,       *args->pool,         plan->q,           plan->k,           plan->v,
        plan->scale, plan->shape.q_heads, plan->shape.flags, plan->shape.window};
    if (quire_status status = check_attention(*plan, &call.args, error)) return status;
    return queue->submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<AttendCall>() = call;
        command->kind = CommandKind::run;
        command->run = run_attention;
    });
}

}  // namespace quire::cpu
