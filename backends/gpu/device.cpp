// SPDX-License-Identifier: Apache-2.0

#include "device.hpp"

#include "shared/checks.hpp"

namespace quire::gpu {

void Device::drop_reference() {
    if (references.drop()) delete static_cast<quire_be_device *>(this);
}

bool Device::is_good(Result result) {
    if (result != 0 && context.driver->is_fatal(result)) {
        lose();
    }
    return result == 0;
}

quire_status Device::check(Result result, const char *what, quire_error *error) {
    if (is_good(result)) return QUIRE_OK;
    return fail_driver(*context.driver, result, what, error);
}

quire_status Device::check_in(const Entered &entered, quire_error *error) {
    if (is_lost && !entered.is_in()) return check_open(error);
    return check(entered.result(), "to make its context current", error);
}

quire_status Device::check_open(quire_error *error) const {
    if (!is_closed && !is_lost) return QUIRE_OK;
    return fail(error, QUIRE_E_DEVICE_LOST, "the %s device is lost or closed", kBackendName);
}

void Device::lose() {
    {
        std::lock_guard fences(fence_mutex);
        is_lost = true;
    }
    changed.notify_all();
}

void Device::wait(const Deadline &deadline, std::unique_lock<std::mutex> &lock, uint64_t most_ns) {
    lock.unlock();
    {
        std::unique_lock fences(fence_mutex);
        deadline.wait(changed, fences, most_ns);
    }
    lock.lock();
}

}  // namespace quire::gpu
