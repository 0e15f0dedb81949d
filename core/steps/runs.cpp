// SPDX-License-Identifier: Apache-2.0

#include "core/steps/runs.hpp"

#include <algorithm>
#include <bit>

#include "core/device/backend_call.hpp"
#include "quire/queue.h"

namespace quire {

namespace {

// The value of a fence that the device has not accepted yet: work of the step may still run.
constexpr uint64_t kUnsignalled = QUIRE_FENCE_FAILED - 1;

}  // namespace

void Runs::stop() {
    books_.journal.pause();
    for (StepRecord &record : books_.records) {
        if (record.phase == StepPhase::open) {
            release_queues(&record);
            record.handle = 0;
            record.phase = StepPhase::stopped;
            books_.records.set_closed();
        }
        if (record.phase == StepPhase::finished && !books_.has_memory) complete(&record);
    }
}

Status Runs::name_step(StepRecord *record) {
    uint64_t number = g_step_numbers.take(1);
    if (number == 0) return fail(QUIRE_E_LIMIT, "the process has used up its 2^56 step handles");
    record->handle = make_handle(HandleType::step, number);
    return Status{};
}

void Runs::hold_queues(StepRecord *record, const StepOptions &options) {
    record->shard_count = options.queue_count;
    for (uint32_t i = 0; i < options.queue_count; ++i) {
        record->queues[i] = options.queues[i];
        record->fence_values[i] = 0;
        ++record->queues[i]->unfinished_steps;
    }
    record->queue = books_.has_memory
                        ? queue_sets_.name(options.queues, options.queue_count, books_.timeline)
                        : options.queue_tag;
}

void Runs::release_queues(StepRecord *record) {
    for (uint32_t i = 0; i < record->shard_count; ++i) --record->queues[i]->unfinished_steps;
    record->shard_count = 0;
}

void Runs::close(StepRecord *record) {
    release_queues(record);
    record->clear();
    books_.records.set_closed();
    books_.journal.tree().release_touched();
}

uint32_t Runs::steps_to_wait_for(const StepRecord &record) const {
    uint32_t steps = 0;
    if (books_.timeline.idle()) return steps;
    for (const Change &change : record.changes) {
        if (change.kind == ChangeKind::dropped) continue;
        uint64_t last = books_.sequences[change.sequence].last_step;
        if (books_.timeline.done(last)) continue;
        uint64_t queue = books_.timeline.queue_of(last);
        if (queue == record.queue && queue != kNoQueue) continue;
        uint32_t index = Timeline::ring_index(last);
        steps |= 1u << index;
        if (queue == kNoQueue) [[unlikely]]
            steps |= unmet_waits(books_.records[index]);
    }
    return steps;
}

// What a step should have waited for, of which it enqueued nothing, without what is done by now:
// other steps may have those places.
uint32_t Runs::unmet_waits(const StepRecord &record) const {
    uint32_t steps = 0;
    for (uint32_t left = record.waited; left != 0; left &= left - 1) {
        uint32_t index = static_cast<uint32_t>(std::countr_zero(left));
        uint64_t step = books_.records[index].number;
        if (step < record.number && !books_.timeline.done(step)) steps |= 1u << index;
    }
    return steps;
}

Status Runs::wait_for_other_queues(StepRecord *record, quire_error *error) {
    record->waited = steps_to_wait_for(*record);
    for (uint32_t left = record->waited; left != 0; left &= left - 1) {
        const StepRecord &other = books_.records[static_cast<uint32_t>(std::countr_zero(left))];
        if (other.phase == StepPhase::unused)
            continue;  // its work has run, and its queue may be gone
        QUIRE_TRY(wait_for_step(*record, other, error));
    }
    return Status{};
}

void Runs::leave_unordered(StepRecord *record) {
    const uint32_t before = unfinished_on(record->queue);
    record->queue = kNoQueue;
    record->waited = steps_to_wait_for(*record) | before;
}

uint32_t Runs::unfinished_on(uint64_t queue) const {
    uint32_t steps = 0;
    for (uint64_t step = books_.timeline.oldest(); step < books_.timeline.next(); ++step) {
        if (books_.timeline.queue_of(step) == queue && !books_.timeline.has_run(step))
            steps |= 1u << Timeline::ring_index(step);
    }
    return steps;
}

Status Runs::wait_for_step(const StepRecord &record, const StepRecord &other, quire_error *error) {
    for (uint32_t i = 0; i < record.shard_count; ++i) {
        Queue *queue = record.queues[i];
        if (queue == other.queues[i]) continue;
        if (other.queues[i]->lock.is_abandoned()) {
            return fail(QUIRE_E_DEVICE_LOST,
                        "a sequence of the step last ran in step {}, on a queue that was abandoned",
                        other.number);
        }
        if (other.fence_values[i] == kUnsignalled) {
            return fail(QUIRE_E_DEVICE_LOST,
                        "a sequence of the step last ran in step {}, whose queue accepts no fence",
                        other.number);
        }
        QueueUse use(queue);
        QUIRE_TRY(use.status());
        QUIRE_TRY(call<&quire_backend_api::fence_wait>(*queue->device->api, error, queue->handle,
                                                       other.queues[i]->fence,
                                                       other.fence_values[i]));
    }
    return Status{};
}

Status Runs::check_queues(const StepRecord &record, quire_error *error) {
    for (uint32_t i = 0; i < record.shard_count; ++i) {
        Queue *queue = record.queues[i];
        if (!queue->is_engines) continue;
        QueueUse use(queue);
        QUIRE_TRY(use.status());
        Status asked = call<&quire_backend_api::fence_wait>(*queue->device->api, error,
                                                            queue->handle, queue->fence, 0);
        if (asked.code == QUIRE_E_BUSY) return asked;
    }
    return Status{};
}

Status Runs::enqueue_on(uint32_t shard, const StepRecord &record, Batch *batch,
                        quire_error *error) {
    Queue *queue = record.queues[shard];
    QueueUse use(queue);
    QUIRE_TRY(use.status());
    QUIRE_TRY(books_.shards.enqueue(shard, queue, record.copies, &books_.journal, error));
    return batch != nullptr ? batch->upload(shard, queue, error) : Status{};
}

Status Runs::enqueue(const StepRecord &record, Batch *batch, quire_error *error) {
    for (uint32_t i = 0; i < record.shard_count; ++i) {
        QUIRE_TRY(enqueue_on(i, record, batch, error));
    }
    return Status{};
}

Status Runs::lost_at_commit(const Status &why, quire_error *error) {
    if (error->native_code == 0) error->native_code = why.code;
    return Status{QUIRE_E_DEVICE_LOST, why.text, why.first, why.second};
}

// The batch takes this step and forgets an earlier one, which may end after the batch is destroyed.
void Runs::begin_batch(StepRecord *record, Batch *batch) {
    for (StepRecord &other : books_.records) {
        if (batch != nullptr && other.batch == batch) other.batch = nullptr;
    }
    record->batch = batch;
}

void Runs::end_batch(StepRecord *record) {
    if (record->batch != nullptr) record->batch->end(record->number);
    record->batch = nullptr;
}

Status Runs::wait_for_signal(StepRecord *record, const quire_native &native, quire_error *error) {
    if (!books_.has_memory) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "a native signal: a cache without memory waits for no device; pass NULL");
    }
    if (record->shard_count != 1) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "a native signal belongs to one device, but the cache has {} shards: call "
                    "quire_queue_after_native for each, and pass NULL",
                    record->shard_count);
    }
    Queue *queue = record->queues[0];
    const quire_backend_api &api = *queue->device->api;
    if (api.native_wait == nullptr) {
        return fail(QUIRE_E_UNSUPPORTED, "the device's backend does not support native semaphores");
    }
    QueueUse use(queue);
    QUIRE_TRY(use.status());
    return call<&quire_backend_api::native_wait>(api, error, queue->handle, &native);
}

