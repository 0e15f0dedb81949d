// SPDX-License-Identifier: Apache-2.0

#include "transfer.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "device.hpp"
#include "queue.hpp"

namespace quire::cpu {

namespace {

// At 10 GB/s a piece takes 26 us, ten times as long as handing it to a thread.
constexpr uint64_t kPieceBytes = uint64_t{256} << 10;
// Kernels of other queues wait at most for this many pieces: a few milliseconds.
constexpr uint64_t kPiecesPerTurn = 128;

// One item of a list: bytes to copy, or to set to one value.
struct Item {
    uint64_t dst;
    uint64_t src;  // for a fill: the value
    uint64_t size_bytes;
};

constexpr uint32_t kItemsPerCommand = (kArgumentBytes - 8) / sizeof(Item);

struct ItemList {
    uint32_t count;        // items in this command
    uint32_t parts_count;  // following commands that hold the rest of the list
    Item items[kItemsPerCommand];
};

// Processes `size_bytes` of an item, from byte `offset`.
using Work = void (*)(const Item &item, uint64_t offset, uint64_t size_bytes);

void copy_part(const Item &item, uint64_t offset, uint64_t size_bytes) {
    std::memcpy(reinterpret_cast<void *>(item.dst + offset),
                reinterpret_cast<const void *>(item.src + offset), size_bytes);
}

void fill_part(const Item &item, uint64_t offset, uint64_t size_bytes) {
    std::memset(reinterpret_cast<void *>(item.dst + offset), static_cast<int>(item.src),
                size_bytes);
}

void skip_part(const Item &, uint64_t, uint64_t) {}

// A position in a list: byte `offset` of an item.
struct Place {
    const Command *command;
    uint32_t index;
    uint64_t offset;

    const ItemList &list() const { return *reinterpret_cast<const ItemList *>(command->arguments); }
    // Advances by `size_bytes` and applies `work` to them. REQUIRES: at least that many are left.
    void pass(uint64_t size_bytes, Work work) {
        while (size_bytes != 0) {
            const Item &item = list().items[index];
            uint64_t passed = std::min(size_bytes, item.size_bytes - offset);
            if (passed != 0) work(item, offset, passed);
            size_bytes -= passed;
            offset += passed;
            if (offset == item.size_bytes && size_bytes != 0) go_to_next();
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

// The list that the threads share. Each item of the thread pool takes the next piece.
struct SharedList {
    Work work;
    std::mutex mutex;
    Place next;
    uint64_t left_bytes;
};

void work_on_piece(const void *context, uint32_t, uint32_t) {
    auto *shared = *static_cast<SharedList *const *>(context);
    std::unique_lock lock(shared->mutex);
    Place place = shared->next;
    uint64_t size_bytes = std::min(shared->left_bytes, kPieceBytes);
    shared->left_bytes -= size_bytes;
    shared->next.pass(size_bytes, skip_part);
    lock.unlock();
    place.pass(size_bytes, shared->work);
}

uint64_t sum_of_bytes(const ItemList &list) {
    uint64_t size_bytes = 0;
    for (uint32_t i = 0; i < list.count; ++i) size_bytes += list.items[i].size_bytes;
    return size_bytes;
}

// Runs the pieces in several turns, so that other queues' kernels can run in between.
template <Work work>
void run_list(const void *arguments, Device *device, Fault *) {
    const Command *command = Command::of(arguments);
    SharedList shared{work, {}, {command, 0, 0}, 0};
    uint32_t parts_left = shared.next.list().parts_count;
    shared.left_bytes = sum_of_bytes(shared.next.list());
    for (; parts_left != 0; --parts_left) {
        command = command->next;
        shared.left_bytes += sum_of_bytes(*reinterpret_cast<const ItemList *>(command->arguments));
    }
    SharedList *context = &shared;
    uint64_t left = shared.left_bytes / kPieceBytes + (shared.left_bytes % kPieceBytes != 0);
    while (left != 0) {
        uint64_t count = std::min(left, kPiecesPerTurn);
        device->pool.run(static_cast<uint32_t>(count), work_on_piece, &context);
        left -= count;
    }
}

// item_of(i) returns item i of `count`.
template <typename ItemOf>
quire_status submit_list(Queue &queue, uint32_t count, Run run, ItemOf item_of,
                         quire_error *error) {
    uint32_t commands = (count - 1) / kItemsPerCommand + 1;
    return queue.submit(commands, error, [&](uint32_t index, Command *command) {
        uint32_t first = index * kItemsPerCommand;
        auto *list = command->hold<ItemList>();
        list->count = std::min(count - first, kItemsPerCommand);
        list->parts_count = commands - 1 - index;
        for (uint32_t i = 0; i < list->count; ++i) list->items[i] = item_of(first + i);
        command->kind = index == 0 ? CommandKind::run : CommandKind::part;
        command->run = run;
    });
}

}  // namespace

quire_status enqueue_copies(Queue &queue, const quire_be_copy *copies, uint32_t count,
                            quire_error *error) {
    auto item_of = [&](uint32_t i) {
        return Item{copies[i].dst, copies[i].src, copies[i].size_bytes};
    };
    return submit_list(queue, count, run_list<copy_part>, item_of, error);
}

quire_status enqueue_fill(Queue &queue, const quire_be_range *ranges, uint32_t count, uint32_t byte,
                          quire_error *error) {
    auto item_of = [&](uint32_t i) { return Item{ranges[i].address, byte, ranges[i].size_bytes}; };
    return submit_list(queue, count, run_list<fill_part>, item_of, error);
}

}  // namespace quire::cpu
