// SPDX-License-Identifier: Apache-2.0
//
// tier: `quire tier ls|check|gc`: what a store keeps, whether all of it can be read, and giving
// back the room of what was removed.
#pragma once

#include <string>
#include <vector>

namespace quire::cli {

struct TierOptions {
    std::string directory;  // of a disk store
    std::string store = "disk";
    std::vector<std::string> options;  // NAME=VALUE, besides the directory
    bool records = false;              // list each
    bool json = false;
};

void tier_ls(const TierOptions &options);
void tier_check(const TierOptions &options);
void tier_gc(const TierOptions &options);

}  // namespace quire::cli
