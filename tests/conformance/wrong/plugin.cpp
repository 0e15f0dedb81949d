// SPDX-License-Identifier: Apache-2.0
//
// The entry of the wrong backends: backends/cpu's table, with the fault that QUIRE_WRONG names.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "faults.hpp"

namespace quire::wrong {

namespace {

quire_backend_api the_right{};
quire_backend_api the_wrong{};

// Opens backends/cpu from QUIRE_PLUGIN_PATH, or from the working directory if that is not set.
quire_backend_query_fn open_right() {
    const char *folder = std::getenv("QUIRE_PLUGIN_PATH");
    std::string path = std::string(folder != nullptr ? folder : ".") + "/quire_backend_cpu.so";
    void *module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *entry = module != nullptr ? dlsym(module, QUIRE_BACKEND_ENTRY) : nullptr;
    return reinterpret_cast<quire_backend_query_fn>(entry);
}

}  // namespace

const quire_backend_api &right() { return the_right; }

}  // namespace quire::wrong

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    using namespace quire::wrong;
    static quire_backend_query_fn query = open_right();
    if (query == nullptr) return QUIRE_E_BACKEND;
    const quire_backend_api *table = nullptr;
    if (quire_status status = query(host, out == nullptr ? nullptr : &table, error)) return status;
    the_right = the_wrong = *table;
    const char *fault = std::getenv("QUIRE_WRONG");
    if (fault != nullptr && !plant(fault, &the_wrong) && !stop_at_stage(fault, &the_wrong)) {
        std::fprintf(stderr, "there is no fault '%s'\n", fault);
        return QUIRE_E_BACKEND;
    }
    *out = &the_wrong;
    return QUIRE_OK;
}
