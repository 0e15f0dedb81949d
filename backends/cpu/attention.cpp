// SPDX-License-Identifier: Apache-2.0

#include "attention.hpp"

#include <algorithm>
#include <cinttypes>

#include "checks.hpp"
#include "device.hpp"
#include "kernels/attend.hpp"
#include "kernels/merge.hpp"
#include "kernels/result.hpp"
#include "plan.hpp"
#include "pool_view.hpp"
#include "queue.hpp"
#include "quire/attention.h"
#include "rows.hpp"
#include "work_list.hpp"

namespace quire::cpu {

namespace {

struct SharedAttend {
    const AttendCall *call;
    const WorkList *list;
    AttendScratch *scratch;
};

void run_attend_work(const void *context, uint32_t item, uint32_t thread) {
    const auto *shared = static_cast<const SharedAttend *>(context);
    attend(*shared->call, shared->list->works[item], &shared->scratch[thread]);
}

// One item is a split bundle.
void run_fold_split(const void *context, uint32_t item, uint32_t thread) {
    const auto *shared = static_cast<const SharedAttend *>(context);
    const SplitBundle &split = shared->list->splits[item];
    for (uint32_t token = 0; token < split.token_count; ++token) {
        fold_states(*shared->call, split.states, split.first_token, split.token_count, token,
                    split.first_chunk, split.end_chunk, shared->scratch[thread].out);
    }
}

void run_attention(const void *arguments, quire_be_device *device, Fault *fault) {
    const auto *call = static_cast<const AttendCall *>(arguments);
    if (!check_rows(*call, fault)) return;
    std::lock_guard turn(device->attention_turn);
    WorkList *list = device->works;
    SharedAttend shared = {call, list, device->scratch};
    Sharing sharing(*call, device->pool.thread_count());
    while (sharing.fill(list)) {
        device->pool.run(list->work_count, run_attend_work, &shared);
        device->pool.run(list->split_count, run_fold_split, &shared);
    }
}

// One item is some rows of the result.
constexpr uint32_t kMergeRows = 64;

void run_merge_item(const void *context, uint32_t item, uint32_t) {
    const auto *call = static_cast<const MergeCall *>(context);
    uint64_t row_count = uint64_t{call->args.token_count} * call->args.heads;
    uint64_t begin = uint64_t{item} * kMergeRows;
    merge_rows(*call, begin, std::min(begin + kMergeRows, row_count));
}

void run_merge(const void *arguments, quire_be_device *device, Fault *) {
    const auto *call = static_cast<const MergeCall *>(arguments);
    uint64_t row_count = uint64_t{call->args.token_count} * call->args.heads;
    device->pool.run(static_cast<uint32_t>((row_count - 1) / kMergeRows + 1), run_merge_item, call);
}

quire_status check_fits_plan(const quire_be_plan &plan, const quire_be_attention &args,
                             quire_error *error) {
    if (args.row_count > plan.max_rows || args.query_tokens > plan.max_query_tokens) {
        return fail(error, QUIRE_E_ARG,
                    "%u rows and %u query tokens, but the plan was made for %u and %u",
                    args.row_count, args.query_tokens, plan.max_rows, plan.max_query_tokens);
    }
    bool has_sinks = plan.has(QUIRE_ATTENTION_SINK_LOGITS);
    if (has_sinks != (args.sinks != 0)) {
        return fail(error, QUIRE_E_ARG,
                    "sinks are %s, but the plan was made %s QUIRE_ATTENTION_SINK_LOGITS",
                    has_sinks ? "0" : "given", has_sinks ? "with" : "without");
    }
    if (args.mask != 0 && !plan.has(QUIRE_ATTENTION_MASK)) {
        return fail(error, QUIRE_E_ARG,
                    "a mask is given, but the plan was made without QUIRE_ATTENTION_MASK");
    }
    return QUIRE_OK;
}

constexpr uint64_t kIntAlignment = alignof(int32_t) - 1;

quire_status check_tables(const quire_be_attention &args, quire_error *error) {
    uint64_t tables = args.block_table | args.lengths | args.cu_q | args.lse | args.sinks;
    if (args.block_table == 0 || args.lengths == 0 || args.cu_q == 0 ||
        (tables & kIntAlignment) != 0) {
        return fail(error, QUIRE_E_ARG,
                    "block_table, lengths or cu_q is NULL, or one of them, sinks or lse is not "
                    "aligned to 4 bytes");
    }
    if ((args.shared_prefix & kIntAlignment) != 0) {
        return fail(error, QUIRE_E_ARG, "shared_prefix is not aligned to 4 bytes");
    }
    if (args.mask == 0) return QUIRE_OK;
    uint64_t masks = args.mask | args.mask_rows | args.mask_first | args.positions;
    if (args.mask_rows == 0 || args.mask_first == 0 || args.positions == 0 ||
        (masks & kIntAlignment) != 0) {
        return fail(error, QUIRE_E_ARG,
                    "with a mask go mask_rows, mask_first and positions, all aligned to 4 bytes");
    }
    return QUIRE_OK;
}

quire_status check_attention(const quire_be_plan &plan, quire_be_attention *args,
                             quire_error *error) {
    const quire_be_attention_query &shape = plan.shape;
    if (quire_status status = check_tables(*args, error)) return status;
    if (quire_status status = check_elements(args->q, *plan.attend.q, "q", error)) return status;
    if (quire_status status = check_elements(args->out, *plan.attend.q, "out", error)) {
        return status;
    }
    uint64_t q_elements = uint64_t{shape.q_heads} * shape.k_head_dim;
    uint64_t out_elements = uint64_t{shape.q_heads} * shape.v_head_dim;
    if (quire_status status =
            resolve_stride(&args->q_token_stride, q_elements, "q_token_stride", error)) {
        return status;
    }
    return resolve_stride(&args->out_token_stride, out_elements, "out_token_stride", error);
}

quire_status check_merge(const quire_be_merge &args, const Element &element, quire_error *error) {
    if (args.part_count == 0 || args.heads == 0 || args.head_dim == 0) {
        return fail(error, QUIRE_E_ARG, "%u parts, %u heads, head dim %u: none may be 0",
                    args.part_count, args.heads, args.head_dim);
    }
    uint64_t row_count = uint64_t{args.token_count} * args.heads;
    uint64_t elements = 0;
    uint64_t size_bytes = 0;
    if (__builtin_mul_overflow(row_count, uint64_t{args.head_dim}, &elements) ||
        __builtin_mul_overflow(elements, uint64_t{args.part_count}, &elements) ||
        __builtin_mul_overflow(elements, uint64_t{element.size_bytes}, &size_bytes) ||
        row_count / kMergeRows >= UINT32_MAX) {
        return fail(error, QUIRE_E_ARG, "%u parts of %u tokens with %u heads are too many",
                    args.part_count, args.token_count, args.heads);
    }
    if (args.lses == 0 || ((args.lses | args.lse) & kIntAlignment) != 0) {
        return fail(error, QUIRE_E_ARG, "lses is NULL, or it or lse is not aligned to 4 bytes");
    }
    if (quire_status status = check_elements(args.parts, element, "parts", error)) return status;
    return check_elements(args.out, element, "out", error);
}

}  // namespace

quire_status attention(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                       quire_error *error) {
    if (queue == nullptr || plan == nullptr) {
        return fail(error, QUIRE_E_ARG, "queue or plan is NULL");
    }
    if (quire_status status = check_struct(args, sizeof *args, "args", error)) return status;
    if (quire_status status = check_pool(args->pool, args->layer, error)) return status;
    if (quire_status status = check_pool_fits(*plan, *args->pool, queue->device, error)) {
        return status;
    }
    if (quire_status status = check_fits_plan(*plan, *args, error)) return status;
    if (args->row_count == 0 || args->query_tokens == 0) return QUIRE_OK;
    AttendCall call = {*args, *args->pool, &plan->attend};
    if (quire_status status = check_attention(*plan, &call.args, error)) return status;
    return queue->submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<AttendCall>() = call;
        command->hold_plan(plan);
        command->kind = CommandKind::run;
        command->run = run_attention;
    });
}

quire_status merge(quire_be_queue *queue, const quire_be_merge *args, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_struct(args, sizeof *args, "args", error)) return status;
    const Element *element = find_value(args->dtype);
    if (element == nullptr) {
        return fail(error, QUIRE_E_UNSUPPORTED, "parts are of type 0x%x: known are %s", args->dtype,
                    kElementNames);
    }
    if (quire_status status = check_merge(*args, *element, error)) return status;
    if (args->token_count == 0) return QUIRE_OK;
    return queue->submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<MergeCall>() = {*args, element};
        command->kind = CommandKind::run;
        command->run = run_merge;
    });
}

}  // namespace quire::cpu
