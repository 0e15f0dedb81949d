// SPDX-License-Identifier: Apache-2.0
//
// store: an open disk store. store.cpp takes requests and gives answers, opening.cpp opens and
// recovers, serve.cpp is the workers, log.cpp appends to the log, reclaim.cpp gives room back.
//
// The path of a request
//   GET      queue -> worker: index, buffer -> read -> worker: check, copy -> answer
//   PUT      queue -> worker: buffer, gather and checksum -> log thread: a place in the log
//            -> write -> worker: [sync ->] index -> answer
//   REMOVE   as PUT, with a record without a value
//   FIND     answered in submit, from the index
//   FLUSH, COMPACT   queue -> log thread -> answer
//
// Threads, named quire-disk-...
//   worker   `thread_count` of them: all checksums and copies of values; a record that fits the
//            head while the log thread has nothing to do gets its place here
//   log      one: decides what else is appended where, creates, removes and truncates segments, and
//            waits for the disk while it does
//   io, ring of DataIo: run transfers, publish what was written, and queue reads for the workers
// The caller's threads only lock `mutex_`, which no thread holds while it waits for the disk.
//
// Invariants
//   (1) the files' room never exceeds the capacity: a segment is charged whole before it is made
//   (2) room for one more segment is kept free, so that records can be copied forward before the
//       oldest segment is dropped; it is used up only from making a head until the head is proved
//   (3) no segment is dropped for room until the head has taken a record: a disk that fails every
//       write costs no record that is there already
//   (4) a file is removed only after the copies of its records, and earlier removals of files, are
//       durable: see reclaim.cpp on when a removal record may go
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "disk/answers.hpp"
#include "disk/buffers.hpp"
#include "disk/files.hpp"
#include "disk/index.hpp"
#include "disk/io.hpp"
#include "disk/options.hpp"
#include "disk/recovery.hpp"
#include "disk/request.hpp"
#include "disk/segment.hpp"

namespace quire::disk {

constexpr uint32_t kMaxRequests = 1024;

class Store {
 public:
    // `io` NULL: as the options say. QUIRE_E_BUSY: another store has the directory open.
    static quire_status open(const Options &options, std::unique_ptr<Directory> directory,
                             std::unique_ptr<DataIo> io, std::unique_ptr<Store> *out,
                             quire_error *error);
    Store(const Store &) = delete;
    Store &operator=(const Store &) = delete;
    // Waits for all requests.
    ~Store();

    // As the functions of store.h, whose arguments were checked. Throw std::bad_alloc.
    bool close_wait(uint64_t timeout_ns);  // false: the time ran out
    void get_info(quire_store_info *out);
    quire_store_stats stats();
    bool is_closing();
    uint32_t submit(const quire_store_request *requests, uint32_t count, uint32_t stride);
    uint32_t reap(quire_store_answer *answers, uint32_t capacity, uint32_t stride);
    void cancel(uint64_t cookie);
    int descriptor() const { return answers_.descriptor(); }
    void find(const quire_store_label *labels, uint32_t count, uint32_t stride, uint8_t *found);
    uint32_t list(uint64_t *cursor, quire_store_record *records, uint32_t capacity,
                  uint32_t stride);
    const Options &options() const { return options_; }

 private:
    using Lock = std::unique_lock<std::mutex>;
    enum class Check { right, damaged, failed };
    enum class Copying { copied, gone, no_room, failed };
    enum class Rewriting { done, no_room, failed };
    struct Copy {
        uint32_t entry;
        uint64_t from_offset;
        Record record;
        Segment *to;
    };

    Store(const Options &options, std::unique_ptr<Directory> directory);

    // opening.cpp
    quire_status lock_directory(quire_error *error);
    quire_status read_identity_file(const std::vector<uint64_t> &numbers, quire_error *error);
    bool adopt_store_id(const std::vector<uint64_t> &numbers);
    quire_status list_segments(std::vector<uint64_t> *numbers, quire_error *error);
    quire_status recover(quire_error *error);
    quire_status scan_all(const std::vector<uint64_t> &numbers, std::vector<Scan> *scans,
                          quire_error *error);
    quire_status enter(uint64_t number, std::unique_ptr<File> file, const Scan &scan);
    quire_status claim(quire_error *error);
    void release_claim();
    quire_status start(std::unique_ptr<DataIo> io, quire_error *error);

    // store.cpp
    void finish(Request *request, uint32_t outcome, int64_t native_code = 0);
    void release_key(Request *request);
    void drop(uint32_t entry, bool is_told);
    void stop_threads();

