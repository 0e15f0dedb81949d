// SPDX-License-Identifier: Apache-2.0

#include "core/device/backend_call.hpp"

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace quire {

namespace {

#define QUIRE_SLOT(name, needed) {offsetof(quire_backend_api, name), needed, #name}
constexpr FunctionInfo kFunctions[] = {
    QUIRE_SLOT(probe, true),
    QUIRE_SLOT(device_open, true),
    QUIRE_SLOT(device_close, true),
    QUIRE_SLOT(device_props, true),
    QUIRE_SLOT(query_attention, true),
    QUIRE_SLOT(mem_alloc, true),
    QUIRE_SLOT(mem_free, true),
    QUIRE_SLOT(queue_bind, true),
    QUIRE_SLOT(queue_release, true),
    QUIRE_SLOT(fence_create, true),
    QUIRE_SLOT(fence_destroy, true),
    QUIRE_SLOT(fence_read, true),
    QUIRE_SLOT(fence_signal_host, true),
    QUIRE_SLOT(fence_wait_host, true),
    QUIRE_SLOT(fence_signal, true),
    QUIRE_SLOT(fence_wait, true),
    QUIRE_SLOT(copy, true),
    QUIRE_SLOT(fill, true),
    QUIRE_SLOT(kv_write, true),
    QUIRE_SLOT(plan_create, true),
    QUIRE_SLOT(plan_destroy, true),
    QUIRE_SLOT(attention, true),
    QUIRE_SLOT(quiesce, true),
    QUIRE_SLOT(shutdown, false),  // only a notification
    QUIRE_SLOT(merge, false),
    QUIRE_SLOT(move_tokens, false),
    QUIRE_SLOT(native_signal, false),
    QUIRE_SLOT(native_wait, false),
    QUIRE_SLOT(mem_import, false),
};
#undef QUIRE_SLOT

static_assert(kFunctions[0].offset + std::size(kFunctions) * sizeof(void *) ==
                  offsetof(quire_backend_api, features),
              "a function of the table is not listed");

const char *name_of(uint32_t offset) {
    const FunctionInfo *function = find_function(offset);
    return function != nullptr ? function->name : "function";
}

// Marks an error as the backend's, whatever the backend wrote, and terminates its message.
void sign(const quire_backend_api &api, quire_error *error) {
    error->domain = QUIRE_DOMAIN_BACKEND;
    if (api.name != nullptr) {
        std::snprintf(error->backend, sizeof error->backend, "%s", api.name);
    }
    error->message[sizeof error->message - 1] = '\0';
}

}  // namespace

const FunctionInfo *find_function(uint32_t offset) {
    for (const FunctionInfo &info : kFunctions) {
        if (info.offset == offset) return &info;
    }
    return nullptr;
}

const FunctionInfo *missing_function(const quire_backend_api &api) {
    for (const FunctionInfo &info : kFunctions) {
        void *function = nullptr;
        std::memcpy(&function, reinterpret_cast<const char *>(&api) + info.offset, sizeof function);
        if (info.needed && function == nullptr) return &info;
    }
    return nullptr;
}

Status function_threw(const quire_backend_api &api, uint32_t offset, quire_error *error) {
    sign(api, error);
    std::snprintf(error->message, sizeof error->message,
                  "backend \"%s\" threw an exception out of %s, which the contract forbids",
                  api.name, name_of(offset));
    return fail(QUIRE_E_BACKEND, nullptr);
}

Status function_refused(const quire_backend_api &api, uint32_t offset, quire_status status,
                        quire_error *error) {
    sign(api, error);
    if (!known_failure(status)) {
        error->native_code = status;
        std::snprintf(error->message, sizeof error->message,
                      "backend \"%s\" returned %d from %s, which is not in the contract", api.name,
                      static_cast<int>(status), name_of(offset));
        return fail(QUIRE_E_BACKEND, nullptr);
    }
    if (error->message[0] == '\0') {
        std::snprintf(error->message, sizeof error->message,
                      "backend \"%s\" refused %s without a reason", api.name, name_of(offset));
    }
    return fail(status, nullptr);
}

Status function_lied(const quire_backend_api &api, quire_error *error, const char *what) {
    sign(api, error);
    std::snprintf(error->message, sizeof error->message, "backend \"%s\" returned success, but %s",
                  api.name, what);
    return fail(QUIRE_E_BACKEND, nullptr);
}

namespace {

std::atomic<uint64_t> &account(const Device &device, uint32_t kind) {
    if (kind == QUIRE_BE_MEMORY_IMPORTED) return device.engine_bytes;
    return kind == QUIRE_BE_MEMORY_HOST ? device.host_bytes : device.device_bytes;
}

void release_memory(const Device &device, uint64_t address, uint64_t size_bytes, uint32_t kind) {
    call_void<&quire_backend_api::mem_free>(*device.api, device.handle, address, size_bytes, kind);
}

}  // namespace

Status allocate_memory(const Device &device, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                       void **host_pointer, quire_error *error) {
    const quire_backend_api &api = *device.api;
    uint64_t found = 0;
    void *pointer = nullptr;
    QUIRE_TRY(call<&quire_backend_api::mem_alloc>(api, error, device.handle, size_bytes, kind,
                                                  &found, &pointer));
    const char *lie = nullptr;
    if (found == 0) {
        lie = "mem_alloc returned no address";
    } else if (found % kDeviceAlignment != 0) {
        lie = "mem_alloc returned an address that is not aligned to 4096 bytes";
    } else if (found > UINT64_MAX - size_bytes) {
        lie = "mem_alloc returned memory that reaches past the address space";
    } else if (kind == QUIRE_BE_MEMORY_HOST && pointer == nullptr) {
        lie = "mem_alloc returned host memory without a host pointer";
    }
    if (lie != nullptr) {
        if (found != 0) release_memory(device, found, size_bytes, kind);
        return function_lied(api, error, lie);
    }
    account(device, kind) += size_bytes;
    *address = found;
    *host_pointer = pointer;
    return Status{};
}

Status import_memory(const Device &device, void *host_pointer, uint64_t size_bytes,
                     uint64_t *address, quire_error *error) {
    const quire_backend_api &api = *device.api;
    if (api.mem_import == nullptr) {
        return fail(
            QUIRE_E_UNSUPPORTED,
            "host_pointer is set, but the device's backend cannot import memory: leave it NULL");
    }
    uint64_t found = 0;
    QUIRE_TRY(call<&quire_backend_api::mem_import>(api, error, device.handle, host_pointer,
                                                   size_bytes, &found));
    if (found == 0) return function_lied(api, error, "mem_import returned no address");
    if (found > UINT64_MAX - size_bytes) {
        release_memory(device, found, size_bytes, QUIRE_BE_MEMORY_IMPORTED);
        return function_lied(api, error,
                             "mem_import returned memory that reaches past the address space");
    }
    device.engine_bytes += size_bytes;
    *address = found;
    return Status{};
}

namespace {

// True for the answers after which nothing that was enqueued runs.
bool has_ended(const Device &device, uint64_t timeout_ns) {
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    Status answer =
        call<&quire_backend_api::quiesce>(*device.api, &ignored, device.handle, timeout_ns);
    return answer.code == QUIRE_OK || answer.code == QUIRE_E_DEVICE_LOST;
}

}  // namespace

void await_idle(const Device &device) {
    if (!has_ended(device, UINT64_MAX)) device.may_run_on = true;
}

bool may_run(const Device &device) { return !has_ended(device, 0); }

void free_memory(const Device &device, uint64_t address, uint64_t size_bytes, uint32_t kind) {
    if (device.is_abandoned() || device.may_run_on) return;  // it may still be written
    release_memory(device, address, size_bytes, kind);
    account(device, kind) -= size_bytes;
}

}  // namespace quire
