// SPDX-License-Identifier: Apache-2.0

#include "watch.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <string>

namespace gpupaths {
namespace {

// What is planted, and how many calls are left before it.
struct Plant {
    Call kind = Call::any;
    uint64_t before = 0, count = 0, hits = 0;
    quire_status status = QUIRE_OK;

    bool hit(Call called) {
        if (count == 0 || (kind != Call::any && kind != called)) return false;
        if (before != 0) {
            --before;
            return false;
        }
        --count;
        ++hits;
        return true;
    }
};

const quire_backend_api *real = nullptr;
quire_backend_api table{};
quire_be_device *opened_last = nullptr;
quire_be_queue *bound_last = nullptr;
bool paused = false;
Plant skipping, refusing;

bool is_refused(Call kind) { return !paused && refusing.hit(kind); }
bool is_skipped(Call kind) { return !paused && skipping.hit(kind); }

// A function of the backend that may be refused or left out.
template <auto Slot, Call Kind>
struct Passes;
template <typename... Arguments, quire_status (*quire_backend_api::*Slot)(Arguments...), Call Kind>
struct Passes<Slot, Kind> {
    static quire_status call(Arguments... arguments) {
        if (is_refused(Kind)) return refusing.status;
        if (is_skipped(Kind)) return QUIRE_OK;
        return (real->*Slot)(arguments...);
    }
};
template <auto Slot, Call Kind>
void pass() {
    if (table.*Slot != nullptr) table.*Slot = Passes<Slot, Kind>::call;
}

quire_status device_open(const quire_be_device_desc *desc, quire_be_device **out,
                         quire_error *error) {
    quire_status status = real->device_open(desc, out, error);
    if (status == QUIRE_OK) opened_last = *out;
    return status;
}

quire_status queue_bind(quire_be_device *device, const quire_native *native, quire_be_queue **out,
                        quire_error *error) {
    if (is_refused(Call::queue_bind)) return refusing.status;
    quire_status status = real->queue_bind(device, native, out, error);
    if (status == QUIRE_OK) bound_last = *out;
    return status;
}

Call kind_of(const quire_be_copy &copy) {
    if (copy.kind == QUIRE_BE_COPY_D2H) return Call::copy_to_host;
    return copy.kind == QUIRE_BE_COPY_H2D ? Call::copy_from_host : Call::copy_on_device;
}

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error) {
    Call kind = count == 0 ? Call::any : kind_of(copies[0]);
    if (is_refused(kind)) return refusing.status;
    if (is_skipped(kind) && --count == 0) return QUIRE_OK;
    return real->copy(queue, copies, count, error);
}

void plant(Plant *plant, Call kind, uint64_t nth, uint64_t count, quire_status status) {
    uint64_t hits = plant->hits;
    *plant = {kind, nth == 0 ? 0 : nth - 1, nth == 0 ? 0 : count, hits, status};
}

constexpr Watch functions = {
    [] { return opened_last; },
    [] { return bound_last; },
    [](quire_be_device *device, uint64_t timeout_ns, quire_error *error) {
        return real->quiesce(device, timeout_ns, error);
    },
    [](quire_be_queue *queue, const quire_be_copy *copies, uint32_t count, quire_error *error) {
        return real->copy(queue, copies, count, error);
    },
    [](Call kind, uint64_t nth, uint64_t count) { plant(&skipping, kind, nth, count, QUIRE_OK); },
    [](Call kind, uint64_t nth, uint64_t count, quire_status status) {
        plant(&refusing, kind, nth, count, status);
    },
    [](bool is_paused) { paused = is_paused; },
    [] { return skipping.hits; },
    [] { return refusing.hits; },
};

quire_status find_real(const quire_host_info *host, quire_error *error) {
    const char *folders = std::getenv("QUIRE_PLUGIN_PATH");
    std::istringstream list(folders != nullptr ? folders : "");
    for (std::string folder; std::getline(list, folder, ':');) {
        std::string path = folder + "/quire_backend_" QUIRE_WATCHED ".so";
        void *module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        void *entry = module != nullptr ? dlsym(module, QUIRE_BACKEND_ENTRY) : nullptr;
        if (entry == nullptr) continue;
        return reinterpret_cast<quire_backend_query_fn>(entry)(host, &real, error);
    }
    return QUIRE_E_BACKEND;
}

}  // namespace
}  // namespace gpupaths

extern "C" {

QUIRE_EXPORT const gpupaths::Watch *quire_watch(void) { return &gpupaths::functions; }

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    using namespace gpupaths;
    if (quire_status status = find_real(host, error)) return status;
    table = *real;
    table.name = "watched-" QUIRE_WATCHED;
    table.device_open = device_open;
    table.queue_bind = queue_bind;
    table.copy = copy;
    pass<&quire_backend_api::fill, Call::fill>();
    pass<&quire_backend_api::fence_wait, Call::fence_wait>();
    pass<&quire_backend_api::fence_signal, Call::fence_signal>();
    pass<&quire_backend_api::kv_write, Call::kv_write>();
    pass<&quire_backend_api::attention, Call::attention>();
    pass<&quire_backend_api::move_tokens, Call::move_tokens>();
    pass<&quire_backend_api::mem_alloc, Call::mem_alloc>();
    pass<&quire_backend_api::fence_create, Call::fence_create>();
    pass<&quire_backend_api::plan_create, Call::plan_create>();
    *out = &table;
    return QUIRE_OK;
}
}