void Runs::commit(StepRecord *record, Batch *batch) {
    begin_batch(record, batch);
    record->phase = StepPhase::committed;
    books_.timeline.commit(record->queue);
    if (books_.has_memory) queue_sets_.commit(record->queue, record->number);
}

Status Runs::finish(StepRecord *record, const quire_native *native, quire_error *error) {
    QUIRE_TRY(wait_for_native(record, native, error));
    // If a later shard refuses its fence, the earlier shards' fences count for nothing and get a
    // higher value next time.
    for (uint32_t i = 0; i < record->shard_count; ++i) QUIRE_TRY(signal(record, i, error));
    record->phase = StepPhase::finished;
    end_batch(record);
    record->handle = 0;
    if (!books_.has_memory) complete(record);
    return Status{};
}

Status Runs::signal(StepRecord *record, uint32_t shard, quire_error *error) {
    Queue *queue = record->queues[shard];
    QueueUse use(queue);
    QUIRE_TRY(use.status());
    if (record->copied != 0) {
        QUIRE_TRY(books_.copy_lanes.hold(shard, queue, record->copied, error));
    }
    QUIRE_TRY(call<&quire_backend_api::fence_signal>(*queue->device->api, error, queue->handle,
                                                     queue->fence, queue->signalled + 1));
    record->fence_values[shard] = ++queue->signalled;
    return Status{};
}

