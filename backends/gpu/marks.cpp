// SPDX-License-Identifier: Apache-2.0

#include "marks.hpp"

#include <algorithm>

namespace quire::gpu {

Result EventRing::open(const Driver &driver) {
    for (Event &event : events_) {
        if (Result result = driver.event_create(&event)) {
            event = nullptr;
            return result;
        }
    }
    return 0;
}

void EventRing::close(const Driver &driver) {
    for (Event &event : events_) {
        if (event != nullptr) driver.event_destroy(event);
        event = nullptr;
    }
}

Result EventRing::record(const Driver &driver, Stream stream, Event *out) {
    *out = events_[next_];
    Result result = driver.event_record(stream, *out);
    if (result == 0) next_ = (next_ + 1) % events_.size();
    return result;
}

void Marks::add(uint64_t value, Event event) {
    auto is_less = [](const Mark &a, const Mark &b) { return a.value < b.value; };
    *std::min_element(marks_.begin(), marks_.end(), is_less) = {value, event};
}

Event Marks::find(uint64_t value) const {
    const Mark *best = nullptr;
    for (const Mark &mark : marks_) {
        if (mark.event == nullptr || mark.value < value) continue;
        if (best == nullptr || mark.value < best->value) best = &mark;
    }
    return best->event;
}

}  // namespace quire::gpu
