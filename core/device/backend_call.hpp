// SPDX-License-Identifier: Apache-2.0
//
// backend_call: the one way in which the library calls a function of a backend.
//
// A backend is foreign code. Whatever its function does short of corrupting memory, the caller of
// the library gets a status that this library knows, with a message that names the backend:
//   (1) an exception stops here and is QUIRE_E_BACKEND, or dropped where no status is returned
//   (2) a status that the contract does not have, or information that cannot be (a timeout of a
//       call that does not wait), is QUIRE_E_BACKEND
//   (3) memory that is not as requested is given back and is QUIRE_E_BACKEND
// The good path is the call and one comparison.
//
// Threads: any; the backend's table is constant once loaded.
#pragma once

#include "core/device/device.hpp"

namespace quire {

// A function of the table. A device is not opened without those that are needed.
struct FunctionInfo {
    uint32_t offset;
    bool needed;
    const char *name;
};
const FunctionInfo *find_function(uint32_t offset);
// The first needed function that is NULL, or nullptr.
const FunctionInfo *missing_function(const quire_backend_api &api);

// True for a failure that a backend may return.
inline bool known_failure(quire_status status) { return status < 0 && status >= QUIRE_E_INTERNAL; }

// Each fills in the message and the backend's name where the backend left them out.
Status function_threw(const quire_backend_api &api, uint32_t offset, quire_error *error);
Status function_refused(const quire_backend_api &api, uint32_t offset, quire_status status,
                        quire_error *error);
Status function_lied(const quire_backend_api &api, quire_error *error, const char *what);

// Only these may return QUIRE_S_TIMEOUT.
template <auto Function>
inline constexpr bool kWaits = false;
template <>
inline constexpr bool kWaits<&quire_backend_api::fence_wait_host> = true;
template <>
inline constexpr bool kWaits<&quire_backend_api::quiesce> = true;

template <auto Function>
uint32_t offset_in(const quire_backend_api &api) {
    return static_cast<uint32_t>(reinterpret_cast<const char *>(&(api.*Function)) -
                                 reinterpret_cast<const char *>(&api));
}

// Calls a function that returns a status:
// call<&quire_backend_api::fence_read>(api, error, fence, &value).
// REQUIRES: error is not nullptr.
template <auto Function, typename... Arguments>
Status call(const quire_backend_api &api, quire_error *error, Arguments... arguments) noexcept {
    quire_status status = QUIRE_OK;
    try {
        status = (api.*Function)(arguments..., error);
    } catch (...) {
        return function_threw(api, offset_in<Function>(api), error);
    }
    if (status == QUIRE_OK) [[likely]]
        return Status{};
    if (kWaits<Function> && status == QUIRE_S_TIMEOUT)
        return Status{QUIRE_S_TIMEOUT, nullptr, 0, 0};
    return function_refused(api, offset_in<Function>(api), status, error);
}

// Calls a function that releases something and cannot fail.
template <auto Function, typename... Arguments>
void call_void(const quire_backend_api &api, Arguments... arguments) noexcept {
    try {
        (api.*Function)(arguments...);
    } catch (...) {
        // It had to release the object: nothing can be undone, and no caller can be notified.
        return;
    }
}

// Calls mem_alloc and validates its results: an address aligned to kDeviceAlignment, all of the
// memory in the address space, and for QUIRE_BE_MEMORY_HOST a pointer.
inline constexpr uint64_t kDeviceAlignment = 4096;
Status allocate_memory(const Device &device, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                       void **host_pointer, quire_error *error);
// Imports the engine's own host memory; free_memory() with QUIRE_BE_MEMORY_IMPORTED gives it back.
Status import_memory(const Device &device, void *host_pointer, uint64_t size_bytes,
                     uint64_t *address, quire_error *error);
// Waits until nothing runs on the device, or it is lost.
void await_idle(const Device &device);
// False if nothing runs on the device, or it is lost: then nothing on it runs any more.
bool may_run(const Device &device);
// Frees nothing on a device that was abandoned, or whose backend could not say that it is idle.
void free_memory(const Device &device, uint64_t address, uint64_t size_bytes, uint32_t kind);

}  // namespace quire
