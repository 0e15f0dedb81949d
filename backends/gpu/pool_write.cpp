// SPDX-License-Identifier: Apache-2.0

#include "pool_write.hpp"

#include <algorithm>

#include "enqueue.hpp"
#include "plan.hpp"
#include "shared/kernel_arguments.hpp"

namespace quire::gpu {

namespace {

KvWriteCall call_of(const quire_be_kv_write &args, const Plan *plan) {
    KvWriteCall to{};
    put_kv_write(args, plan == nullptr ? nullptr : &plan->options, &to);
    if (plan != nullptr) std::copy(plan->turns.begin(), plan->turns.end(), to.turns);
    return to;
}

}  // namespace

quire_status enqueue_kv_write(Queue &queue, const quire_be_kv_write &args, const Plan *plan,
                              quire_error *error) {
    KvWriteCall call = call_of(args, plan);
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin_replayable(error)) return status;
    return enqueue.launch(KernelName::kv_write, args.token_count, &call.head, error);
}

quire_status enqueue_moves(Queue &queue, const quire_be_pool &pool, const quire_be_move *moves,
                           uint32_t count, quire_error *error) {
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    MoveCall call{};
    put_move(pool, &call);
    uint64_t groups = uint64_t{pool.layer_count} * pool.kv_heads;
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
