// SPDX-License-Identifier: Apache-2.0
//
// library: see library.hpp.
#include "library.hpp"

#include "quire/dyn.h"

namespace hybrid {

const quire_api *open_library(const std::string &path) {
    const quire_api *api = nullptr;
    char why[1024];
    if (quire_dyn_load(path.empty() ? nullptr : path.c_str(), &api, why, sizeof why) < 0)
        throw std::string(why);
    return api;
}

}  // namespace hybrid
