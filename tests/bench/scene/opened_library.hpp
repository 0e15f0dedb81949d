// SPDX-License-Identifier: Apache-2.0
//
// opened_library: a library that the process has already, whoever opened it and of which version.
#pragma once

#include <string>

namespace quire::bench {

// stem     what its file's name begins with: "libcuda.so".
// Returns  the file; "": the process has none.
std::string path_of_opened(const char *stem);
// Returns  as dlopen; NULL: the process has none.
void *find_opened(const char *stem);

}  // namespace quire::bench
