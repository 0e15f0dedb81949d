// SPDX-License-Identifier: Apache-2.0
//
// replay_store: the store below a replay's cache, and the device whose memory the cache needs for
// it.
//
// The cache is a real one on the cpu backend, whose blocks hold one element per token, so that a
// trace of millions of blocks fits. The store is the memory store, with room for --disk-blocks of
// them: what was written first is evicted first. A trace has no clock, so the store always keeps
// up: all that is to be written is in it before the next step, and a load is there when its request
// is tried again. How long that would take is for the report to say. A real store that --tier names
// takes its time, which is measured.
//
// Threads: one.
#pragma once

#include "library.hpp"
#include "replay.hpp"

namespace quire::cli {

// A device of the cpu backend with a queue, both of which do their work within the calls: the same
// trace gives the same numbers each time.
class ReplayDevice {
 public:
    explicit ReplayDevice(quire_instance *instance);
    ~ReplayDevice();
    ReplayDevice(const ReplayDevice &) = delete;
    ReplayDevice &operator=(const ReplayDevice &) = delete;

    quire_device *get() const { return device_; }
    quire_queue *const *queue() const { return &queue_; }

 private:
    quire_device *device_ = nullptr;
    quire_queue *queue_ = nullptr;
};

class ReplayStore {
 public:
    ReplayStore(quire_instance *instance, const ReplayOptions &options);
    ~ReplayStore();
    ReplayStore(const ReplayStore &) = delete;
    ReplayStore &operator=(const ReplayStore &) = delete;

    void attach(quire_cache *cache, const ReplayOptions &options);
    // Writes all that is to be written by now.
    void settle();
    void wait_for_load();
    // How much was loaded and written, and what the store holds.
    void count(ReplayCounts *counts);

 private:
    quire_tier *tier_ = nullptr;
    quire_cache *cache_ = nullptr;  // that the tier is attached to
    uint64_t value_bytes_ = 0;      // of a block in the store
    double load_seconds_ = 0;
    double writing_seconds_ = 0;
};

}  // namespace quire::cli
