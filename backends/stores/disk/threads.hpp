// SPDX-License-Identifier: Apache-2.0
//
// threads: starts threads that leave signals to the process.
//
// Threads: any.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace quire::disk {

// Throws std::system_error if the system has no thread left.
template <typename Body>
std::thread start_thread(const char *name, Body body) {
    // A new thread inherits the mask, so no signal can reach it before it has blocked them.
    struct Blocked {
        sigset_t before;
        Blocked() {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    } blocked;
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace quire::disk
