// SPDX-License-Identifier: Apache-2.0

#include "attention.hpp"

#include <algorithm>

#include "device.hpp"
#include "kernels/attend.hpp"
#include "kernels/merge.hpp"
#include "kernels/result.hpp"
#include "plan.hpp"
#include "queue.hpp"
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

// One item is one split bundle.
void run_fold_split(const void *context, uint32_t item, uint32_t thread) {
    const auto *shared = static_cast<const SharedAttend *>(context);
    const SplitBundle &split = shared->list->splits[item];
    for (uint32_t token = 0; token < split.token_count; ++token) {
        fold_states(*shared->call, split.states, split.first_token, split.token_count, token,
                    split.first_chunk, split.end_chunk, shared->scratch[thread].out);
    }
}

void run_attention(const void *arguments, Device *device, Fault *fault) {
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

// One item is up to this many rows of the result.
constexpr uint32_t kMergeRows = 64;

void run_merge_item(const void *context, uint32_t item, uint32_t) {
    const auto *call = static_cast<const MergeCall *>(context);
    uint64_t row_count = uint64_t{call->args.token_count} * call->args.heads;
    uint64_t begin = uint64_t{item} * kMergeRows;
    merge_rows(*call, begin, std::min(begin + kMergeRows, row_count));
}

void run_merge(const void *arguments, Device *device, Fault *) {
    const auto *call = static_cast<const MergeCall *>(arguments);
    uint64_t row_count = uint64_t{call->args.token_count} * call->args.heads;
    device->pool.run(static_cast<uint32_t>((row_count - 1) / kMergeRows + 1), run_merge_item, call);
}

}  // namespace

quire_status enqueue_attention(Queue &queue, Plan &plan, const quire_be_attention &args,
                               quire_error *error) {
    return queue.submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<AttendCall>() = {args, *args.pool, &plan.attend};
        command->hold_plan(&plan);
        command->kind = CommandKind::run;
        command->run = run_attention;
    });
}

quire_status enqueue_merge(Queue &queue, const quire_be_merge &args, quire_error *error) {
    return queue.submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<MergeCall>() = {args, find_value(args.dtype)};
        command->kind = CommandKind::run;
        command->run = run_merge;
    });
}

}  // namespace quire::cpu
