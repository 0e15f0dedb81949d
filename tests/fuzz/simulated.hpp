// SPDX-License-Identifier: Apache-2.0
//
// simulated: the backend of tests/sim, a file that hands out whatever table it was given.
//
// Threads: none.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "quire/plugin/backend.h"
#include "require.hpp"

namespace quire::fuzz {

// Its path, for quire_backend_load; from now on it hands out `table`, which may be NULL.
inline std::string simulated_plugin(const quire_backend_api *table) {
    char self[4096] = {};
    require(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "the program has a path");
    std::string file = self;
    file = file.substr(0, file.rfind('/')) + "/../sim/quire_backend_sim.so";
    static void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) broken("the backend of tests/sim is beside this program:", dlerror());
    using Give = void (*)(const quire_backend_api *);
    static const auto give = reinterpret_cast<Give>(dlsym(library, "quire_sim_set_table"));
    give(table);
    return file;
}

}  // namespace quire::fuzz
