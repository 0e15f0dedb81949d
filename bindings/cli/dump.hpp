// SPDX-License-Identifier: Apache-2.0
//
// dump: what a dump of a cache holds (docs/dump.md): as tables, as JSON, or where two differ.
#pragma once

#include <string>
#include <vector>

#include "library.hpp"

namespace quire::cli {

struct DumpOptions {
    std::vector<std::string> files;
    bool diff = false;
    bool json = false;
};

void dump(const DumpOptions &options);

// Writes a cache's dump, without tokens.
void write_dump(quire_cache *cache, const std::string &path);

}  // namespace quire::cli
