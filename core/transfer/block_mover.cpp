// SPDX-License-Identifier: Apache-2.0

#include "core/transfer/block_mover.hpp"

#include <algorithm>

#include "core/device/backend_call.hpp"

namespace quire {

BlockMover::~BlockMover() {
    down_.settle();
    up_.settle();
    for (Stage &s : stages_) {
        if (s.from.address != 0) {
            free_memory(*from_, s.from.address, slot_bytes_, QUIRE_BE_MEMORY_HOST);
        }
        if (s.to.address != 0) {
            free_memory(*to_, s.to.address, slot_bytes_, QUIRE_BE_MEMORY_HOST);
        }
    }
}

Status BlockMover::create(const Device *from, const Device *to, uint64_t total_bytes,
                          quire_error *error) {
    from_ = from;
    to_ = to;
    slot_bytes_ = std::clamp(total_bytes, kDeviceAlignment, kSlotBytes);
    for (Stage &s : stages_) {
        if (!s.down.reserve(kMaxCopies) || !s.up.reserve(kMaxCopies)) return no_host_memory();
    }
    QUIRE_TRY(down_.create(from, error));
    if (is_direct()) return Status{};
    QUIRE_TRY(up_.create(to, error));
    auto allocate = [&](const Device *device, Memory *memory) -> Status {
        void *pointer = nullptr;
        QUIRE_TRY(allocate_memory(*device, slot_bytes_, QUIRE_BE_MEMORY_HOST, &memory->address,
                                  &pointer, error));
        memory->bytes = static_cast<uint8_t *>(pointer);
        return Status{};
    };
    for (Stage &s : stages_) {
        QUIRE_TRY(allocate(from, &s.from));
        QUIRE_TRY(allocate(to, &s.to));
    }
    return Status{};
}

// True if the piece continues the stage's last one on both sides.
bool BlockMover::extends(const Stage &s, uint64_t src, uint64_t dst) const {
    if (s.down.empty()) return false;
    const quire_be_copy &last = *(s.down.end() - 1);
    if (is_direct()) return last.src + last.size_bytes == src && last.dst + last.size_bytes == dst;
    const quire_be_copy &last_up = *(s.up.end() - 1);
    return last.src + last.size_bytes == src && last_up.dst + last_up.size_bytes == dst;
}

Status BlockMover::move(uint64_t src, uint64_t dst, uint64_t size_bytes, quire_error *error) {
    while (size_bytes != 0) {
        bool joins = extends(stage(), src, dst);
        uint64_t at = stage().used_bytes;
        if (!joins) at = (at + kAlignment - 1) / kAlignment * kAlignment;
        bool is_full = !is_direct() && at >= slot_bytes_;
        if (is_full || (!joins && stage().down.size() == kMaxCopies)) {
            QUIRE_TRY(send(error));
            continue;
        }
        Stage &s = stage();
        uint64_t part = is_direct() ? size_bytes : std::min(size_bytes, slot_bytes_ - at);
        if (joins) {
            (s.down.end() - 1)->size_bytes += part;
            if (!is_direct()) (s.up.end() - 1)->size_bytes += part;
        } else if (is_direct()) {
            s.down.push(quire_be_copy{dst, src, part, QUIRE_BE_COPY_D2D, 0});
        } else {
            s.down.push(quire_be_copy{s.from.address + at, src, part, QUIRE_BE_COPY_D2H, 0});
            s.up.push(quire_be_copy{dst, s.to.address + at, part, QUIRE_BE_COPY_H2D, 0});
        }
        s.used_bytes = at + part;
        src += part;
        dst += part;
        size_bytes -= part;
    }
    return Status{};
}

// Sends the stage's pieces down, sends the stage before it up, and frees the next stage for
// filling.
Status BlockMover::send(quire_error *error) {
    QUIRE_TRY(down_.copy(stage().down.data(), static_cast<uint32_t>(stage().down.size()), error));
    QUIRE_TRY(down_.mark(&stage().down_value, error));
    Stage &before = stages_[(current_ + kStages - 1) % kStages];
    if (is_direct()) {
        before.down_value = 0;
    } else if (before.down_value != 0) {
        QUIRE_TRY(forward(&before, error));
    }
    current_ = (current_ + 1) % kStages;
    Stage &next = stage();
    if (next.up_value != 0) QUIRE_TRY(up_.wait(next.up_value, error));
    next.up_value = next.used_bytes = 0;
    next.down.shrink(0);
    next.up.shrink(0);
    return Status{};
}

Status BlockMover::forward(Stage *s, quire_error *error) {
    QUIRE_TRY(down_.wait(s->down_value, error));
    s->down_value = 0;
    std::memcpy(s->to.bytes, s->from.bytes, s->used_bytes);
    QUIRE_TRY(up_.copy(s->up.data(), static_cast<uint32_t>(s->up.size()), error));
    return up_.mark(&s->up_value, error);
}

Status BlockMover::finish(quire_error *error) {
    if (!stage().down.empty()) QUIRE_TRY(send(error));
    Stage &last = stages_[(current_ + kStages - 1) % kStages];
    if (is_direct()) return last.down_value != 0 ? down_.wait(last.down_value, error) : Status{};
    if (last.down_value != 0) QUIRE_TRY(forward(&last, error));
    return last.up_value != 0 ? up_.wait(last.up_value, error) : Status{};
}

}  // namespace quire
