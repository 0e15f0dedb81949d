// SPDX-License-Identifier: Apache-2.0

#include "disk/store.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "shared/refusal.hpp"

namespace quire::disk {

namespace {

// Enough for a queue of 2 MiB blocks that hides the disk's latency; a single larger record has a
// buffer alone.
constexpr uint64_t kBufferBudget = uint64_t{64} << 20;

}  // namespace

Store::Store(const Options &options, std::unique_ptr<Directory> directory)
    : options_(options),
      directory_(std::move(directory)),
      slots_(kMaxRequests),
      buffers_(kBufferBudget),
      log_buffers_(options.max_record_bytes()) {
    for (Request &slot : slots_) free_.push_back(&slot);
}

Store::~Store() {
    close_wait(UINT64_MAX);
    segments_.clear();
}

void Store::stop_threads() {
    {
        Lock lock(mutex_);
        is_stopping_ = true;
    }
    log_wanted_.notify_all();
    if (log_.joinable()) log_.join();
    // The log thread's last syncs are finished by the workers, so these go last.
    {
        Lock lock(mutex_);
        are_workers_stopping_ = true;
    }
    worker_wanted_.notify_all();
    for (std::thread &worker : workers_) worker.join();
    workers_.clear();
    io_.reset();
    release_claim();
}

bool Store::close_wait(uint64_t timeout_ns) {
    {
        Lock lock(mutex_);
        is_closing_ = true;
        auto has_ended = [this] { return open_.is_empty(); };
        constexpr uint64_t kCentury = uint64_t{100} * 365 * 24 * 3600 * 1'000'000'000;
        if (timeout_ns >= kCentury) {
            ended_.wait(lock, has_ended);
        } else if (!ended_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), has_ended)) {
            return false;
        }
    }
    stop_threads();
    return true;
}

bool Store::is_closing() {
    Lock lock(mutex_);
    return is_closing_;
}

void Store::get_info(quire_store_info *out) {
    out->flags = QUIRE_STORE_INDEXED | QUIRE_STORE_PERSISTENT | QUIRE_STORE_COMPACTS;
    out->max_value_bytes = options_.max_value_bytes();
    out->capacity_bytes = options_.capacity_bytes;
    out->max_requests = kMaxRequests;
    out->reserved0 = 0;
    // A long path loses its end, not the way in which it is read.
    std::snprintf(out->place, sizeof out->place, "(%s) %s", io_->name(),
                  options_.directory.c_str());
}

quire_store_stats Store::stats() {
    Lock lock(mutex_);
    quire_store_stats stats = stats_;
    stats.records = index_.count();
    stats.value_bytes = index_.value_bytes();
    stats.used_bytes = used_bytes();
    return stats;
}

uint32_t Store::submit(const quire_store_request *requests, uint32_t count, uint32_t stride) {
    Lock lock(mutex_);
    if (is_closing_) return 0;
    std::vector<Request *> taken;
    taken.reserve(std::min(count, kMaxRequests));
    for (Request *slot = free_.first(); slot != nullptr && taken.size() < count;
         slot = RequestQueue::after(slot)) {
        auto asked =
            element_of<quire_store_request>(requests, static_cast<uint32_t>(taken.size()), stride);
        slot->pieces.assign(asked.pieces, asked.pieces + asked.piece_count);
        slot->size_bytes = 0;
        for (const quire_store_piece &piece : slot->pieces) slot->size_bytes += piece.size_bytes;
        slot->answer = {};
        slot->answer.kind = asked.kind;
        slot->answer.cookie = asked.cookie;
        slot->answer.label = asked.label;
        taken.push_back(slot);
    }
    for (Request *request : taken) {
        free_.remove(request);
        request->ticket = next_ticket_++;
        request->is_cancelled = false;
        request->stage = Stage::queued;
        open_.push_back(request);
        if (request->kind() == QUIRE_STORE_FIND) {
            uint32_t entry = index_.find(request->label().key);
            bool is_there = entry != kNoEntry && are_equal(index_[entry].label, request->label());
            finish(request, is_there ? QUIRE_STORE_DONE : QUIRE_STORE_MISS);
            continue;
        }
        RequestQueue *queue = &changes_;
        if (request->kind() == QUIRE_STORE_GET) queue = &gets_;
        if (request->kind() == QUIRE_STORE_FLUSH) queue = &flushes_;
        if (request->kind() == QUIRE_STORE_COMPACT) queue = &compacts_;
        request->waits_in = queue;
        queue->push_back(request);
        (queue == &changes_ || queue == &gets_ ? worker_wanted_ : log_wanted_).notify_one();
        // A flush of a store without a log thread: nothing was ever written.
        if (queue == &flushes_ && options_.is_read_only) {
            queue->remove(request);
            finish(request, QUIRE_STORE_DONE);
        }
    }
    return static_cast<uint32_t>(taken.size());
}

