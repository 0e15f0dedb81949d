// SPDX-License-Identifier: Apache-2.0

#include "core/device/copy_lanes.hpp"

#include <new>

#include "core/device/backend_call.hpp"

namespace quire {

Status CopyLanes::create(const Shards &shards, quire_error *error) {
    bool reached = false;
    if (lanes_ != nullptr && last_ > before_ && !look(last_, &reached, error).ok()) drop();
    if (lanes_ != nullptr) return Status{};
    std::unique_ptr<Lanes> made(new (std::nothrow) Lanes);
    if (made == nullptr) return no_host_memory();
    made->count = shards.count();
    for (uint32_t i = 0; i < shards.count(); ++i) {
        QUIRE_TRY(made->of[i].create(shards[i].device(), error));
    }
    lanes_ = std::move(made);
    return Status{};
}

void CopyLanes::drop() {
    lanes_.reset();
    before_ = ++last_;
}

Status CopyLanes::follow(uint32_t shard, Queue *queue, quire_error *error) {
    QueueUse use(queue);
    QUIRE_TRY(use.status());
    QUIRE_TRY(call<&quire_backend_api::fence_signal>(*queue->device->api, error, queue->handle,
                                                     queue->fence, queue->signalled + 1));
    ++queue->signalled;
    return lanes_->of[shard].after(queue->fence, queue->signalled, error);
}

Status CopyLanes::mark(uint64_t *value, quire_error *error) {
    ++last_;
    for (uint32_t i = 0; i < lanes_->count; ++i) {
        QUIRE_TRY(lanes_->of[i].mark_as(last_, error));
    }
    *value = last_;
    return Status{};
}

Status CopyLanes::look(uint64_t value, bool *reached, quire_error *error) {
    *reached = true;
    if (value <= before_) return fail(QUIRE_E_DEVICE_LOST, "a copy to the host failed");
    for (uint32_t i = 0; *reached && i < lanes_->count; ++i) {
        QUIRE_TRY(lanes_->of[i].look(value, reached, error));
    }
    return Status{};
}

bool CopyLanes::has_ended(uint64_t value) {
    if (value <= before_) return true;
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    uint64_t marked = last_;
    if (value > last_ && !mark(&marked, &ignored).ok()) return false;
    bool reached = false;
    return look(marked, &reached, &ignored).ok() && reached;
}

Status CopyLanes::hold(uint32_t shard, Queue *queue, uint64_t value, quire_error *error) {
    if (value <= before_) return Status{};
    return lanes_->of[shard].hold(queue->handle, value, error);
}

}  // namespace quire
