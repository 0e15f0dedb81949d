// SPDX-License-Identifier: Apache-2.0
//
// Events of the machine: places in streams, and the times when they were passed.

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "machine.hpp"

namespace fakegpu {

// Shared with streams, because an event may be destroyed before they reach it.
struct Passing {
    std::atomic<uint64_t> recorded{0};
    std::atomic<uint64_t> passed{0};
    std::atomic<int64_t> passed_ns{0};

    bool is_over() const { return passed.load() >= recorded.load(); }
};

struct Event {
    bool has_time;
    std::shared_ptr<Passing> passing = std::make_shared<Passing>();
};

namespace {

int64_t now_ns() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

int event_create(bool has_time, Event **out) {
    if (context_current() == nullptr) return kInvalidContext;
    count_live(1);
    *out = new Event{has_time};
    return kSuccess;
}

int event_destroy(Event *event) {
    delete event;
    count_live(-1);
    return kSuccess;
}

int event_record(Event *event, Stream *stream) {
    std::shared_ptr<Passing> passing = event->passing;
    uint64_t recorded = passing->recorded.fetch_add(1) + 1;
    return stream_enqueue(stream, [=] {
        passing->passed_ns.store(now_ns());
        passing->passed.store(recorded);
        return int{kSuccess};
    });
}

int event_query(Event *event) { return event->passing->is_over() ? kSuccess : kNotReady; }

int event_elapsed(float *milliseconds, Event *begin, Event *end) {
    for (Event *event : {begin, end}) {
        if (event == nullptr || !event->has_time || event->passing->recorded.load() == 0) {
            return kInvalidHandle;
        }
    }
    if (!begin->passing->is_over() || !end->passing->is_over()) return kNotReady;
    int64_t elapsed_ns = end->passing->passed_ns.load() - begin->passing->passed_ns.load();
    *milliseconds = static_cast<float>(elapsed_ns) * 1e-6F;
    return kSuccess;
}

int stream_wait_event(Stream *stream, Event *event) {
    std::shared_ptr<Passing> passing = event->passing;
    uint64_t recorded = passing->recorded.load();
    return stream_enqueue(stream, [=] {
        constexpr auto kLook = std::chrono::microseconds(20);
        while (passing->passed.load() < recorded && !has_sticky_error()) {
            std::this_thread::sleep_for(kLook);
        }
        return int{kSuccess};
    });
}

}  // namespace fakegpu
