// SPDX-License-Identifier: Apache-2.0
//
// opening: locks a directory, reads which store it is, finds its records, and starts the threads.

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <system_error>

#include "disk/store.hpp"
#include "disk/threads.hpp"
#include "shared/refusal.hpp"

namespace quire::disk {

namespace {

// The text after the identity: "pid 1234", padded with zeros.
constexpr uint64_t kOwnerBytes = 64;

bool make_random_id(StoreId *out) {
    return ::getrandom(out->data(), out->size(), 0) == static_cast<ssize_t>(out->size());
}

// Reads the record's value, unlike recovery, and checks it.
bool has_right_value(File &file, const Record &record) {
    Buffers buffers(record.total_bytes());
    Buffer buffer = buffers.take(record.total_bytes());
    if (buffer.bytes == nullptr) throw std::bad_alloc();
    auto size = static_cast<int64_t>(record.total_bytes());
    bool is_right =
        file.read(buffer.bytes, record.total_bytes(), record.offset) == size &&
        value_checksum(record, buffer.bytes + kRecordHeaderBytes) == record.value_checksum;
    buffers.give_back(&buffer);
    return is_right;
}

}  // namespace

quire_status Store::open(const Options &options, std::unique_ptr<Directory> directory,
                         std::unique_ptr<DataIo> io, std::unique_ptr<Store> *out,
                         quire_error *error) {
    std::unique_ptr<Store> store(new Store(options, std::move(directory)));
    if (quire_status status = store->lock_directory(error)) return status;
    if (quire_status status = store->recover(error)) return status;
    if (!options.is_read_only) {
        if (quire_status status = store->claim(error)) return status;
    }
    if (quire_status status = store->start(std::move(io), error)) return status;
    *out = std::move(store);
    return QUIRE_OK;
}

quire_status Store::lock_directory(quire_error *error) {
    const char *path = options_.directory.c_str();
    OpenMode mode = OpenMode::create;
    if (options_.must_exist) mode = OpenMode::read_write;
    if (options_.is_read_only) mode = OpenMode::read_only;
    int result = directory_->open_locked(kIdentityName, mode, &identity_file_);
    if (result == 0) return QUIRE_OK;
    if (result == -ENOENT) {
        return fail(error, QUIRE_E_ARG, "there is no store in %.300s: it has no file '%s'", path,
                    kIdentityName);
    }
    if (result != -EWOULDBLOCK) {
        return fail_os(error, QUIRE_E_OS, -result, "cannot open %.300s/%s: %s", path, kIdentityName,
                       std::strerror(-result));
    }
    char owner[kOwnerBytes + 1] = {};
    if (identity_file_->read(owner, kOwnerBytes, kIdentityBytes) <= 0 || owner[0] == '\0') {
        std::strcpy(owner, "a reader");
    }
    return fail(error, QUIRE_E_BUSY,
                "%.300s is open already, by %s; a store has one owner, or any number of readers",
                path, owner);
}

quire_status Store::list_segments(std::vector<uint64_t> *numbers, quire_error *error) {
    std::vector<std::string> names;
    if (int result = directory_->list(&names)) {
        return fail_os(error, QUIRE_E_OS, -result, "cannot list %.300s: %s",
                       options_.directory.c_str(), std::strerror(-result));
    }
    for (const std::string &name : names) {
        uint64_t number = 0;
        if (read_segment_name(name, &number)) numbers->push_back(number);
    }
    std::sort(numbers->begin(), numbers->end());
    return QUIRE_OK;
}

// Where the identity file is damaged: the store that most segments say they belong to.
bool Store::adopt_store_id(const std::vector<uint64_t> &numbers) {
    std::map<StoreId, uint64_t> counts;
    uint64_t most = 0;
    for (uint64_t number : numbers) {
        std::unique_ptr<File> file;
        StoreId found;
        if (directory_->open(segment_name(number), OpenMode::read_only, &file) != 0) continue;
        if (!read_store_of(*file, &found)) continue;
        if (++counts[found] > most) {
            most = counts[found];
            id_ = found;
        }
    }
    return most != 0;
}

quire_status Store::read_identity_file(const std::vector<uint64_t> &numbers, quire_error *error) {
    uint8_t bytes[kIdentityBytes] = {};
    int64_t size = identity_file_->read(bytes, sizeof bytes, 0);
    if (size < 0) {
        return fail_os(error, QUIRE_E_OS, static_cast<int>(-size), "cannot read %.300s/%s: %s",
                       options_.directory.c_str(), kIdentityName,
                       std::strerror(static_cast<int>(-size)));
    }
    uint32_t version = 0;
    Reading reading = read_identity(bytes, &id_, &version);
    if (reading == Reading::right) return QUIRE_OK;
    if (reading == Reading::unreadable) {
        return fail(error, QUIRE_E_INCOMPATIBLE,
                    "%.300s holds a store of format version %u, this plugin knows version %u; use "
                    "the plugin that wrote it, or another directory",
                    options_.directory.c_str(), version, kFormatVersion);
    }
    is_identity_new_ = true;
    if (adopt_store_id(numbers)) return QUIRE_OK;
    if (options_.is_read_only || options_.must_exist) {
        return fail(error, QUIRE_E_ARG, "there is no store in %.300s: its file '%s' is empty",
                    options_.directory.c_str(), kIdentityName);
    }
    if (make_random_id(&id_)) return QUIRE_OK;
    return fail_os(error, QUIRE_E_OS, errno, "the system gave no random bytes");
}

quire_status Store::scan_all(const std::vector<uint64_t> &numbers, std::vector<Scan> *scans,
                             quire_error *error) {
    std::vector<std::unique_ptr<File>> files(numbers.size());
    scans->resize(numbers.size());
    OpenMode mode = options_.is_read_only ? OpenMode::read_only : OpenMode::read_write;
    std::atomic<size_t> next{0};
    std::atomic<bool> is_out_of_memory{false};
    auto scan_some = [&] {
        for (size_t i = next++; i < numbers.size(); i = next++) {
            Scan &scan = (*scans)[i];
            try {
                scan.error = directory_->open(segment_name(numbers[i]), mode, &files[i]);
                if (scan.error == 0) scan = scan_segment(*files[i], numbers[i], id_);
            } catch (const std::bad_alloc &) {
                is_out_of_memory = true;
            }
        }
    };
    std::vector<std::thread> helpers;
    size_t helper_count = std::min<size_t>(options_.thread_count, numbers.size());
    try {
        while (helpers.size() + 1 < helper_count) {
            helpers.push_back(start_thread("quire-disk-scan", scan_some));
        }
    } catch (const std::system_error &) {
        // Fewer threads scan.
    }
    scan_some();
    for (std::thread &helper : helpers) helper.join();
    if (is_out_of_memory) throw std::bad_alloc();
    for (size_t i = 0; i < numbers.size(); ++i) {
        const Scan &scan = (*scans)[i];
        std::string name = segment_name(numbers[i]);
        if (scan.error != 0) {
            return fail_os(error, QUIRE_E_OS, -scan.error, "cannot open %.300s/%s: %s",
                           options_.directory.c_str(), name.c_str(), std::strerror(-scan.error));
        }
        if (scan.unknown_version != 0) {
            return fail(error, QUIRE_E_INCOMPATIBLE,
                        "%.300s/%s is a segment of format version %u, this plugin knows version "
                        "%u; use the plugin that wrote it, or another directory",
                        options_.directory.c_str(), name.c_str(), scan.unknown_version,
                        kFormatVersion);
        }
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
        if (quire_status status = enter(numbers[i], std::move(files[i]), (*scans)[i])) {
            return status;
        }
    }
    return QUIRE_OK;
}

// Enters a segment's records into the index. In order of number: later records win.
quire_status Store::enter(uint64_t number, std::unique_ptr<File> file, const Scan &scan) {
    next_number_ = std::max(next_number_, number + 1);
    stats_.read_bytes += scan.read_bytes;
    stats_.damaged += scan.damaged;
    stats_.skipped_bytes += scan.is_foreign ? scan.size_bytes : scan.skipped_bytes;
    // Another store's file is not ours to use or remove.
    if (scan.is_foreign && scan.size_bytes != 0) return QUIRE_OK;
    if (scan.damaged != 0 || scan.skipped_bytes != 0) is_doubtful_ = true;
    auto made = std::make_unique<Segment>();
    Segment *segment = made.get();
    segment->number = number;
    segment->file = std::move(file);
    segment->end_bytes = std::max(scan.used_bytes, kSegmentHeaderBytes);
    segment->charged_bytes = std::max(scan.size_bytes, scan.allocated_bytes);
    segments_.emplace(number, std::move(made));
    index_.reserve(scan.records.size());
    for (const Record &record : scan.records) {
        next_sequence_ = std::max(next_sequence_, record.sequence + 1);
        uint32_t entry = index_.find(record.label.key);
        if (entry != kNoEntry && index_[entry].sequence > record.sequence) continue;
        // Perhaps a copy, or a replacement, that a crash tore: then the older one stays.
        bool is_shadowing = record.kind == RecordKind::value && entry != kNoEntry;
        if (is_shadowing && !has_right_value(*segment->file, record)) {
            ++stats_.damaged;
            is_doubtful_ = true;
            continue;
        }
        if (record.kind == RecordKind::value) {
            index_.put(record, segment);
        } else {
            segment->last_removal = record.sequence;
            if (entry != kNoEntry) index_.remove(entry);
        }
    }
    return QUIRE_OK;
}

quire_status Store::recover(quire_error *error) {
    std::vector<uint64_t> numbers;
    std::vector<Scan> scans;
    if (quire_status status = list_segments(&numbers, error)) return status;
    if (quire_status status = read_identity_file(numbers, error)) return status;
    if (quire_status status = scan_all(numbers, &scans, error)) return status;
    stats_.recovered = index_.count();
    if (options_.is_read_only) return QUIRE_OK;
    // Room that a crash left: allocated for records that were never written.
    for (auto &[number, segment] : segments_) {
        FileSize size;
        if (segment->file->measure(&size) != 0) continue;
        if (size.size_bytes > segment->end_bytes) segment->file->truncate(segment->end_bytes);
        if (segment->file->measure(&size) != 0) continue;
        segment->charged_bytes = std::max(size.size_bytes, size.allocated_bytes);
    }
    return QUIRE_OK;
}

// Writes the identity of a new store, and who has it open.
quire_status Store::claim(quire_error *error) {
    uint8_t bytes[kIdentityBytes + kOwnerBytes] = {};
    write_identity(id_, bytes);
    std::string owner = "pid " + std::to_string(::getpid());
    std::memcpy(bytes + kIdentityBytes, owner.data(), std::min<size_t>(owner.size(), kOwnerBytes));
    int64_t result = 0;
    if (is_identity_new_) {
        result = identity_file_->write(bytes, sizeof bytes, 0);
        if (result >= 0) result = identity_file_->sync();
        if (result >= 0) result = directory_->sync();
    } else {
        result = identity_file_->write(bytes + kIdentityBytes, kOwnerBytes, kIdentityBytes);
    }
    is_claimed_ = result >= 0;
    if (is_claimed_) return QUIRE_OK;
    return fail_os(error, QUIRE_E_OS, static_cast<int>(-result), "cannot write %.300s/%s: %s",
                   options_.directory.c_str(), kIdentityName,
                   std::strerror(static_cast<int>(-result)));
}

// The text is for messages only, so a failure does not matter.
void Store::release_claim() {
    uint8_t zeros[kOwnerBytes] = {};
    if (is_claimed_) identity_file_->write(zeros, sizeof zeros, kIdentityBytes);
    is_claimed_ = false;
}

quire_status Store::start(std::unique_ptr<DataIo> io, quire_error *error) {
    if (int result = answers_.open()) {
        return fail_os(error, QUIRE_E_OS, -result, "cannot make an event descriptor: %s",
                       std::strerror(-result));
    }
    try {
        io_ = std::move(io);
        int reason = 0;
        if (io_ == nullptr && options_.io != IoChoice::threads) io_ = make_uring_io(&reason);
        if (io_ == nullptr && options_.io == IoChoice::uring) {
            return fail_os(error, QUIRE_E_UNSUPPORTED, reason,
                           "io=uring: the system offers no io_uring (%s), or this plugin was built "
                           "without it; use io=threads",
                           std::strerror(reason));
        }
        if (io_ == nullptr) io_ = make_thread_io(options_.thread_count);
        for (uint32_t i = 0; i < options_.thread_count; ++i) {
            workers_.push_back(start_thread("quire-disk-work", [this] { work(); }));
        }
        if (!options_.is_read_only) log_ = start_thread("quire-disk-log", [this] { run_log(); });
    } catch (const std::system_error &failure) {
        return fail_os(error, QUIRE_E_OS, failure.code().value(), "cannot start a thread: %s",
                       failure.what());
    }
    return QUIRE_OK;
}

}  // namespace quire::disk
