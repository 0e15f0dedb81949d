// SPDX-License-Identifier: Apache-2.0

#include "context.hpp"

#include <pthread.h>

#include <cstdlib>

#include "shared/checks.hpp"

namespace quire::gpu {

DriverThreads::DriverThreads() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals_);
    std::fegetenv(&environment_);
    std::fesetenv(FE_DFL_ENV);
}

DriverThreads::~DriverThreads() {
    std::fesetenv(&environment_);
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

quire_status fail_driver(const Driver &driver, Result result, const char *what,
                         quire_error *error) {
    quire_status status = QUIRE_E_BACKEND;
    if (driver.is_fatal(result)) status = QUIRE_E_DEVICE_LOST;
    if (driver.is_out_of_memory(result)) status = QUIRE_E_DEVICE_MEMORY;
    fail(error, status, "the %s driver refused %s: %s (%d)", driver.vendor, what,
         driver.describe(result), result);
    if (error != nullptr && error->struct_size != 0) error->native_code = result;
    return status;
}

const char *environment(const char *name) {
    const char *value = secure_getenv(name);
    return value == nullptr || *value == 0 ? nullptr : value;
}

}  // namespace quire::gpu
