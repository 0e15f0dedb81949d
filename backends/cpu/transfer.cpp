// SPDX-License-Identifier: Apache-2.0

#include "transfer.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "checks.hpp"
#include "queue.hpp"

namespace quire::cpu {

namespace {

constexpr uint32_t kCopiesPerCommand = 9;

struct CopyList {
    uint64_t count;
    quire_be_copy copies[kCopiesPerCommand];
};

struct Fill {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t byte;
};

void run_copies(const void *arguments, quire_be_device *, Fault *) {
    const auto *list = static_cast<const CopyList *>(arguments);
    for (uint64_t i = 0; i < list->count; ++i) {
        const quire_be_copy &one = list->copies[i];
        if (one.size_bytes == 0) continue;
        std::memcpy(reinterpret_cast<void *>(one.dst), reinterpret_cast<const void *>(one.src),
                    one.size_bytes);
    }
}

void run_fill(const void *arguments, quire_be_device *, Fault *) {
    const auto *fill = static_cast<const Fill *>(arguments);
    std::memset(reinterpret_cast<void *>(fill->address), static_cast<int>(fill->byte),
                fill->size_bytes);
}

// [address, address + size_bytes) may be memory.
bool is_range(uint64_t address, uint64_t size_bytes) {
    uint64_t end = 0;
    return size_bytes == 0 || (address != 0 && !__builtin_add_overflow(address, size_bytes, &end));
}

quire_status check_copy(const quire_be_copy &one, uint32_t index, quire_error *error) {
    if (one.kind > QUIRE_BE_COPY_H2H) {
        return fail(error, QUIRE_E_ARG, "copy %u has the unknown kind %u", index, one.kind);
    }
    if (!is_range(one.dst, one.size_bytes) || !is_range(one.src, one.size_bytes)) {
        return fail(error, QUIRE_E_ARG,
                    "copy %u of %" PRIu64 " bytes begins or ends outside memory", index,
                    one.size_bytes);
    }
    uint64_t distance = one.dst > one.src ? one.dst - one.src : one.src - one.dst;
    if (distance < one.size_bytes) {
        return fail(error, QUIRE_E_ARG,
                    "copy %u of %" PRIu64
                    " bytes overlaps itself: destination and source lie "
                    "%" PRIu64 " bytes apart",
                    index, one.size_bytes, distance);
    }
    return QUIRE_OK;
}

}  // namespace

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (count == 0) return QUIRE_OK;
    if (copies == nullptr)
        return fail(error, QUIRE_E_ARG, "copies is NULL, but count is %u", count);
    for (uint32_t i = 0; i < count; ++i) {
        if (quire_status status = check_copy(copies[i], i, error)) return status;
    }
    uint32_t commands = (count - 1) / kCopiesPerCommand + 1;
    return queue->submit(commands, error, [&](uint32_t index, Command *command) {
        uint32_t first = index * kCopiesPerCommand;
        uint32_t held = std::min(count - first, kCopiesPerCommand);
        auto *list = command->hold<CopyList>();
        list->count = held;
        std::memcpy(list->copies, copies + first, held * sizeof *copies);
        command->kind = CommandKind::run;
        command->run = run_copies;
    });
}

quire_status fill(quire_be_queue *queue, uint64_t address, uint64_t size_bytes, uint32_t byte,
                  quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (size_bytes == 0) return QUIRE_OK;
    if (byte > 0xFF) return fail(error, QUIRE_E_ARG, "%u is not a byte; give 0 to 255", byte);
    if (!is_range(address, size_bytes)) {
        return fail(error, QUIRE_E_ARG, "a fill of %" PRIu64 " bytes begins or ends outside memory",
                    size_bytes);
    }
    return queue->submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<Fill>() = {address, size_bytes, byte};
        command->kind = CommandKind::run;
        command->run = run_fill;
    });
}

}  // namespace quire::cpu
