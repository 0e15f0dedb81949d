// SPDX-License-Identifier: Apache-2.0
//
// dump: shows a dump of a cache (docs/dump.md) as tables or as JSON, or where two dumps differ.
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
