// SPDX-License-Identifier: Apache-2.0
//
// store: the file that libquire loads as a store; it hands out the table that quire-sim gave it.
//
// Threads: the table is set once, before the library loads the file.
#include "quire/plugin/store.h"

namespace {
const quire_store_api *table = nullptr;
}  // namespace

extern "C" __attribute__((visibility("default"))) void quire_sim_set_store(
    const quire_store_api *given) {
    table = given;
}

extern "C" quire_status quire_store_query_v0(const quire_host_info *, const quire_store_api **out,
                                             quire_error *) {
    *out = table;
    return table != nullptr ? QUIRE_OK : QUIRE_E_BACKEND;
}
