// SPDX-License-Identifier: Apache-2.0

#include "pool_write.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "kernels/kv_write.hpp"
#include "kernels/move.hpp"
#include "plan.hpp"
#include "queue.hpp"
#include "shared/pool_view.hpp"

namespace quire::cpu {

namespace {

bool check_slots(const KvWriteCall &call, Fault *fault) {
    const auto *slots = array_at<const int64_t>(call.args.slots);
    int64_t slot_count = slot_count_of(call.pool);
    for (uint32_t t = 0; t < call.args.token_count; ++t) {
        if (slots[t] < slot_count) continue;
        fault->set("slot %" PRId64 " of token %u is out of range; the pool has %" PRId64 " slots",
                   slots[t], t, slot_count);
        return false;
    }
    return true;
}

void run_kv_write(const void *arguments, Device *, Fault *fault) {
    const auto *call = static_cast<const KvWriteCall *>(arguments);
    if (check_slots(*call, fault)) write_kv(*call);
}

constexpr uint32_t kMovesPerCommand = 10;

struct MoveList {
    quire_be_pool pool;
    uint64_t count;
    quire_be_move moves[kMovesPerCommand];
};

void run_moves(const void *arguments, Device *, Fault *) {
    const auto *list = static_cast<const MoveList *>(arguments);
    for (uint64_t i = 0; i < list->count; ++i) move_token(list->pool, list->moves[i]);
}

}  // namespace

quire_status enqueue_kv_write(Queue &queue, const quire_be_kv_write &args, Plan *plan,
                              quire_error *error) {
    KvWriteCall call{};
    call.args = args;
    call.pool = *args.pool;
    call.given = find_value(args.dtype);
    call.k = find_element(call.pool.k_dtype);
    call.v = find_element(call.pool.v_dtype);
    bool has_rope = plan != nullptr && plan->options.has(QUIRE_BE_ATTENTION_ROPE);
    if (has_rope) {
        call.rope = &plan->rope;
        call.q = plan->attend.q;
        call.q_heads = plan->options.shape.q_heads;
    }
    return queue.submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<KvWriteCall>() = call;
        if (has_rope) command->hold_plan(plan);
        command->kind = CommandKind::run;
        command->run = run_kv_write;
    });
}

quire_status enqueue_moves(Queue &queue, const quire_be_pool &pool, const quire_be_move *moves,
                           uint32_t count, quire_error *error) {
    uint32_t commands = (count - 1) / kMovesPerCommand + 1;
    return queue.submit(commands, error, [&](uint32_t index, Command *command) {
        uint32_t first = index * kMovesPerCommand;
        uint32_t held = std::min(count - first, kMovesPerCommand);
        auto *list = command->hold<MoveList>();
        list->pool = pool;
        list->count = held;
        std::memcpy(list->moves, moves + first, held * sizeof *moves);
        command->kind = CommandKind::run;
        command->run = run_moves;
    });
}

}  // namespace quire::cpu
