// SPDX-License-Identifier: Apache-2.0

#include "fma_rate.hpp"

#include <algorithm>

#include "kernels.hpp"
#include "workers.hpp"

namespace quire::bench {

double fma_gflops(uint32_t threads) {
    // About 20 ms: long compared with starting a thread and with a core reaching its clock rate.
    constexpr uint64_t kLength = 8'000'000;
    constexpr int kTries = 5;
    double operations = 2.0 * kLength * kFmaChains * kernels().lanes * threads;
    double best = 0;
    for (int i = 0; i < kTries; ++i) {
        double seconds = seconds_together(threads, [](uint32_t) {
            keep(static_cast<uint64_t>(kernels().multiply_add(kLength)));
        });
        best = std::max(best, operations / seconds / 1e9);
    }
    return best;
}

}  // namespace quire::bench
