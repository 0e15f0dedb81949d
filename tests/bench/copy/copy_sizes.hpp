// SPDX-License-Identifier: Apache-2.0
//
// copy_sizes: blocks of 16 KiB to 2 MiB, copied all by the kernel, all by the driver, and as the
// library chooses for the device. Only the backends of CUDA and HIP have that choice, by a border
// that QUIRE_GPU_DMA_BYTES names.
//
// Threads: none.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/scene/options.hpp"

namespace quire::bench {

struct SizeRates {
    const char *way;  // the case that copies this way
    uint64_t block_bytes;
    uint32_t blocks;
    double kernel_gbps, driver_gbps, chosen_gbps;
};

bool has_choice(const std::string &device);
// REQUIRES: the device has a choice.
std::vector<SizeRates> measure_sizes(const Options &options);
// The size from which on the driver was the faster one, of rates of one way by rising size; 0:
// none.
uint64_t driver_from_bytes(const std::vector<SizeRates> &rates, const char *way);

}  // namespace quire::bench
