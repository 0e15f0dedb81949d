// SPDX-License-Identifier: Apache-2.0

#include "table_read.hpp"

#include <algorithm>
#include <string>

#include "failure.hpp"
#include "workers.hpp"

namespace quire::bench {

std::vector<Run> layer_runs(const quire_pool_info &pool, const std::vector<int32_t> &blocks,
                            uint32_t layer, uint64_t block_bytes) {
    // From the first byte of a layer's K in a block to the next layer's: K, V and any scales. If
    // each layer's blocks are contiguous in the pool, to the next block's.
    int64_t piece =
        pool.layer_count > 1 ? std::min(pool.layer_stride, pool.block_stride) : pool.block_stride;
    bool is_split = pool.v_offset < 0 || pool.v_offset >= piece;  // V lies elsewhere
    uint64_t read = static_cast<uint64_t>(piece) * (is_split ? 2 : 1);
    // Beyond them a block holds only padding that aligns its parts.
    if (read < block_bytes || read > block_bytes + block_bytes / 8) {
        throw Failure("a layer takes " + std::to_string(read) + " bytes of a block for " +
                      std::to_string(block_bytes) +
                      " of K and V: the table read needs a dense layout");
    }
    std::vector<Run> runs;
    for (int32_t block : blocks) {
        const auto *k = reinterpret_cast<const std::byte *>(pool.address) +
                        block * pool.block_stride + layer * pool.layer_stride;
        runs.push_back({k, static_cast<uint64_t>(piece)});
        if (is_split) runs.push_back({k + pool.v_offset, static_cast<uint64_t>(piece)});
    }
    return runs;
}

double seconds_to_read(const std::vector<Run> &runs, uint32_t threads) {
    return seconds_together(threads, [&](uint32_t worker) {
        Share share = share_of(runs.size(), worker, threads);
        keep(kernels().read_runs(runs.data() + share.begin, share.end - share.begin));
    });
}

}  // namespace quire::bench