bool Runs::abandon(StepRecord *record) {
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    bool running = false;
    for (uint32_t i = 0; i < record->shard_count; ++i) {
        // On an abandoned queue any work may still run, and no fence will tell when it has.
        record->fence_values[i] = kUnsignalled;
        bool is_tracked =
            record->queues[i]->lock.is_abandoned() || signal(record, i, &ignored).ok();
        if (!is_tracked && !may_run(*record->queues[i]->device)) record->fence_values[i] = 0;
        running |= record->fence_values[i] != 0;
    }
    record->handle = 0;
    record->phase = StepPhase::finished;
    end_batch(record);
    return running;
}

// Once a device is idle, a fence would only say later what is known now.
void Runs::track_again(StepRecord *record, uint32_t shard) {
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    if (record->queues[shard]->lock.is_abandoned()) return;
    if (may_run(*record->queues[shard]->device)) {
        (void)signal(record, shard, &ignored);
    } else {
        record->fence_values[shard] = 0;
    }
}

void Runs::complete(StepRecord *record) {
    for (uint32_t i = 0; i < record->shard_count; ++i) --record->queues[i]->unfinished_steps;
    uint64_t old_oldest = books_.timeline.oldest();
    books_.timeline.complete(record->number);
    record->handle = 0;
    record->phase = StepPhase::unused;
    if (books_.is_stopped) return;  // its blocks are given to no one any more
    if (books_.timeline.oldest() != old_oldest) books_.journal.retire(old_oldest);
    if (books_.records.is_open())
        books_.records.open().barrier = books_.timeline.barrier(books_.records.open().queue);
}

// *passed: every shard reached its value. *failed: a shard's fence failed.
Status Runs::read_fences(StepRecord *record, bool *passed, bool *failed, quire_error *error) {
    *passed = true;
    *failed = false;
    for (uint32_t i = 0; i < record->shard_count && *passed; ++i) {
        if (record->fence_values[i] == kUnsignalled) track_again(record, i);
        if (record->fence_values[i] == 0) continue;  // none of its work can run there
        uint64_t value = 0;
        Queue *queue = record->queues[i];
        if (queue->lock.is_abandoned() || record->fence_values[i] == kUnsignalled) {
            *passed = false;
            return Status{};
        }
        QUIRE_TRY(
            call<&quire_backend_api::fence_read>(*queue->device->api, error, queue->fence, &value));
        *passed = value >= record->fence_values[i];
        *failed |= value == QUIRE_FENCE_FAILED;
    }
    return Status{};
}

Status Runs::await_writes(Awaited *out, quire_error *error) {
    return await_up_to(books_.timeline.next(), out, error);
}

Status Runs::await_step(uint64_t step, Awaited *out, quire_error *error) {
    return await_up_to(std::min(step + 1, books_.timeline.next()), out, error);
}

// The first fence of a finished step below `end` that is not reached.
Status Runs::await_up_to(uint64_t end, Awaited *out, quire_error *error) {
    *out = Awaited{};
    for (uint64_t step = books_.timeline.oldest(); step < end; ++step) {
        StepRecord &record = books_.records[Timeline::ring_index(step)];
        if (record.phase == StepPhase::committed) {
            return fail(QUIRE_E_BUSY, "a step is committed and not finished: finish it first");
        }
        if (record.phase != StepPhase::finished) continue;
        for (uint32_t i = 0; i < record.shard_count; ++i) {
            if (record.fence_values[i] == kUnsignalled) track_again(&record, i);
            if (record.fence_values[i] == 0) continue;  // none of its work can run there
            if (record.fence_values[i] == kUnsignalled) {
                return fail(QUIRE_E_BUSY,
                            "step {} failed, and its queue accepts no fence: it may still run",
                            step);
            }
            Queue *queue = record.queues[i];
            uint64_t value = 0;
            QUIRE_TRY(call<&quire_backend_api::fence_read>(*queue->device->api, error, queue->fence,
                                                           &value));
            if (value >= record.fence_values[i]) continue;
            *out = Awaited{queue->device->api, queue->fence, record.fence_values[i]};
            return Status{};
        }
    }
    return Status{};
}

}  // namespace quire
