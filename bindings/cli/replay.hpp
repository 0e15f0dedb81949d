// SPDX-License-Identifier: Apache-2.0
//
// replay: drives the real manager through a trace, in a bookkeeping-only cache, one request after
// another and one step per decoded token.
#pragma once

#include <cstdint>
#include <string>

namespace quire::cli {

struct ReplayOptions {
    std::string trace;
    uint32_t blocks = 0;
    uint32_t block_tokens = 16;
    std::string policy = "lru";
    uint64_t limit = 0;
    bool baseline = false;
    bool json = false;
};

void replay(const ReplayOptions &options);

}  // namespace quire::cli
