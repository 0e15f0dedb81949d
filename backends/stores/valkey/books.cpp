// SPDX-License-Identifier: Apache-2.0

#include "valkey/books.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "valkey/record.hpp"

namespace quire::valkey {

namespace {

bool is_of_another(const Index::Entry *entry, const quire_store_label &label) {
    return entry != nullptr && entry->has_label && !are_equal(entry->label, label);
}

}  // namespace

int Books::open() {
    open_.reserve(kMostRequests);
    flushes_.reserve(kMostRequests);
    descriptor_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return descriptor_ < 0 ? -errno : 0;
}

Books::~Books() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void Books::update_descriptor() {
    const bool is_empty = finished_.is_empty() && gone_.empty() && !has_lost_;
    if (is_readable_ == !is_empty) return;
    is_readable_ = !is_readable_;
    uint64_t count = 1;
    // Neither can fail: the counter is 0 before the write, and 1 before the read.
    ssize_t moved = 0;
    do {
        moved = is_readable_ ? ::write(descriptor_, &count, sizeof count)
                             : ::read(descriptor_, &count, sizeof count);
    } while (moved < 0 && errno == EINTR);
}

void Books::tell_gone(const quire_store_label &label) {
    if (has_lost_) return;  // until it was reaped, the caller knows nothing anyway
    if (gone_.size() == kMostNotices) return tell_lost();
    gone_.push_back(label);
}

void Books::tell_lost() {
    gone_.clear();
    has_lost_ = true;
    update_descriptor();
}

void Books::add_open(Request *request) {
    request->is_open = true;
    ++open_count;
    open_.push_back(request);
}

void Books::add_flush(Request *flush) {
    flush->is_open = true;
    ++open_count;
    flushes_.push_back(flush);
    end_flushes();
}

void Books::cancel(uint64_t cookie) {
    for (Request *request : open_) request->is_cancelled |= request->answer.cookie == cookie;
    std::erase_if(flushes_, [this, cookie](Request *flush) {
        if (flush->answer.cookie != cookie) return false;
        flush->answer.outcome = QUIRE_STORE_CANCELLED;
        add_answer(flush);
        return true;
    });
}

void Books::end_flushes() {
    while (!flushes_.empty()) {
        Request *flush = flushes_.front();
        const bool waits = std::any_of(open_.begin(), open_.end(), [flush](const Request *other) {
            return other->ticket < flush->ticket;
        });
        if (waits) return;
        flushes_.erase(flushes_.begin());
        add_answer(flush);
    }
}

void Books::add_answer(Request *request) {
    request->is_open = false;
    --open_count;
    finished_.push(request);
    update_descriptor();
    if (open_count == 0) changed.notify_all();
}

// The label's value is there. If the index had another one under the key, that is gone.
void Books::know(const quire_store_label &label, uint64_t size_bytes) {
    const Index::Entry *entry = index.find(label.key);
    if (is_of_another(entry, label)) tell_gone(entry->label);
    index.add(label, size_bytes);
}

// The label's value is not there: the index must not say that it is.
void Books::forget(const Request &request) {
    const Index::Entry *entry = index.find(request.label().key);
    if (is_of_another(entry, request.label())) return;
    const bool is_known = entry != nullptr;
    index.remove(request.label().key);
    if (is_known) tell_gone(request.label());
}

void Books::note_get(const Request &request, const Outcome &outcome) {
    switch (outcome.code) {
        case QUIRE_STORE_DONE:
            ++stats.hits;
            break;
        case QUIRE_STORE_MISS:
            ++stats.misses;
            forget(request);
            return;
        case QUIRE_STORE_FOREIGN:
            ++stats.foreign;
            forget(request);
            know(outcome.found_label, outcome.size_bytes);
            return;
        case QUIRE_STORE_DAMAGED:
            ++stats.damaged;
            forget(request);
            return;
        case QUIRE_STORE_SIZE:
            break;
        default:
            stats.failed_reads += outcome.code == QUIRE_STORE_FAILED;
            return;
    }
    know(request.label(), outcome.size_bytes);
}

void Books::note_put(const Request &request, const Outcome &outcome) {
    if (outcome.code != QUIRE_STORE_DONE) {
        stats.puts_refused += outcome.code != QUIRE_STORE_CANCELLED;
        return;
    }
    ++(outcome.is_known ? stats.puts_known : stats.puts);
    // A key that only a scan saw: find() says that any label of it is there.
    const Index::Entry *entry = index.find(request.label().key);
    if (entry != nullptr && !entry->has_label && outcome.has_found) tell_gone(outcome.found_label);
    know(request.label(), outcome.size_bytes);
}

void Books::settle(Request *request, const Outcome &outcome) {
    const bool is_done = outcome.code == QUIRE_STORE_DONE;
    switch (request->kind()) {
        case QUIRE_STORE_GET:
            return note_get(*request, outcome);
        case QUIRE_STORE_PUT:
            return note_put(*request, outcome);
        case QUIRE_STORE_FIND:
            if (is_done) know(request->label(), outcome.size_bytes);
            if (outcome.code == QUIRE_STORE_MISS) forget(*request);
            return;
        default: {
            if (!is_done) return;
            stats.removed += outcome.is_known;
            const Index::Entry *entry = index.find(request->label().key);
            if (is_of_another(entry, request->label())) return;
            index.remove(request->label().key);
        }
    }
}

void Books::finish(Request *request, const Outcome &outcome) {
    std::lock_guard lock(mutex);
    request->answer.outcome = outcome.code;
    request->answer.native_code = outcome.native_code;
    const bool has_value = request->kind() == QUIRE_STORE_GET || request->kind() == QUIRE_STORE_PUT;
    request->answer.size_bytes = has_value ? outcome.size_bytes : 0;
    try {
        settle(request, outcome);
    } catch (const std::bad_alloc &) {
        tell_lost();  // the index may know keys less
    }
    std::erase(open_, request);
    add_answer(request);
    end_flushes();
}

bool Books::take(quire_store_answer *out, Request **freed) {
    *freed = nullptr;
    *out = {};
    if (!finished_.is_empty()) {
        *freed = finished_.pop();
        *out = (*freed)->answer;
    } else if (has_lost_) {
        out->outcome = QUIRE_STORE_NOTICE_LOST;
        has_lost_ = false;
    } else if (!gone_.empty()) {
        out->outcome = QUIRE_STORE_NOTICE_GONE;
        out->label = gone_.front();
        gone_.pop_front();
    } else {
        return false;
    }
    update_descriptor();
    return true;
}

}  // namespace quire::valkey
