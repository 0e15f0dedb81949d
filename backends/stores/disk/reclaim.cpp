// SPDX-License-Identifier: Apache-2.0
//
// reclaim: gives room back: drops the oldest segment, or rewrites segments with dead records.
//
// When a removal record may go. It hides older records of its key. By invariant (1) of segment.hpp
// those lie before it: in its own segment, or in segments with a smaller number. So it goes with
// its segment if that is the oldest, because segments are removed one after another, each durably
// (the directory is synced) before the next. If older segments are there, rewrite() appends a new
// removal for each key of the segment that is not in the index. A key that is in the index needs
// none: its record comes later in the log and hides the older ones just as well.
//
// Copies are durable before what they are copies of is removed, and only then does the index move
// to them: if that fails, everything stays where it was.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <set>
#include <string>

#include "disk/store.hpp"

namespace quire::disk {

namespace {

// More than the capacity needs: each open begins a new segment, and each has a file open.
constexpr uint64_t kMostSmallSegments = 128;

}  // namespace

uint64_t Store::charged_bytes() const {
    uint64_t bytes = kUnitBytes;  // of the identity file
    for (const auto &[number, segment] : segments_) bytes += segment->charged_bytes;
    return bytes;
}

uint64_t Store::used_bytes() const {
    uint64_t bytes = 0;
    for (const auto &[number, segment] : segments_) bytes += segment->end_bytes;
    return bytes;
}

bool Store::has_spare() const {
    return charged_bytes() + segment_cost() <= options_.capacity_bytes;
}

uint64_t Store::most_segments() const {
    return options_.capacity_bytes / options_.segment_bytes + kMostSmallSegments;
}

Segment *Store::oldest() const {
    if (segments_.empty()) return nullptr;
    Segment *first = segments_.begin()->second.get();
    return first == head_ ? nullptr : first;
}

// Restores the spare room that making the head used up.
void Store::make_room(Lock &lock) {
    settle_all(lock);
    is_room_due_ = false;
    while (!has_spare()) {
        if (!evict_oldest(lock, true)) break;
    }
    while (segments_.size() > most_segments() && oldest() != nullptr && has_spare()) {
        if (rewrite(lock, oldest(), false) != Rewriting::done) break;
    }
}

// Drops the oldest segment. Records that were read since they were written go on in the head, as
// far as they fit, up to a quarter of a segment, so that each round gives room back. False: it
// could not be dropped.
bool Store::evict_oldest(Lock &lock, bool may_copy) {
    settle_all(lock);
    Segment *segment = oldest();
    if (segment == nullptr) return false;
    if (may_copy && !segment->is_dying) {
        std::vector<Copy> copies;
        std::vector<uint32_t> chosen;
        uint64_t left_bytes = options_.segment_bytes / 4;
        for (uint32_t number = segment->first_entry; number != kNoEntry;
             number = index_[number].next) {
            if (!index_[number].was_read || index_[number].total_bytes() > left_bytes) continue;
            left_bytes -= index_[number].total_bytes();
            chosen.push_back(number);
        }
        for (uint32_t number : chosen) {
            if (index_[number].segment != segment) continue;
            Copying result = copy_forward(lock, number, false, &copies);
            if (result == Copying::failed) {
                leave_copies(copies);
                return false;
            }
            if (result == Copying::no_room) break;
        }
        if (!copies.empty() && sync_all(lock) != 0) {
            leave_copies(copies);
            return false;
        }
        move_entries(segment, copies);
    }
    return discard(lock, segment);
}

// Drops a segment with the records that are still in it. False: its file is still there, without
// records, and is removed later.
bool Store::discard(Lock &lock, Segment *segment) {
    segment->is_dying = true;
    while (segment->first_entry != kNoEntry) {
        drop(segment->first_entry, true);
        ++stats_.evicted;
    }
    log_wanted_.wait(lock, [&] { return segment->is_idle(); });
    // Removals of earlier files come first: see above.
    if (sync_directory(lock) != 0) return false;
    lock.unlock();
    int result = directory_->remove(segment_name(segment->number));
    lock.lock();
    if (result != 0 && result != -ENOENT) {
        is_doubtful_ = true;
        return false;
    }
    is_directory_dirty_ = true;
    segments_.erase(segment->number);
    // The file is gone even if this fails; the next removal waits until it succeeds.
    if (sync_directory(lock) != 0) is_doubtful_ = true;
    return true;
}

// Tries again to remove the files that could not be removed. False: one still cannot.
bool Store::discard_dying(Lock &lock) {
    for (;;) {
        auto dying = std::find_if(segments_.begin(), segments_.end(),
                                  [](const auto &each) { return each.second->is_dying; });
        if (dying == segments_.end()) return true;
        if (!discard(lock, dying->second.get())) return false;
    }
}

// After an open: removes the files of segments without a record that matters. What made their
// records dead comes later in the log, and hides older ones too.
void Store::remove_empty(Lock &lock) {
    for (auto &[number, segment] : segments_) {
        segment->is_settled = true;
        segment->is_dying = segment->is_empty();
    }
    discard_dying(lock);
}

// Copies a record to the head, and leaves the index as it is.
Store::Copying Store::copy_forward(Lock &lock, uint32_t number, bool may_roll,
                                   std::vector<Copy> *copies) {
    // A change of the key that has its place in the log comes first; one without a place cannot
    // get one now, because this thread gives it.
    quire_store_label label = index_[number].label;
    log_wanted_.wait(lock, [&] {
        Request *holder = holders_.of(label.key);
        return holder == nullptr || !holder->is_appended;
    });
    const Entry &entry = index_[number];
    if (entry.segment == nullptr || !are_equal(entry.label, label)) return Copying::gone;
    Record expected = record_of(entry);
    Segment *from = entry.segment;
    // Written with a larger segment size.
    if (expected.total_bytes() > options_.max_record_bytes()) return Copying::no_room;
    if (may_roll) {
        Rewriting made = make_head_for(lock, expected.total_bytes());
        if (made != Rewriting::done) {
            return made == Rewriting::failed ? Copying::failed : Copying::no_room;
        }
    }
    auto fits = [&] {
        return head_ != nullptr &&
               head_->end_bytes + expected.total_bytes() <= options_.segment_bytes;
    };
    if (!fits()) return Copying::no_room;
    Buffer buffer = log_buffers_.take(expected.total_bytes());
    if (buffer.bytes == nullptr) return Copying::no_room;
    ++from->reader_count;
    int64_t result = run_transfer(lock, TransferKind::read, from, buffer.bytes,
                                  expected.total_bytes(), expected.offset);
    Record record;
    lock.unlock();
    Check checked = check(expected, buffer.bytes, result, &record);
    lock.lock();
    --from->reader_count;
    if (result > 0) stats_.read_bytes += static_cast<uint64_t>(result);
    Copying outcome = Copying::copied;
    if (!index_[number].is_at(from, expected.offset)) {
        outcome = Copying::gone;
    } else if (checked == Check::failed || !fits()) {
        outcome = Copying::failed;
    } else if (checked == Check::damaged) {
        ++stats_.damaged;
        is_doubtful_ = true;
        drop(number, true);
        outcome = Copying::gone;
    } else {
        record.first_sequence = expected.first_sequence;
        Copy copy{number, expected.offset, record, nullptr};
        if (append_now(lock, &copy.record, &buffer, &copy.to)) {
            copies->push_back(copy);
        } else {
            outcome = Copying::failed;
        }
    }
    log_buffers_.give_back(&buffer);
    return outcome;
}

// Appends a record, whose value is in the buffer, to the head, and waits for the write.
bool Store::append_now(Lock &lock, Record *record, Buffer *buffer, Segment **to) {
    *to = head_;
    place(record, buffer->bytes);
    int64_t result = run_transfer(lock, TransferKind::write, *to, buffer->bytes,
                                  record->total_bytes(), record->offset);
    std::erase((*to)->writing, record->sequence);
    if (result < 0) {
        is_doubtful_ = true;
        unplace(*record, *to);
        return false;
    }
    if (!(*to)->is_broken) (*to)->is_dirty = true;
    (*to)->is_proved = true;
    stats_.written_bytes += record->total_bytes();
    return !(*to)->is_broken;
}

// The copies stay in the log, and the index does not know them: once what they are copies of is
// gone, only a removal hides them.
void Store::leave_copies(const std::vector<Copy> &copies) {
    if (!copies.empty()) is_doubtful_ = true;
}

// REQUIRES: the copies are durable.
void Store::move_entries(Segment *from, const std::vector<Copy> &copies) {
    for (const Copy &copy : copies) {
        // Unless it was replaced, removed or found damaged in the meantime.
        if (!index_[copy.entry].is_at(from, copy.from_offset) ||
            !are_equal(index_[copy.entry].label, copy.record.label)) {
            is_doubtful_ = true;
            continue;
        }
        index_.move(copy.entry, copy.record, copy.to);
    }
}

// Makes sure that the head has room, without dropping anything for it.
Store::Rewriting Store::make_head_for(Lock &lock, uint64_t size_bytes) {
    if (head_ != nullptr && head_->end_bytes + size_bytes <= options_.segment_bytes) {
        return Rewriting::done;
    }
    leave_head(lock);
    settle_all(lock);
    if (!has_spare()) return Rewriting::no_room;
    return create_segment(lock) == 0 ? Rewriting::done : Rewriting::failed;
}

// Keys of removals, and of records that are no longer in the index, for which an older record may
// be on the disk.
std::vector<quire_store_label> Store::lost_keys(Lock &lock, Segment *segment) {
    if (segment == oldest()) return {};
    lock.unlock();
    Scan scan = scan_segment(*segment->file, segment->number, id_);
    lock.lock();
    stats_.read_bytes += scan.read_bytes;
    auto is_before = [](const quire_store_label &a, const quire_store_label &b) {
        return std::memcmp(a.key, b.key, sizeof a.key) < 0;
    };
    std::set<quire_store_label, decltype(is_before)> keys(is_before);
    for (const Record &record : scan.records) {
        if (index_.find(record.label.key) == kNoEntry) keys.insert(record.label);
    }
    return {keys.begin(), keys.end()};
}

Store::Rewriting Store::append_removals(Lock &lock, const std::vector<quire_store_label> &labels) {
    for (const quire_store_label &label : labels) {
        log_wanted_.wait(lock, [&] {
            Request *holder = holders_.of(label.key);
            return holder == nullptr || !holder->is_appended;
        });
        if (index_.find(label.key) != kNoEntry) continue;
        Rewriting made = make_head_for(lock, kUnitBytes);
        if (made != Rewriting::done) return made;
        Buffer buffer = log_buffers_.take(kUnitBytes);
        if (buffer.bytes == nullptr) return Rewriting::no_room;
        std::memset(buffer.bytes, 0, kUnitBytes);
        Record record;
        record.kind = RecordKind::removal;
        record.store = id_;
        record.label = label;
        Segment *to = nullptr;
        bool is_written = append_now(lock, &record, &buffer, &to);
        log_buffers_.give_back(&buffer);
        if (!is_written) return Rewriting::failed;
        to->last_removal = std::max(to->last_removal, record.sequence);
    }
    return Rewriting::done;
}

Store::Rewriting Store::copy_all(Lock &lock, Segment *segment, std::vector<Copy> *copies) {
    std::vector<uint32_t> numbers;
    for (uint32_t at = segment->first_entry; at != kNoEntry; at = index_[at].next) {
        numbers.push_back(at);
    }
    for (uint32_t number : numbers) {
        if (index_[number].segment != segment) continue;
        Copying result = copy_forward(lock, number, true, copies);
        if (result == Copying::failed) return Rewriting::failed;
        if (result == Copying::no_room) return Rewriting::no_room;
    }
    return Rewriting::done;
}

// Copies all that is live in a segment to the head, and removes it. Unless it is done, the segment
// is still there.
Store::Rewriting Store::rewrite(Lock &lock, Segment *segment, bool only_if_worth) {
    auto discarded = [&] { return discard(lock, segment) ? Rewriting::done : Rewriting::failed; };
    if (segment->is_dying) return discarded();
    std::vector<quire_store_label> lost = lost_keys(lock, segment);
    if (only_if_worth && lost.size() * kUnitBytes >= segment->dead_bytes()) return Rewriting::done;
    std::vector<Copy> copies;
    Rewriting copied = copy_all(lock, segment, &copies);
    if (copied == Rewriting::done) copied = append_removals(lock, lost);
    if (copied != Rewriting::done) {
        // The next compaction goes on after these.
        if (!copies.empty() && sync_all(lock) == 0) {
            move_entries(segment, copies);
        } else {
            leave_copies(copies);
        }
        return copied;
    }
    if ((!copies.empty() || !lost.empty()) && sync_all(lock) != 0) {
        leave_copies(copies);
        return Rewriting::failed;
    }
    move_entries(segment, copies);
    // Nothing else was put into it; a read that failed its check may have dropped records.
    if (segment->first_entry != kNoEntry) return Rewriting::failed;
    return discarded();
}

void Store::compact(Lock &lock, Request *request) {
    request->stage = Stage::active;
    uint64_t before_bytes = used_bytes();
    if (head_ != nullptr && head_->dead_bytes() != 0) leave_head(lock);
    settle_all(lock);
    std::vector<uint64_t> numbers;
    for (const auto &[number, segment] : segments_) {
        if (segment.get() != head_ && segment->dead_bytes() != 0) numbers.push_back(number);
    }
    Rewriting result = Rewriting::done;
    for (uint64_t number : numbers) {
        auto found = segments_.find(number);
        if (request->is_cancelled || result != Rewriting::done) break;
        if (found != segments_.end()) result = rewrite(lock, found->second.get(), true);
    }
    // Without room for one more segment no more can be given back now, and nothing failed.
    bool is_failed = result == Rewriting::failed;
    if (is_room_due_ && head_ != nullptr && head_->is_proved) make_room(lock);
    uint64_t after_bytes = used_bytes();
    request->answer.size_bytes = before_bytes > after_bytes ? before_bytes - after_bytes : 0;
    finish(request, is_failed ? QUIRE_STORE_FAILED : QUIRE_STORE_DONE, is_failed ? EIO : 0);
}

}  // namespace quire::disk
