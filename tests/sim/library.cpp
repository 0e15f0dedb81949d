// SPDX-License-Identifier: Apache-2.0
//
// library: see library.hpp.
#include "library.hpp"

#include <cstddef>
#include <cstring>

#include "quire/dyn.h"

namespace sim {
namespace {

// The oldest table with every function that the simulator needs.
constexpr size_t kOldestTable = offsetof(quire_api, cache_dump);

// Null if the file is not libquire at all: quire_dyn_load says why, and better.
const quire_api *table_of(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    const auto get = reinterpret_cast<quire_get_api_fn>(dlsym(library, "quire_get_api"));
    const quire_api *table = nullptr;
    if (get == nullptr || get(QUIRE_VERSION_MAJOR, 0, &table, nullptr) < 0) return nullptr;
    return table;
}

}  // namespace

const quire_api *open_library(const std::string &path) {
    const char *named = path.empty() ? getenv("QUIRE_LIBRARY") : path.c_str();
    const quire_api *table = named == nullptr ? nullptr : table_of(named);
    if (table != nullptr && table->struct_size >= kOldestTable &&
        table->struct_size < sizeof(quire_api)) {
        static quire_api older;
        memcpy(&older, table, table->struct_size);
        return &older;
    }
    char why[1024];
    if (quire_dyn_load(path.empty() ? nullptr : path.c_str(), &table, why, sizeof why) < 0)
        throw std::string(why);
    return table;
}

uint32_t proving_flags(const quire_api *api) {
    return api->cache_dump == nullptr ? 0 : QUIRE_CACHE_AUDIT;
}

}  // namespace sim
