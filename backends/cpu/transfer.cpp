// SPDX-License-Identifier: Apache-2.0

#include "transfer.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "device.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"
#include "shared/copies.hpp"

namespace quire::cpu {

namespace {

// At 10 GB/s a piece takes 26 us, ten times what it takes to share it out.
constexpr uint64_t kPieceBytes = uint64_t{256} << 10;
// Other queues' kernels wait for no more than this: some milliseconds.
constexpr uint64_t kPiecesPerTurn = 128;

constexpr uint32_t kCopiesPerCommand = (kArgumentBytes - 8) / sizeof(quire_be_copy);

struct CopyList {
    uint32_t count;        // of `copies`
    uint32_t parts_count;  // of commands behind this one that hold the rest of the list
    quire_be_copy copies[kCopiesPerCommand];
};

struct Fill {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t byte;
};

// A place in a list of copies: behind the first `offset` bytes of one of them.
struct Place {
    const Command *command;
    uint32_t index;
    uint64_t offset;

    const CopyList &list() const { return *reinterpret_cast<const CopyList *>(command->arguments); }
    // Goes on by `size_bytes` and tells visit(copy, offset, size_bytes) what it passes.
    // REQUIRES: as many are left.
    template <typename Visit>
    void pass(uint64_t size_bytes, Visit visit) {
        while (size_bytes != 0) {
            const quire_be_copy &copy = list().copies[index];
            uint64_t passed = std::min(size_bytes, copy.size_bytes - offset);
            if (passed != 0) visit(copy, offset, passed);
            size_bytes -= passed;
            offset += passed;
            if (offset == copy.size_bytes && size_bytes != 0) go_to_next();
        }
    }

 private:
    void go_to_next() {
        offset = 0;
        if (++index < list().count) return;
        index = 0;
        command = command->next;
    }
};

// The list that threads share out among them. An item is whatever piece is next.
struct SharedCopies {
    std::mutex mutex;
    Place next;
    uint64_t left_bytes;
};

void copy_piece(const void *context, uint32_t, uint32_t) {
    auto *shared = *static_cast<SharedCopies *const *>(context);
    std::unique_lock lock(shared->mutex);
    Place place = shared->next;
    uint64_t size_bytes = std::min(shared->left_bytes, kPieceBytes);
    shared->left_bytes -= size_bytes;
    shared->next.pass(size_bytes, [](const quire_be_copy &, uint64_t, uint64_t) {});
    lock.unlock();
    place.pass(size_bytes, [](const quire_be_copy &copy, uint64_t offset, uint64_t passed) {
        std::memcpy(reinterpret_cast<void *>(copy.dst + offset),
                    reinterpret_cast<const void *>(copy.src + offset), passed);
    });
}

uint64_t sum_of_bytes(const CopyList &list) {
    uint64_t size_bytes = 0;
    for (uint32_t i = 0; i < list.count; ++i) size_bytes += list.copies[i].size_bytes;
    return size_bytes;
}

// Runs task(context, item, thread) for each piece of `size_bytes`, in turns that let others in.
void run_pieces(quire_be_device *device, uint64_t size_bytes, ThreadPool::Task task,
                const void *context) {
    for (uint64_t left = (size_bytes + kPieceBytes - 1) / kPieceBytes; left != 0;) {
        uint64_t count = std::min(left, kPiecesPerTurn);
        device->pool.run(static_cast<uint32_t>(count), task, context);
        left -= count;
    }
}

void run_copies(const void *arguments, quire_be_device *device, Fault *) {
    const Command *command = Command::of(arguments);
    SharedCopies shared{{}, {command, 0, 0}, 0};
    uint32_t parts_left = shared.next.list().parts_count;
    shared.left_bytes = sum_of_bytes(shared.next.list());
    for (; parts_left != 0; --parts_left) {
        command = command->next;
        shared.left_bytes += sum_of_bytes(*reinterpret_cast<const CopyList *>(command->arguments));
    }
    SharedCopies *context = &shared;
    run_pieces(device, shared.left_bytes, copy_piece, &context);
}

// What is left of a fill when its first pieces are taken, by whichever thread.
struct SharedFill {
    const Fill *fill;
    std::atomic<uint64_t> next_piece;
};

void fill_piece(const void *context, uint32_t, uint32_t) {
    auto *shared = *static_cast<SharedFill *const *>(context);
    const Fill &fill = *shared->fill;
    uint64_t offset = shared->next_piece.fetch_add(1, std::memory_order_relaxed) * kPieceBytes;
    std::memset(reinterpret_cast<void *>(fill.address + offset), static_cast<int>(fill.byte),
                std::min(fill.size_bytes - offset, kPieceBytes));
}

void run_fill(const void *arguments, quire_be_device *device, Fault *) {
    const auto *fill = static_cast<const Fill *>(arguments);
    SharedFill shared = {fill, {0}};
    SharedFill *context = &shared;
    run_pieces(device, fill->size_bytes, fill_piece, &context);
}

}  // namespace

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_copies(copies, count, error)) return status;
    if (count == 0) return QUIRE_OK;
    uint32_t commands = (count - 1) / kCopiesPerCommand + 1;
    return queue->submit(commands, error, [&](uint32_t index, Command *command) {
        uint32_t first = index * kCopiesPerCommand;
        uint32_t held = std::min(count - first, kCopiesPerCommand);
        auto *list = command->hold<CopyList>();
        list->count = held;
        list->parts_count = commands - 1 - index;
        std::memcpy(list->copies, copies + first, held * sizeof *copies);
        command->kind = index == 0 ? CommandKind::run : CommandKind::part;
        command->run = run_copies;
    });
}

quire_status fill(quire_be_queue *queue, uint64_t address, uint64_t size_bytes, uint32_t byte,
                  quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_fill(address, size_bytes, byte, error)) return status;
    if (size_bytes == 0) return QUIRE_OK;
    return queue->submit(1, error, [&](uint32_t, Command *command) {
        *command->hold<Fill>() = {address, size_bytes, byte};
        command->kind = CommandKind::run;
        command->run = run_fill;
    });
}

}  // namespace quire::cpu
