// SPDX-License-Identifier: Apache-2.0

#include "pool_write.hpp"

#include <algorithm>

#include "device.hpp"
#include "enqueue.hpp"
#include "plan.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"
#include "shared/kernel_arguments.hpp"
#include "shared/pool_calls.hpp"

namespace quire::gpu {

namespace {

KvWriteCall call_of(const quire_be_kv_write &args, const quire_be_plan *plan) {
    KvWriteCall to{};
    put_kv_write(args, plan == nullptr ? nullptr : &plan->options, &to);
    if (plan != nullptr) std::copy(plan->turns.begin(), plan->turns.end(), to.turns);
    return to;
}

}  // namespace

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    quire_be_kv_write resolved{};
    if (quire_status status = resolve_kv_write(args, &resolved, error)) return status;
    const quire_be_plan *plan = args->plan;
    if (plan != nullptr) {
        if (quire_status status = check_plan_fits(*plan, *args->pool, queue->device, error)) {
            return status;
        }
        if (quire_status status = resolve_rope(plan->options, &resolved, error)) return status;
    }
    if (args->token_count == 0) return QUIRE_OK;
    KvWriteCall call = call_of(resolved, plan);
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin_replayable(error)) return status;
    return enqueue.launch(KernelName::kv_write, resolved.token_count, &call.head, error);
}

quire_status move_tokens(quire_be_queue *queue, const quire_be_pool *pool,
                         const quire_be_move *moves, uint32_t count, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_moves(pool, moves, count, error)) return status;
    if (count == 0) return QUIRE_OK;
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    MoveCall call{};
    put_move(*pool, &call);
    uint64_t groups = uint64_t{pool->layer_count} * pool->kv_heads;
    for (uint32_t done = 0; done < count; done += call.move_count) {
        call.move_count = std::min(count - done, kMostMoves);
        for (uint32_t i = 0; i < call.move_count; ++i) {
            call.moves[i] = {moves[done + i].src, moves[done + i].dst};
        }
        if (quire_status status = enqueue.launch(KernelName::move, groups, &call.head, error)) {
            return status;
        }
    }
    return QUIRE_OK;
}

}  // namespace quire::gpu
