// SPDX-License-Identifier: Apache-2.0
//
// log: the log thread: gives records their place, makes segments, syncs and flushes.
//
// A segment's life: created by roll() as the head; no longer the head once it is full or a sync of
// it failed; settled: all its writes have ended, its unused room is given back; removed by
// reclaim.cpp.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "disk/store.hpp"

namespace quire::disk {

namespace {

// How many more bytes than its size a segment's file may take on the disk: file systems keep the
// map of a file's pieces in units of their own, about one per 64 MiB.
uint64_t map_bytes(uint64_t segment_bytes) {
    return kUnitBytes * (1 + segment_bytes / (uint64_t{64} << 20));
}

}  // namespace

uint64_t Store::segment_cost() const {
    return options_.segment_bytes + map_bytes(options_.segment_bytes);
}

void Store::run_log() {
    Lock lock(mutex_);
    // The capacity may have been larger when the records were written.
    remove_empty(lock);
    while (charged_bytes() > options_.capacity_bytes && evict_oldest(lock, false)) {
    }
    for (;;) {
        if (step_log(lock)) continue;
        if (is_stopping_) break;
        is_log_idle_ = true;
        log_wanted_.wait(lock);
        is_log_idle_ = false;
    }
    head_ = nullptr;
    settle_all(lock);
    if (options_.durability != Durability::none) sync_all(lock);
    for (auto &[number, segment] : segments_) {
        log_wanted_.wait(lock, [&of = *segment] { return !of.is_syncing; });
    }
}

// Does one thing; false: there is nothing to do.
bool Store::step_log(Lock &lock) {
    if (is_settling_due_ && settle_one(lock, false)) return true;
    if (!proved_.is_empty() || (is_room_due_ && head_ != nullptr && head_->is_proved)) {
        make_room(lock);
        while (Request *request = proved_.pop()) finish(request, QUIRE_STORE_DONE);
        return true;
    }
    // The first record of a head is written alone, so that room is made while the head has most of
    // its own.
    bool is_proving = is_room_due_ && head_ != nullptr && !head_->is_written();
    if (!is_proving && !appends_.is_empty()) {
        Request *request = appends_.pop();
        if (request->is_cancelled) {
            finish(request, QUIRE_STORE_CANCELLED);
        } else {
            append(lock, request);
        }
        return true;
    }
    if (Request *request = flushes_.first(); request != nullptr && request == open_.first()) {
        flushes_.remove(request);
        flush(lock, request);
        return true;
    }
    if (Request *request = compacts_.pop()) {
        compact(lock, request);
        return true;
    }
    return false;
}

// Gives the record the next place in the head. REQUIRES: it fits.
void Store::place(Record *record, uint8_t *header) {
    record->sequence = next_sequence_++;
    if (record->first_sequence == 0) record->first_sequence = record->sequence;
    record->segment = head_->number;
    record->offset = head_->end_bytes;
    head_->end_bytes += record->total_bytes();
    head_->writing.push_back(record->sequence);
    write_record(*record, header);
}

// After a failed write: the place is used again if nothing comes after it, so that a disk that
// fails every write fills no segment. Otherwise it stays a hole, which recovery skips.
void Store::unplace(const Record &record, Segment *segment) {
    bool is_last = segment->end_bytes == record.offset + record.total_bytes();
    if (segment == head_ && is_last) segment->end_bytes = record.offset;
}

void Store::append(Lock &lock, Request *request) {
    Record &record = request->record;
    uint64_t size_bytes = record.total_bytes();
    int result = 0;
    if (head_ == nullptr || head_->end_bytes + size_bytes > options_.segment_bytes) {
        result = roll(lock);
    }
    if (result != 0) {
        bool is_put = request->kind() == QUIRE_STORE_PUT;
        bool is_full = result == -ENOSPC || result == -EDQUOT;
        stats_.puts_refused += is_put ? 1 : 0;
        finish(request, is_put && is_full ? QUIRE_STORE_FULL : QUIRE_STORE_FAILED, -result);
        return;
    }
    place(&record, request->buffer.bytes);
    request->segment = head_;
    request->is_appended = true;
    Transfer &transfer = request->transfer;
    transfer = {};
    transfer.kind = TransferKind::write;
    transfer.file = head_->file.get();
    transfer.bytes = request->buffer.bytes;
    transfer.size_bytes = size_bytes;
    transfer.offset = record.offset;
    transfer.done = &Store::on_transfer_done;
    transfer.owner = this;
    transfer.subject = request;
    to_start_.push(&transfer);
    start_queued(lock);
}

// Ends the head, if there is one. A proved one has earned the room that it took, so that older
// segments may go for the next.
void Store::leave_head(Lock &lock) {
    if (head_ == nullptr) return;
    Segment *full = head_;
    head_ = nullptr;
    is_settling_due_ = true;
    if (full->is_proved) {
        // Settled once its writes have ended: waiting for them here would leave the disk idle.
        is_room_due_ = false;
    } else {
        settle_all(lock);
    }
}

// Makes a new head. 0, or a negative errno: there is no head then.
int Store::roll(Lock &lock) {
    leave_head(lock);
    // A file that cannot be removed takes room; no record has to go for it.
    if (!discard_dying(lock)) return -EIO;
    // Only if the spare room was used up: without it, nothing can be copied forward.
    while (!has_spare()) {
        if (is_room_due_) return -EIO;
        if (!evict_oldest(lock, false)) return -ENOSPC;
    }
    return create_segment(lock);
}

int Store::create_segment(Lock &lock) {
    auto segment = std::make_unique<Segment>();
    segment->number = next_number_++;
    segment->charged_bytes = segment_cost();
    segment->writing.reserve(kMaxRequests);
    SegmentHeader header{segment->number, options_.segment_bytes, id_};
    Buffer buffer = log_buffers_.take(kSegmentHeaderBytes);
    if (buffer.bytes == nullptr) return -ENOMEM;
    write_segment_header(header, buffer.bytes);
    Segment *made = segment.get();
    segments_.emplace(made->number, std::move(segment));

    lock.unlock();
    std::string name = segment_name(header.number);
    int result = directory_->open(name, OpenMode::create, &made->file);
    bool is_there = result == 0;
    if (result == 0) result = made->file->allocate(options_.segment_bytes);
    if (result == 0) {
        int64_t written = made->file->write(buffer.bytes, kSegmentHeaderBytes, 0);
        if (written < 0) result = static_cast<int>(written);
        if (written >= 0 && written != static_cast<int64_t>(kSegmentHeaderBytes)) result = -EIO;
    }
    bool is_directory_synced = false;
    if (result == 0 && options_.durability == Durability::record) {
        result = directory_->sync();
        is_directory_synced = result == 0;
    }
    bool is_left = result != 0 && is_there && directory_->remove(name) != 0;
    lock.lock();

    log_buffers_.give_back(&buffer);
    if (!is_directory_synced && is_there) is_directory_dirty_ = true;
    if (result == 0) {
        made->is_dirty = true;
        stats_.written_bytes += kSegmentHeaderBytes;
        head_ = made;
        is_room_due_ = !has_spare() || segments_.size() > most_segments();
    } else if (is_left) {
        made->is_dying = true;  // removed before the next segment is made
    } else {
        segments_.erase(made->number);
    }
    return result;
}

// Ends the life of a head: gives back the room that it did not use.
void Store::settle(Lock &lock, Segment *segment) {
    log_wanted_.wait(lock, [&] { return segment->is_written(); });
    segment->is_settled = true;
    if (segment->is_empty()) {
        discard(lock, segment);
        return;
    }
    uint64_t end_bytes = segment->end_bytes;
    FileSize size;
    lock.unlock();
    segment->file->truncate(end_bytes);
    int result = segment->file->measure(&size);
    lock.lock();
    if (result == 0) segment->charged_bytes = std::max(size.size_bytes, size.allocated_bytes);
    if (options_.durability != Durability::none && segment->is_dirty && !segment->is_broken) {
        sync_directory(lock);
        start_sync(segment);
        start_queued(lock);
    }
}

// Settles a segment that is no longer the head; without `waits`, only one whose writes have ended.
// False: no segment was settled.
bool Store::settle_one(Lock &lock, bool waits) {
    is_settling_due_ = false;
    for (auto &[number, segment] : segments_) {
        if (segment->is_settled || segment.get() == head_) continue;
        is_settling_due_ = true;
        if (!waits && !segment->is_written()) continue;
        settle(lock, segment.get());
        return true;
    }
    return false;
}

void Store::settle_all(Lock &lock) {
    while (settle_one(lock, true)) {
    }
}

// Makes everything durable that was written. 0, or a negative errno: of the last failure.
int Store::sync_all(Lock &lock) {
    int result = 0;
    std::vector<Segment *> dirty;
    for (auto &[number, segment] : segments_) {
        if (segment->is_dirty || segment->is_syncing) dirty.push_back(segment.get());
    }
    // Only this thread removes segments, so they stay.
    for (Segment *segment : dirty) {
        while (segment->is_dirty || segment->is_syncing) {
            if (segment->is_broken) break;
            if (!segment->is_syncing) start_sync(segment);
            start_queued(lock);
            log_wanted_.wait(lock, [&] { return !segment->is_syncing; });
        }
        if (segment->is_broken) result = -EIO;
    }
    if (int synced = sync_directory(lock)) result = synced;
    return result;
}

int Store::sync_directory(Lock &lock) {
    if (!is_directory_dirty_) return 0;
    lock.unlock();
    int result = directory_->sync();
    lock.lock();
    if (result == 0) is_directory_dirty_ = false;
    return result;
}

void Store::flush(Lock &lock, Request *request) {
    request->stage = Stage::active;
    int result = sync_all(lock);
    for (auto &[number, segment] : segments_) {
        if (segment->has_lost_removals) result = -EIO;
    }
    finish(request, result == 0 ? QUIRE_STORE_DONE : QUIRE_STORE_FAILED, -result);
}

// Runs a transfer and waits for it: for the log thread only.
int64_t Store::run_transfer(Lock &lock, TransferKind kind, Segment *segment, uint8_t *bytes,
                            uint64_t size_bytes, uint64_t offset) {
    struct Wait {
        Store *store;
        bool is_over;
    } wait{this, false};
    Transfer transfer;
    transfer.kind = kind;
    transfer.file = segment->file.get();
    transfer.bytes = bytes;
    transfer.size_bytes = size_bytes;
    transfer.offset = offset;
    transfer.owner = &wait;
    transfer.done = [](Transfer *done) {
        auto *waits = static_cast<Wait *>(done->owner);
        Lock inner(waits->store->mutex_);
        waits->is_over = true;
        waits->store->log_wanted_.notify_all();
    };
    lock.unlock();
    io_->start(&transfer);
    lock.lock();
    log_wanted_.wait(lock, [&] { return wait.is_over; });
    return transfer.result;
}

}  // namespace quire::disk
