// SPDX-License-Identifier: Apache-2.0

#include "profile.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>

#include "device.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

constexpr uint64_t kSizes[] = {16 << 10, 32 << 10, 64 << 10, 128 << 10, 512 << 10};
constexpr size_t kSizeCount = std::size(kSizes);
constexpr uint64_t kBytes = 1 << 20;  // 64 pieces of one launch, two of the largest copies
constexpr uint32_t kRounds = 3;
constexpr uint64_t kBudgetNs = 5'000'000;
constexpr uint32_t kWays = QUIRE_BE_COPY_H2D + 1;
static_assert(kBytes / kPieceBytes <= kMostPieces);

// The shortest measured time.
class Shortest {
 public:
    void take(float milliseconds) {
        if (milliseconds > 0 && static_cast<double>(milliseconds) < least_) least_ = milliseconds;
    }
    double get() const { return least_; }

 private:
    double least_ = std::numeric_limits<double>::infinity();
};

// Where the copies of one way begin.
struct Ends {
    uint64_t dst, src;
};

class Profile {
 public:
    explicit Profile(quire_be_device *device)
        : device_(device),
          driver_(*device->context.driver),
          stream_(device->service->stream),
          memory_(device->profile_memory) {}
    Profile(const Profile &) = delete;
    Profile &operator=(const Profile &) = delete;
    ~Profile();

    // On an error, not all borders are set.
    Result measure(Borders *out);

 private:
    Result open();
    Ends ends_of(uint32_t way) const;
    // Each copies `bytes` in total.
    Result time_kernel(const Ends &ends, uint64_t bytes, Shortest *shortest);
    Result time_driver(const Ends &ends, uint64_t bytes, uint64_t size_bytes, Shortest *shortest);
    template <typename Give>
    Result time(Give give, Shortest *shortest);
    Result warm_up();
    Result round();

    quire_be_device *device_;
    const Driver &driver_;
    Stream stream_;
    ProfileMemory &memory_;  // twice kBytes in device memory
    Event begin_ = nullptr, end_ = nullptr;
    Shortest by_kernel_[kWays];
    Shortest by_driver_[kWays][kSizeCount];
};

Result Profile::open() {
    uint64_t address = 0;
    if (Result result = driver_.memory_alloc(&address, 2 * kBytes)) return result;
    memory_.address = address;
    void *host = nullptr;
    if (Result result = driver_.host_alloc(&host, &memory_.host_address, kBytes)) return result;
    memory_.host = host;
    for (Event *event : {&begin_, &end_}) {
        Event made = nullptr;
        if (Result result = driver_.event_create(&made)) return result;
        *event = made;
    }
    return 0;
}

// After a failure, work that still runs ends before its events are destroyed.
Profile::~Profile() {
    if (begin_ != nullptr) driver_.stream_wait(stream_);
    for (Event event : {begin_, end_}) {
        if (event != nullptr) driver_.event_destroy(event);
    }
}

Ends Profile::ends_of(uint32_t way) const {
    uint64_t address = memory_.address;
    if (way == QUIRE_BE_COPY_H2D) return {address, memory_.host_address};
    if (way == QUIRE_BE_COPY_D2H) return {memory_.host_address, address};
    return {address + kBytes, address};
}

template <typename Give>
Result Profile::time(Give give, Shortest *shortest) {
    if (Result result = driver_.event_record(stream_, begin_)) return result;
    if (Result result = give()) return result;
    if (Result result = driver_.event_record(stream_, end_)) return result;
    if (Result result = driver_.stream_wait(stream_)) return result;
    float milliseconds = 0;
    if (Result result = driver_.event_elapsed(begin_, end_, &milliseconds)) return result;
    shortest->take(milliseconds);
    return 0;
}

Result Profile::time_kernel(const Ends &ends, uint64_t bytes, Shortest *shortest) {
    PieceCall call{};
    Command command;
    command.kind = CommandKind::launch;
    command.kernel = KernelName::copy;
    command.arguments = &call.head;
    for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
        call.pieces[command.group_count++] = {ends.dst + at, ends.src + at, kPieceBytes};
    }
    return time([&] { return device_->service->give(command); }, shortest);
}

