// SPDX-License-Identifier: Apache-2.0

#include "driver.hpp"

#include <mutex>

#include "context.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

quire_status find_driver(const Driver **out, const char **why_none, quire_error *error) {
    static std::mutex mutex;
    static bool is_known = false;
    static Found found;
    static Driver driver;
    std::lock_guard lock(mutex);
    if (!is_known) {
        DriverThreads threads;
        found = look_for_driver(&driver);
        is_known = true;
    }
    *out = found.has_driver ? &driver : nullptr;
    *why_none = found.message;
    return found.status == QUIRE_OK ? QUIRE_OK : fail(error, found.status, "%s", found.message);
}

}  // namespace quire::gpu
