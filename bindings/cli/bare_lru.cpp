// SPDX-License-Identifier: Apache-2.0

#include "bare_lru.hpp"

#include <ctime>

#include "lru.hpp"

namespace quire::cli {

double process_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double run_bare_lru(const Trace &trace, uint32_t blocks, uint32_t block_tokens,
                    uint64_t *hit_tokens) {
    Lru lru(blocks - 1);
    *hit_tokens = 0;
    uint64_t unique = uint64_t{1} << 40;
    double begin = process_seconds();
    for (const Request &request : trace.requests) {
        uint32_t full = request.input_length / block_tokens;
        uint32_t findable = (request.input_length - 1) / block_tokens;
        bool matching = true;
        for (uint32_t b = 0; b < full; ++b) {
            uint32_t position = b * block_tokens;
            uint64_t name = uint64_t{request.hash_ids[position / kTokensPerHash]} * kTokensPerHash +
                            position % kTokensPerHash;
            matching = matching && b < findable && lru.find(name);
            if (matching) {
                *hit_tokens += block_tokens;
            } else {
                lru.add(name);
            }
        }
        uint32_t total = (request.input_length + request.output_length - 1) / block_tokens;
        for (uint32_t b = full; b < total; ++b) lru.add(unique++);
        lru.release(Lru::Oldest::last);
    }
    return process_seconds() - begin;
}

}  // namespace quire::cli
