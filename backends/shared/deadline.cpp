// SPDX-License-Identifier: Apache-2.0

#include "shared/deadline.hpp"

#include <algorithm>

namespace quire {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

Deadline::Deadline(uint64_t timeout_ns) {
    auto now = steady_clock::now();
    auto left = steady_clock::time_point::max() - now;
    is_never_ = timeout_ns >= static_cast<uint64_t>(nanoseconds(left).count());
    if (!is_never_) end_ = now + nanoseconds(timeout_ns);
}

uint64_t Deadline::left_ns() const {
    if (is_never_) return UINT64_MAX;
    auto left = end_ - steady_clock::now();
    return static_cast<uint64_t>(std::max<int64_t>(0, nanoseconds(left).count()));
}

void Deadline::wait(std::condition_variable &changed, std::unique_lock<std::mutex> &lock,
                    uint64_t most_ns) const {
    changed.wait_for(lock, nanoseconds(std::min(left_ns(), most_ns)));
}

}  // namespace quire