Result Profile::time_driver(const Ends &ends, uint64_t bytes, uint64_t size_bytes,
                            Shortest *shortest) {
    constexpr size_t kMostCopies = kBytes / kSizes[0];
    uint64_t dsts[kMostCopies], srcs[kMostCopies];
    size_t sizes_bytes[kMostCopies];
    size_t count = bytes / size_bytes;
    for (size_t i = 0; i < count; ++i) {
        dsts[i] = ends.dst + i * size_bytes;
        srcs[i] = ends.src + i * size_bytes;
        sizes_bytes[i] = size_bytes;
    }
    Copies copies = {dsts, srcs, sizes_bytes, count};
    bool is_begun = false;
    return time([&] { return give_copies(device_, stream_, copies, &is_begun); }, shortest);
}

// A driver may load a kernel or start an engine at its first use.
Result Profile::warm_up() {
    Shortest nobodys;
    for (uint32_t way = 0; way < kWays; ++way) {
        Ends ends = ends_of(way);
        if (Result result = time_kernel(ends, kSizes[0], &nobodys)) return result;
        if (Result result = time_driver(ends, 2 * kSizes[0], kSizes[0], &nobodys)) return result;
    }
    return 0;
}

Result Profile::round() {
    for (uint32_t way = 0; way < kWays; ++way) {
        Ends ends = ends_of(way);
        if (Result result = time_kernel(ends, kBytes, &by_kernel_[way])) return result;
        for (size_t i = 0; i < kSizeCount; ++i) {
            Result result = time_driver(ends, kBytes, kSizes[i], &by_driver_[way][i]);
            if (result != 0) return result;
        }
    }
    return 0;
}

Result Profile::measure(Borders *out) {
    if (Result result = open()) return result;
    if (Result result = warm_up()) return result;
    auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kBudgetNs);
    for (uint32_t i = 0; i < kRounds; ++i) {
        if (i != 0 && std::chrono::steady_clock::now() > end) break;
        if (Result result = round()) return result;
    }
    for (uint32_t way = 0; way < kWays; ++way) {
        Timing timings[kSizeCount];
        for (size_t i = 0; i < kSizeCount; ++i) {
            timings[i] = {kSizes[i], by_kernel_[way].get(), by_driver_[way][i].get()};
        }
        out->size_bytes[way] = border_of(timings, kSizeCount);
    }
    return 0;
}

// Results of this process by device number. Devices past the array are measured at each open.
struct Known {
    std::mutex mutex;
    bool is_known[64] = {};
    Borders borders[64];
};

}  // namespace

void ProfileMemory::close(const Driver &driver) {
    if (address != 0) driver.memory_free(address);
    if (host != nullptr) driver.host_free(host);
    address = 0;
    host = nullptr;
}

quire_status find_borders(quire_be_device *device, Borders *out, quire_error *error) {
    if (const char *text = environment("QUIRE_GPU_DMA_BYTES")) {
        uint64_t border = 0;
        if (!parse_border(text, &border)) {
            return fail(error, QUIRE_E_ARG,
                        "QUIRE_GPU_DMA_BYTES is \"%.40s\", which is not a number of bytes: use 0 "
                        "to 18446744073709551615",
                        text);
        }
        std::fill_n(out->size_bytes, kWays, border);
        return QUIRE_OK;
    }
    static Known known;
    std::lock_guard lock(known.mutex);
    auto index = static_cast<size_t>(device->context.index);
    bool has_place = index < std::size(known.is_known);
    if (has_place && known.is_known[index]) {
        *out = known.borders[index];
        return QUIRE_OK;
    }
    Borders measured;
    Result result = Profile(device).measure(&measured);
    if (device->context.driver->is_fatal(result)) {
        return device->check(result, "to measure copies", error);
    }
    if (result != 0) return QUIRE_OK;
    *out = measured;
    if (!has_place) return QUIRE_OK;
    known.borders[index] = measured;
    known.is_known[index] = true;
    return QUIRE_OK;
}

}  // namespace quire::gpu
