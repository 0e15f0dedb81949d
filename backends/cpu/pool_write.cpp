// SPDX-License-Identifier: Apache-2.0

#include "pool_write.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "checks.hpp"
#include "kernels/kv_write.hpp"
#include "kernels/move.hpp"
#include "plan.hpp"
#include "pool_view.hpp"
#include "queue.hpp"
#include "quire/cache.h"

namespace quire::cpu {

namespace {

int64_t slot_count_of(const quire_be_pool &pool) {
    return int64_t{pool.block_count} * pool.block_tokens;  // each is below 2^32
}

bool check_slots(const KvWriteCall &call, Fault *fault) {
    const auto *slots = array_at<const int64_t>(call.args.slots);
    int64_t slot_count = slot_count_of(call.pool);
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
    if (check_slots(*call, fault)) write_kv(*call);
}

quire_status check_given(KvWriteCall *call, quire_error *error) {
    quire_be_kv_write &args = call->args;
    const quire_be_pool &pool = call->pool;
    if (args.slots == 0 || args.slots % alignof(int64_t) != 0) {
        return fail(error, QUIRE_E_ARG, "slots is NULL or not aligned to 8 bytes");
    }
    uint64_t k_elements = uint64_t{pool.kv_heads} * pool.k_head_dim;
    uint64_t v_elements = uint64_t{pool.kv_heads} * pool.v_head_dim;
    if (pool.group_kind == QUIRE_GROUP_LATENT) {  // the latent, and the rotated part
        k_elements = pool.v_head_dim;
        v_elements = pool.k_head_dim - pool.v_head_dim;
    }
    if (quire_status status = check_elements(args.k, *call->given, "k", error)) return status;
    if (quire_status status =
            resolve_stride(&args.k_token_stride, k_elements, "k_token_stride", error)) {
        return status;
    }
    if (v_elements == 0) return QUIRE_OK;
    if (quire_status status = check_elements(args.v, *call->given, "v", error)) return status;
    return resolve_stride(&args.v_token_stride, v_elements, "v_token_stride", error);
}

quire_status check_rope(KvWriteCall *call, const quire_be_plan &plan, quire_error *error) {
    quire_be_kv_write &args = call->args;
    if (args.positions == 0 || args.positions % alignof(int32_t) != 0) {
        return fail(error, QUIRE_E_ARG,
                    "the plan has a rope, and positions is NULL or not aligned to 4 bytes");
    }
    call->rope = &plan.rope;
    call->q = plan.attend.q;
    call->q_heads = plan.shape.q_heads;
    if (args.q == 0) return QUIRE_OK;
    if (quire_status status = check_elements(args.q, *call->q, "q", error)) return status;
    uint64_t q_elements = call->q_heads * plan.shape.k_head_dim;
    return resolve_stride(&args.q_token_stride, q_elements, "q_token_stride", error);
}

// As many as a command holds.
constexpr uint32_t kMovesPerCommand = 10;

struct MoveList {
    quire_be_pool pool;
    uint64_t count;
    quire_be_move moves[kMovesPerCommand];
};

void run_moves(const void *arguments, quire_be_device *, Fault *) {
    const auto *list = static_cast<const MoveList *>(arguments);
    for (uint64_t i = 0; i < list->count; ++i) move_token(list->pool, list->moves[i]);
}

}  // namespace

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_struct(args, sizeof *args, "args", error)) return status;
    if (quire_status status = check_pool(args->pool, args->layer, error)) return status;
    KvWriteCall call = {*args,
                        *args->pool,
                        find_value(args->dtype),
                        find_element(args->pool->k_dtype),
                        find_element(args->pool->v_dtype),
                        nullptr,
                        nullptr,
                        0};
    if (call.given == nullptr) {
        return fail(error, QUIRE_E_UNSUPPORTED, "K and V are given as type 0x%x: known are %s",
                    args->dtype, kElementNames);
    }
    quire_be_plan *plan = args->plan;
    if (plan != nullptr) {
        if (quire_status status = check_pool_fits(*plan, *args->pool, queue->device, error)) {
            return status;
        }
    }
    if (args->token_count == 0) return QUIRE_OK;
    if (quire_status status = check_given(&call, error)) return status;
    bool has_rope = plan != nullptr && plan->has(QUIRE_BE_ATTENTION_ROPE);
    if (has_rope) {
        if (quire_status status = check_rope(&call, *plan, error)) return status;
    }
    return queue->submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<KvWriteCall>() = call;
        if (has_rope) command->hold_plan(plan);
        command->kind = CommandKind::run;
        command->run = run_kv_write;
    });
}

quire_status move_tokens(quire_be_queue *queue, const quire_be_pool *pool,
                         const quire_be_move *moves, uint32_t count, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_pool(pool, 0, error)) return status;
    if (count == 0) return QUIRE_OK;
    if (moves == nullptr) return fail(error, QUIRE_E_ARG, "moves is NULL, but count is %u", count);
    int64_t slot_count = slot_count_of(*pool);
    for (uint32_t i = 0; i < count; ++i) {
        auto is_inside = [&](int64_t slot) { return slot >= 0 && slot < slot_count; };
        if (is_inside(moves[i].src) && is_inside(moves[i].dst)) continue;
        return fail(error, QUIRE_E_ARG,
                    "move %u goes from slot %" PRId64 " to %" PRId64 "; the pool has %" PRId64
                    " slots",
                    i, moves[i].src, moves[i].dst, slot_count);
    }
    uint32_t commands = (count - 1) / kMovesPerCommand + 1;
    return queue->submit(commands, error, [&](uint32_t index, Command *command) {
        uint32_t first = index * kMovesPerCommand;
        uint32_t held = std::min(count - first, kMovesPerCommand);
        auto *list = command->hold<MoveList>();
        list->pool = *pool;
        list->count = held;
        std::memcpy(list->moves, moves + first, held * sizeof *moves);
        command->kind = CommandKind::run;
        command->run = run_moves;
    });
}

}  // namespace quire::cpu
