// SPDX-License-Identifier: Apache-2.0
//
// store_loader: finds a store's plugin by name, and vets its table.
//
// Searched: the directories in which the instance looked for backends, in the same order.
//
// Threads: any.
#pragma once

#include "abi/objects.hpp"
#include "quire/plugin/store.h"

namespace quire::abi {

// A loaded plugin: our copy of its table.
struct StorePlugin {
    std::string path;
    std::string name;
    quire_store_api api{};
};

// Loads quire_store_<name>.so; a name with a slash is the file's absolute path.
Status load_store(quire_instance *instance, const char *name, StorePlugin *out, quire_error *error);

}  // namespace quire::abi