uint32_t Store::reap(quire_store_answer *answers, uint32_t capacity, uint32_t stride) {
    Lock lock(mutex_);
    uint32_t count = 0;
    quire_store_answer answer;
    Request *freed = nullptr;
    while (count < capacity && answers_.take(&answer, &freed)) {
        set_element(answers, count++, stride, answer);
        if (freed == nullptr) continue;
        freed->stage = Stage::free;
        free_.push_back(freed);
    }
    return count;
}

void Store::cancel(uint64_t cookie) {
    Lock lock(mutex_);
    for (Request *request = open_.first(); request != nullptr;) {
        Request *next = OpenRequests::after(request);
        if (request->answer.cookie == cookie) {
            request->is_cancelled = true;
            if (request->stage == Stage::queued || request->stage == Stage::parked) {
                request->waits_in->remove(request);
                finish(request, QUIRE_STORE_CANCELLED);
            }
        }
        request = next;
    }
}

void Store::find(const quire_store_label *labels, uint32_t count, uint32_t stride, uint8_t *found) {
    Lock lock(mutex_);
    for (uint32_t i = 0; i < count; ++i) {
        auto label = element_of<quire_store_label>(labels, i, stride);
        uint32_t entry = index_.find(label.key);
        bool is_there = entry != kNoEntry && are_equal(index_[entry].label, label);
        found[i] = is_there ? QUIRE_STORE_PRESENT : QUIRE_STORE_ABSENT;
    }
}

uint32_t Store::list(uint64_t *cursor, quire_store_record *records, uint32_t capacity,
                     uint32_t stride) {
    Lock lock(mutex_);
    uint32_t count = 0;
    for (; *cursor < index_.end() && count < capacity; ++*cursor) {
        const Entry &entry = index_[static_cast<uint32_t>(*cursor)];
        if (entry.segment == nullptr) continue;
        quire_store_record record{entry.label, entry.value_bytes, entry.first_sequence};
        set_element(records, count++, stride, record);
    }
    return count;
}

// REQUIRES: the request is in no queue but open_.
void Store::finish(Request *request, uint32_t outcome, int64_t native_code) {
    if (request->stage == Stage::active) release_key(request);
    buffers_.give_back(&request->buffer);
    if (!gets_.is_empty() || !changes_.is_empty()) worker_wanted_.notify_one();
    request->answer.outcome = outcome;
    request->answer.native_code = native_code;
    request->stage = Stage::finished;
    open_.remove(request);
    answers_.add(request);
    if (open_.is_empty()) ended_.notify_all();
    // Perhaps a flush waited for this one.
    if (!flushes_.is_empty()) log_wanted_.notify_all();
}

// Lets those go on that waited for the key, in their order.
void Store::release_key(Request *request) {
    if (holders_.of(request->label().key) != request) return;
    holders_.remove(request);
    --holder_count_;
    RequestQueue waiting;
    for (Request *parked = parked_.first(); parked != nullptr;) {
        Request *next = RequestQueue::after(parked);
        if (std::memcmp(parked->label().key, request->label().key, 32) == 0) {
            parked_.remove(parked);
            waiting.push_front(parked);
        }
        parked = next;
    }
    while (Request *parked = waiting.pop()) {
        parked->stage = Stage::queued;
        parked->waits_in = &changes_;
        changes_.push_front(parked);
    }
    log_wanted_.notify_all();
}

void Store::drop(uint32_t entry, bool is_told) {
    if (is_told) answers_.add_gone(index_[entry].label);
    index_.remove(entry);
}

}  // namespace quire::disk
