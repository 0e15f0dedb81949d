// SPDX-License-Identifier: Apache-2.0

#include "replay_store.hpp"

#include <poll.h>

#include <ctime>

#include "open_tier.hpp"

namespace quire::cli {

namespace {

constexpr uint64_t kForEver = UINT64_MAX / 4;  // may be added to a time
constexpr int kBusyPolls = 16;                 // a store in memory answers at once
constexpr int kPollMs = 1;                     // a copy on the device has no descriptor

double seconds_now() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A block of one layer, one head and one element of 16 bits, in the form of
// docs/canonical-form.md: a header, token ids, a plane of K and one of V.
uint64_t value_bytes_of(uint32_t block_tokens) {
    auto padded = [](uint64_t bytes) { return (bytes + 63) / 64 * 64; };
    return 256 + padded(uint64_t{4} * block_tokens) + 2 * padded(uint64_t{2} * block_tokens);
}

quire_tier *open_memory(quire_instance *instance, uint64_t capacity_bytes) {
    return open_tier(instance, "memory", {{"capacity", std::to_string(capacity_bytes)}}, 0);
}

// The store's capacity counts a record beside each value.
uint64_t record_bytes(quire_instance *instance) {
    quire_tier *tier = open_memory(instance, 1 << 20);
    auto info = described<quire_store_info>();
    Error error;
    quire_status told = library().tier_get_info(tier, &info, &error);
    library().tier_close_wait(tier, UINT64_MAX, nullptr);
    check(told, error);
    return info.capacity_bytes - info.max_value_bytes;
}

uint32_t policy_of(const std::string &name) {
    if (name == "selective") return QUIRE_TIER_WRITE_SELECTIVE;
    return name == "back" ? QUIRE_TIER_WRITE_BACK : QUIRE_TIER_WRITE_THROUGH;
}

}  // namespace

ReplayDevice::ReplayDevice(quire_instance *instance) {
    auto desc = described<quire_device_desc>();
    desc.backend = "cpu";
    desc.threads = 1;
    desc.flags = QUIRE_DEVICE_INLINE;
    Error error;
    check(library().device_open(instance, &desc, &device_, &error), error);
    if (library().queue_create(device_, nullptr, &queue_, &error) >= 0) return;
    library().device_close(device_, nullptr);
    throw Failure(error.message, kFailed);
}

ReplayDevice::~ReplayDevice() {
    library().queue_destroy(queue_, nullptr);
    library().device_close(device_, nullptr);
}

ReplayStore::ReplayStore(quire_instance *instance, const ReplayOptions &options)
    : value_bytes_(value_bytes_of(options.block_tokens)) {
    if (options.tier.empty()) {
        const uint64_t room = value_bytes_ + record_bytes(instance);
        tier_ = open_memory(instance, options.disk_blocks * room);
    } else {
        const Settings settings = parse_settings("--tier-option", options.tier_options);
        tier_ = open_tier(instance, options.tier, settings, 0);
    }
}

ReplayStore::~ReplayStore() {
    if (cache_ != nullptr) library().cache_detach_tier_wait(cache_, UINT64_MAX, nullptr);
    library().tier_close_wait(tier_, UINT64_MAX, nullptr);
}

void ReplayStore::attach(quire_cache *cache, const ReplayOptions &options) {
    auto desc = described<quire_cache_tier_desc>();
    desc.write = policy_of(options.disk_write);
    desc.load_timeout_ns = desc.load_expiry_ns = kForEver;
    Error error;
    check(library().cache_attach_tier(cache, tier_, &desc, &error), error);
    cache_ = cache;
}

void ReplayStore::settle() {
    auto progress = described<quire_cache_tier_progress>();
    Error error;
    const double began = seconds_now();
    for (int tries = 0;; ++tries) {
        check(library().cache_poll_tier(cache_, &progress, &error), error);
        if (progress.blocks_queued == 0) break;
        if (tries < kBusyPolls) continue;
        pollfd answers{progress.descriptor, POLLIN, 0};
        if (progress.descriptor >= 0) poll(&answers, 1, kPollMs);
    }
    writing_seconds_ += seconds_now() - began;
}

void ReplayStore::wait_for_load() {
    Error error;
    const double began = seconds_now();
    check(library().cache_load_wait(cache_, UINT64_MAX, nullptr, &error), error);
    load_seconds_ += seconds_now() - began;
}

void ReplayStore::count(ReplayCounts *counts) {
    counts->tier = described<quire_cache_tier_stats>();
    counts->store = described<quire_store_stats>();
    Error error;
    check(library().cache_get_tier_stats(cache_, &counts->tier, &error), error);
    check(library().tier_get_stats(tier_, &counts->store, &error), error);
    if (counts->tier.bytes_written != counts->tier.blocks_written * value_bytes_)
        throw Failure("a block takes other room in the store than planned: this is a bug", kFailed);
    counts->blocks_read = counts->tier.bytes_loaded / value_bytes_;
    counts->load_seconds = load_seconds_;
    counts->writing_seconds = writing_seconds_;
    auto info = described<quire_store_info>();
    check(library().tier_get_info(tier_, &info, &error), error);
    counts->is_remote = (info.flags & QUIRE_STORE_REMOTE) != 0;
}

}  // namespace quire::cli
