// SPDX-License-Identifier: Apache-2.0
//
// opened_library: finds a library already loaded in the process, whoever opened it, in any version.
#pragma once

#include <string>

namespace quire::bench {

// stem     the prefix of its file's name: "libcuda.so".
// Returns  the file; "" if it is not loaded.
std::string path_of_opened(const char *stem);
// Returns  the handle, as dlopen; NULL if it is not loaded.
void *find_opened(const char *stem);

}  // namespace quire::bench
