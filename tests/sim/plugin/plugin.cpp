// SPDX-License-Identifier: Apache-2.0
//
// plugin: the file that libquire loads as a backend; it hands out the table that quire-sim gave it.
//
// Threads: the table is set once, before the library loads the file.
#include <ctime>

#include "quire/plugin/backend.h"

namespace {
const quire_backend_api *table = nullptr;
}  // namespace

extern "C" __attribute__((visibility("default"))) void quire_sim_set_table(
    const quire_backend_api *given) {
    table = given;
}

// Reads the clocks as a library would that was loaded like this one: the program must see it.
extern "C" __attribute__((visibility("default"))) void quire_sim_read_clocks() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    time(nullptr);
}

extern "C" quire_status quire_backend_query_v0(const quire_host_info *,
                                               const quire_backend_api **out, quire_error *) {
    *out = table;
    return table != nullptr ? QUIRE_OK : QUIRE_E_BACKEND;
}
