// SPDX-License-Identifier: Apache-2.0
//
// cpu_table: the functions of backends/cpu, for plugins that wrap it and change a few.
//
// Threads: as quire_backend_query_v0.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "quire/plugin/backend.h"

namespace quire::test {

inline quire_status find_cpu_table(const quire_host_info *host, const quire_backend_api **out,
                                   quire_error *error) {
    std::string path = std::string(std::getenv("QUIRE_PLUGIN_PATH")) + "/quire_backend_cpu.so";
    void *module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *entry = module != nullptr ? dlsym(module, QUIRE_BACKEND_ENTRY) : nullptr;
    if (entry == nullptr) return QUIRE_E_BACKEND;
    return reinterpret_cast<quire_backend_query_fn>(entry)(host, out, error);
}

}  // namespace quire::test
