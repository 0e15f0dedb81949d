// SPDX-License-Identifier: Apache-2.0
//
// serve: the workers, and what becomes of transfers that completed.

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "disk/store.hpp"

namespace quire::disk {

namespace {

// Copied and hashed in turn, small enough that the second finds it in the processor's cache.
constexpr uint64_t kChunkBytes = uint64_t{64} << 10;

}  // namespace

void Store::work() {
    Lock lock(mutex_);
    for (;;) {
        if (Transfer *transfer = completions_.pop()) {
            finish_transfer(lock, transfer);
            continue;
        }
        // A get that waits for a buffer holds back the puts, which would take it.
        bool did_work =
            !gets_.is_empty() ? begin_get(lock) : !changes_.is_empty() && begin_change(lock);
        if (did_work) continue;
        if (are_workers_stopping_) return;
        worker_wanted_.wait(lock);
    }
}

void Store::on_transfer_done(Transfer *transfer) {
    auto *store = static_cast<Store *>(transfer->owner);
    Lock lock(store->mutex_);
    if (transfer->kind != TransferKind::read) {
        store->finish_transfer(lock, transfer);
        return;
    }
    store->completions_.push(transfer);
    store->worker_wanted_.notify_one();
}

// Starts the transfers that were queued while the mutex was held.
void Store::start_queued(Lock &lock) {
    while (Transfer *transfer = to_start_.pop()) {
        lock.unlock();
        io_->start(transfer);
        lock.lock();
    }
}

void Store::finish_transfer(Lock &lock, Transfer *transfer) {
    if (transfer->kind == TransferKind::sync) {
        on_synced(static_cast<Segment *>(transfer->subject), transfer->result);
    } else if (transfer->kind == TransferKind::read) {
        finish_get(lock, static_cast<Request *>(transfer->subject));
    } else {
        on_written(lock, static_cast<Request *>(transfer->subject));
    }
    log_wanted_.notify_all();
    start_queued(lock);
}

Record Store::record_of(const Entry &entry) const {
    Record record;
    record.sequence = entry.sequence;
    record.first_sequence = entry.first_sequence;
    record.segment = entry.segment->number;
    record.offset = entry.offset;
    record.value_bytes = entry.value_bytes;
    record.store = id_;
    record.label = entry.label;
    return record;
}

// False: there is no buffer for it now.
bool Store::begin_get(Lock &lock) {
    Request *request = gets_.first();
    request->answer.size_bytes = 0;
    uint32_t number = index_.find(request->label().key);
    if (number == kNoEntry || !are_equal(index_[number].label, request->label())) {
        gets_.remove(request);
        ++(number == kNoEntry ? stats_.misses : stats_.foreign);
        finish(request, number == kNoEntry ? QUIRE_STORE_MISS : QUIRE_STORE_FOREIGN);
        return true;
    }
    const Entry &entry = index_[number];
    request->answer.size_bytes = entry.value_bytes;
    if (entry.value_bytes != request->size_bytes) {
        gets_.remove(request);
        finish(request, QUIRE_STORE_SIZE);
        return true;
    }
    request->buffer = buffers_.take(entry.total_bytes());
    if (request->buffer.bytes == nullptr) {
        if (buffers_.are_in_use()) return false;
        gets_.remove(request);
        ++stats_.failed_reads;
        finish(request, QUIRE_STORE_FAILED, ENOMEM);
        return true;
    }
    gets_.remove(request);
    request->stage = Stage::active;
    request->record = record_of(entry);
    request->segment = entry.segment;
    ++entry.segment->reader_count;
    index_.set_was_read(number, true);
    Transfer &transfer = request->transfer;
    transfer = {};
    transfer.kind = TransferKind::read;
    transfer.file = entry.segment->file.get();
    transfer.bytes = request->buffer.bytes;
    transfer.size_bytes = entry.total_bytes();
    transfer.offset = entry.offset;
    transfer.done = &Store::on_transfer_done;
    transfer.owner = this;
    transfer.subject = request;
    to_start_.push(&transfer);
    start_queued(lock);
    return true;
}

Store::Check Store::check(const Record &expected, const uint8_t *bytes, int64_t result,
                          Record *found) {
    if (result < 0) return Check::failed;
    auto read_bytes = static_cast<uint64_t>(result);
    bool is_right = read_bytes >= expected.total_bytes() &&
                    read_record(bytes, found) == Reading::right &&
                    found->kind == RecordKind::value && found->sequence == expected.sequence &&
                    found->segment == expected.segment && found->offset == expected.offset &&
                    found->value_bytes == expected.value_bytes && found->store == expected.store &&
                    are_equal(found->label, expected.label) &&
                    value_checksum(*found, bytes + kRecordHeaderBytes) == found->value_checksum;
    return is_right ? Check::right : Check::damaged;
}

void Store::finish_get(Lock &lock, Request *request) {
    lock.unlock();
    int64_t result = request->transfer.result;
    Record found;
    Check checked = check(request->record, request->buffer.bytes, result, &found);
    if (checked == Check::right) {
        const uint8_t *from = request->buffer.bytes + kRecordHeaderBytes;
        for (const quire_store_piece &piece : request->pieces) {
            if (piece.size_bytes != 0) std::memcpy(piece.address, from, piece.size_bytes);
            from += piece.size_bytes;
        }
    }
    lock.lock();
    --request->segment->reader_count;
    if (result > 0) stats_.read_bytes += static_cast<uint64_t>(result);
    if (checked == Check::right) {
        ++stats_.hits;
        finish(request, QUIRE_STORE_DONE);
    } else if (checked == Check::failed) {
        ++stats_.failed_reads;
        finish(request, QUIRE_STORE_FAILED, -result);
    } else {
        ++stats_.damaged;
        is_doubtful_ = true;
        uint32_t number = index_.find(request->label().key);
        // Unless it was replaced or moved in the meantime.
        if (number != kNoEntry && index_[number].is_at(request->segment, request->record.offset)) {
            drop(number, true);
        }
        finish(request, QUIRE_STORE_DAMAGED);
    }
}

// A put or a removal. False: there is no buffer for it now.
bool Store::begin_change(Lock &lock) {
    Request *request = changes_.first();
    bool is_put = request->kind() == QUIRE_STORE_PUT;
    if (holders_.of(request->label().key) != nullptr) {
        changes_.remove(request);
        request->stage = Stage::parked;
        request->waits_in = &parked_;
        parked_.push_back(request);
        return true;
    }
    request->answer.size_bytes = request->size_bytes;
    uint32_t number = index_.find(request->label().key);
    bool is_there = number != kNoEntry && are_equal(index_[number].label, request->label());
    bool is_over = is_put ? is_there : !is_there && (number != kNoEntry || !is_doubtful_);
    if (is_over) {
        changes_.remove(request);
        if (is_put) ++stats_.puts_known;
        finish(request, QUIRE_STORE_DONE);
        return true;
    }
    Record &record = request->record;
    record = {};
    record.kind = is_put ? RecordKind::value : RecordKind::removal;
    record.value_bytes = request->size_bytes;
    record.store = id_;
    record.label = request->label();
    bool has_memory = true;
    try {
        // So that publish() cannot run out of memory.
        index_.reserve(holder_count_ + 1);
    } catch (const std::bad_alloc &) {
        has_memory = false;
    }
    if (has_memory) request->buffer = buffers_.take(record.total_bytes());
    if (request->buffer.bytes == nullptr) {
        if (has_memory && buffers_.are_in_use()) return false;
        changes_.remove(request);
        stats_.puts_refused += is_put ? 1 : 0;
        finish(request, QUIRE_STORE_FAILED, ENOMEM);
        return true;
    }
    changes_.remove(request);
    request->stage = Stage::active;
    request->is_appended = false;
    holders_.add(request);
    ++holder_count_;
    lock.unlock();
    gather(request);
    lock.lock();
    // While the log thread has nothing to do, nothing is being copied, and a record that fits may
    // get its place here, which saves waking that thread.
    bool is_simple = is_log_idle_ && appends_.is_empty() && !is_room_due_ && head_ != nullptr &&
                     head_->end_bytes + record.total_bytes() <= options_.segment_bytes;
    if (is_simple) {
        append(lock, request);
    } else {
        appends_.push_back(request);
        log_wanted_.notify_all();
    }
    return true;
}

// Copies the pieces to their place in the buffer and computes their checksum, in one pass.
void Store::gather(Request *request) {
    Record &record = request->record;
    uint8_t *begin = request->buffer.bytes + kRecordHeaderBytes;
    uint8_t *to = begin;
    if (record.kind == RecordKind::value) {
        XXH3_state_t state;
        XXH3_64bits_reset_withSeed(&state, value_seed(record));
        for (const quire_store_piece &piece : request->pieces) {
            const auto *from = static_cast<const uint8_t *>(piece.address);
            for (uint64_t left = piece.size_bytes; left != 0;) {
                uint64_t size = std::min(left, kChunkBytes);
                std::memcpy(to, from, size);
                XXH3_64bits_update(&state, to, size);
                to += size;
                from += size;
                left -= size;
            }
        }
        record.value_checksum = XXH3_64bits_digest(&state);
    }
    uint64_t padding = record.total_bytes() - kRecordHeaderBytes - record.value_bytes;
    std::memset(to, 0, padding);
}

void Store::on_written(Lock &, Request *request) {
    Segment *segment = request->segment;
    const Record &record = request->record;
    std::erase(segment->writing, record.sequence);
    int64_t result = request->transfer.result;
    if (result >= 0) {
        stats_.written_bytes += record.total_bytes();
        if (segment->is_broken) result = -EIO;
    }
    if (result < 0) {
        is_doubtful_ = true;
        unplace(record, segment);
        bool is_full = result == -ENOSPC || result == -EDQUOT;
        bool is_put = request->kind() == QUIRE_STORE_PUT;
        stats_.puts_refused += is_put ? 1 : 0;
        finish(request, is_put && is_full ? QUIRE_STORE_FULL : QUIRE_STORE_FAILED, -result);
        return;
    }
    segment->is_dirty = true;
    if (options_.durability != Durability::record) {
        publish(request);
        return;
    }
    segment->sync_waiting.push_back(request);
    start_sync(segment);
}

// Puts a written record into the index, or takes away the one that it removes.
void Store::publish(Request *request) {
    Segment *segment = request->segment;
    segment->is_proved = true;
    uint32_t number = index_.find(request->label().key);
    if (request->kind() == QUIRE_STORE_PUT) {
        // Another label of the key is there: the newest stays.
        if (number != kNoEntry) answers_.add_gone(index_[number].label);
        index_.put(request->record, segment);
        ++stats_.puts;
    } else {
        segment->last_removal = std::max(segment->last_removal, request->record.sequence);
        if (number != kNoEntry) {
            ++stats_.removed;
            drop(number, false);
        }
    }
    // The first record of a head is answered after the eviction that it causes, so that the store
    // does not change while it has no request.
    release_key(request);
    if (is_room_due_) {
        proved_.push_back(request);
    } else {
        finish(request, QUIRE_STORE_DONE);
    }
}

// Syncs what was written to the segment so far; if a sync is in flight, after it.
void Store::start_sync(Segment *segment) {
    if (segment->is_syncing) {
        segment->sync_again = true;
        return;
    }
    segment->is_syncing = true;
    segment->sync_again = false;
    segment->is_dirty = false;
    // Records are in flight in the order of their sequences, and may complete in any.
    segment->sync_target = segment->writing.empty() ? next_sequence_ : segment->writing.front();
    while (Request *request = segment->sync_waiting.pop()) segment->sync_running.push_back(request);
    Transfer &transfer = segment->sync;
    transfer = {};
    transfer.kind = TransferKind::sync;
    transfer.file = segment->file.get();
    transfer.done = &Store::on_transfer_done;
    transfer.owner = this;
    transfer.subject = segment;
    to_start_.push(&transfer);
}

void Store::on_synced(Segment *segment, int64_t result) {
    segment->is_syncing = false;
    if (result < 0) {
        distrust(segment, -result);
        return;
    }
    segment->synced_before = std::max(segment->synced_before, segment->sync_target);
    while (Request *request = segment->sync_running.pop()) publish(request);
    if (segment->sync_again || !segment->sync_waiting.is_empty()) start_sync(segment);
}

// After a failed sync: the system may have dropped the pages of any record that was written since
// the last good one, and a later sync would not tell.
void Store::distrust(Segment *segment, int64_t code) {
    is_doubtful_ = true;
    segment->is_broken = true;
    segment->is_dirty = false;  // nothing of it is left to be made durable
    segment->sync_again = false;
    if (segment->last_removal >= segment->synced_before && segment->last_removal != 0) {
        segment->has_lost_removals = true;
    }
    for (uint32_t number = segment->first_entry; number != kNoEntry;) {
        uint32_t next = index_[number].next;
        if (index_[number].sequence >= segment->synced_before) drop(number, true);
        number = next;
    }
    for (RequestQueue *queue : {&segment->sync_running, &segment->sync_waiting}) {
        while (Request *request = queue->pop()) {
            stats_.puts_refused += request->kind() == QUIRE_STORE_PUT ? 1 : 0;
            finish(request, QUIRE_STORE_FAILED, code);
        }
    }
    if (segment == head_) {
        head_ = nullptr;
        is_settling_due_ = true;
    }
}

}  // namespace quire::disk
