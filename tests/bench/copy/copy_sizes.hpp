// SPDX-License-Identifier: Apache-2.0
//
// copy_sizes: blocks of 16 KiB to 2 MiB, copied all by the kernel, all by the driver, and as the
// library chooses for the device. Only the CUDA and HIP backends have that choice, by a threshold
// set in QUIRE_GPU_DMA_BYTES.
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
// REQUIRES: the device has that choice.
std::vector<SizeRates> measure_sizes(const Options &options);
// Given the rates of one way by rising size, returns the size from which on the driver was faster;
// 0: none.
uint64_t driver_from_bytes(const std::vector<SizeRates> &rates, const char *way);

}  // namespace quire::bench