    // serve.cpp
    void work();
    void finish_transfer(Lock &lock, Transfer *transfer);
    bool begin_get(Lock &lock);
    bool begin_change(Lock &lock);
    void gather(Request *request);
    void finish_get(Lock &lock, Request *request);
    void on_written(Lock &lock, Request *request);
    void on_synced(Segment *segment, int64_t result);
    void distrust(Segment *segment, int64_t code);
    void publish(Request *request);
    void start_sync(Segment *segment);
    void start_queued(Lock &lock);
    static Check check(const Record &expected, const uint8_t *bytes, int64_t result, Record *found);
    static void on_transfer_done(Transfer *transfer);
    Record record_of(const Entry &entry) const;

    // log.cpp
    void run_log();
    bool step_log(Lock &lock);
    void append(Lock &lock, Request *request);
    void place(Record *record, uint8_t *header);
    void unplace(const Record &record, Segment *segment);
    void leave_head(Lock &lock);
    int roll(Lock &lock);
    int create_segment(Lock &lock);
    void settle(Lock &lock, Segment *segment);
    bool settle_one(Lock &lock, bool waits);
    void settle_all(Lock &lock);
    int sync_all(Lock &lock);
    int sync_directory(Lock &lock);
    void flush(Lock &lock, Request *request);
    int64_t run_transfer(Lock &lock, TransferKind kind, Segment *segment, uint8_t *bytes,
                         uint64_t size_bytes, uint64_t offset);

    // reclaim.cpp
    uint64_t charged_bytes() const;
    uint64_t used_bytes() const;
    uint64_t segment_cost() const;
    bool has_spare() const;
    uint64_t most_segments() const;
    Segment *oldest() const;
    void make_room(Lock &lock);
    bool evict_oldest(Lock &lock, bool may_copy);
    bool discard(Lock &lock, Segment *segment);
    bool discard_dying(Lock &lock);
    void remove_empty(Lock &lock);
    Copying copy_forward(Lock &lock, uint32_t entry, bool may_roll, std::vector<Copy> *copies);
    bool append_now(Lock &lock, Record *record, Buffer *buffer, Segment **to);
    void leave_copies(const std::vector<Copy> &copies);
    void move_entries(Segment *from, const std::vector<Copy> &copies);
    Rewriting rewrite(Lock &lock, Segment *segment, bool only_if_worth);
    Rewriting copy_all(Lock &lock, Segment *segment, std::vector<Copy> *copies);
    Rewriting append_removals(Lock &lock, const std::vector<quire_store_label> &labels);
    std::vector<quire_store_label> lost_keys(Lock &lock, Segment *segment);
    Rewriting make_head_for(Lock &lock, uint64_t size_bytes);
    void compact(Lock &lock, Request *request);

    const Options options_;
    const std::unique_ptr<Directory> directory_;
    std::unique_ptr<File> identity_file_;  // holds the lock
    StoreId id_{};
    bool is_identity_new_ = false;
    bool is_claimed_ = false;  // the identity file names this process
    std::unique_ptr<DataIo> io_;

    std::mutex mutex_;
    std::condition_variable worker_wanted_;
    std::condition_variable log_wanted_;  // also: something that the log thread waits for ended
    std::condition_variable ended_;       // the last open request
    bool is_closing_ = false;
    bool is_stopping_ = false;  // the log thread; the workers are still needed then
    bool are_workers_stopping_ = false;
    std::vector<std::thread> workers_;
    std::thread log_;
    bool is_log_idle_ = false;  // it waits for something to do, or is about to wake

    std::deque<Request> slots_;
    RequestQueue free_;
    OpenRequests open_;
    uint64_t next_ticket_ = 1;
    RequestQueue gets_;     // also those that wait for a buffer
    RequestQueue changes_;  // puts and removals
    RequestQueue parked_;
    RequestQueue appends_;  // gathered, for the log thread
    RequestQueue proved_;   // done; answered once the room that their segment took is made
    RequestQueue flushes_;
    RequestQueue compacts_;
    KeyHolders holders_;
    uint32_t holder_count_ = 0;
    Answers answers_;
    Buffers buffers_;
    TransferQueue completions_;  // for the workers
    TransferQueue to_start_;     // by the thread that next lets go of the mutex

    Index index_;
    std::map<uint64_t, std::unique_ptr<Segment>> segments_;
    Segment *head_ = nullptr;
    uint64_t next_sequence_ = 1;
    uint64_t next_number_ = 1;
    quire_store_stats stats_{};
    bool is_room_due_ = false;         // the spare room is used up, see (2) and (3)
    bool is_settling_due_ = false;     // a segment is no longer the head, and not settled
    bool is_directory_dirty_ = false;  // files were made or removed since it was synced
    // A record that is not in the index may be on the disk: then a removal of its key is written
    // although the index does not have it.
    bool is_doubtful_ = false;
    Buffers log_buffers_;  // the log thread's own, so that it never waits for requests
};

}  // namespace quire::disk
