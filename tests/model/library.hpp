// SPDX-License-Identifier: Apache-2.0
//
// library: the library that the build tree's environment names; ends the process if there is none.
#pragma once

#include <quire/dyn.h>

#include <cstdlib>

namespace quire::model {

inline const quire_api &library() {
    static const quire_api *api = [] {
        const quire_api *loaded = nullptr;
        char why[512] = "";
        if (quire_dyn_load(nullptr, &loaded, why, sizeof why) < 0) {
            std::fprintf(stderr, "%s\n", why);
            std::abort();
        }
        return loaded;
    }();
    return *api;
}

}  // namespace quire::model
