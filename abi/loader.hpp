// SPDX-License-Identifier: Apache-2.0
//
// loader: finds backends, vets them, and keeps the reason when one does not load.
//
// Searched: the instance's own path, the environment's QUIRE_PLUGIN_PATH, quire/backends-0 beside
// libquire, and the compiled-in directory. The first backend of a name wins.
//
// A backend is asked for its devices only when a caller needs to know: a driver may take a tenth of
// a second to look, and opening a device of one backend does not depend on the others.
//
// Threads: the caller holds the instance's mutex.
#pragma once

#include "abi/objects.hpp"

namespace quire::abi {

void discover(quire_instance *instance, const char *plugin_path);

// Counts the backend's devices on the first call. False: this call failed to, and the backend is
// refused from now on.
bool probe(Backend *backend);

// Loads one file and appends it to the list, whether it is usable or not.
Backend *load_backend(quire_instance *instance, const char *path);

}  // namespace quire::abi
