// SPDX-License-Identifier: Apache-2.0
//
// plugin_table: a plugin's functions, for tests that call it without the library.
//
// Threads: any.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "quire/plugin/backend.h"

namespace quire::test {

struct Error : quire_error {
    Error() : quire_error{} { struct_size = sizeof(quire_error); }
};

// Ends the process with the reason if the file is not a plugin. It stays loaded.
inline const quire_backend_api *plugin_table(const std::string &path) {
    Error error;
    void *module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *entry = module != nullptr ? dlsym(module, QUIRE_BACKEND_ENTRY) : nullptr;
    quire_host_info host{};
    host.struct_size = sizeof host;
    host.abi_minor = QUIRE_BACKEND_ABI_MINOR;
    const quire_backend_api *table = nullptr;
    if (entry != nullptr &&
        reinterpret_cast<quire_backend_query_fn>(entry)(&host, &table, &error) == QUIRE_OK) {
        return table;
    }
    std::fprintf(stderr, "%s: %s\n", path.c_str(), entry != nullptr ? error.message : dlerror());
    std::abort();
}

}  // namespace quire::test
