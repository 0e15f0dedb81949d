// SPDX-License-Identifier: Apache-2.0
//
// kernels: the loaded code object and its functions.
//
// All functions are looked up when a device is opened: a driver that loads kernels lazily at their
// first launch may have to wait for the whole device then, while a queue may be held.
//
// Threads: constant once loaded.
#pragma once

#include "driver.hpp"
#include "kernels/calls.hpp"

namespace quire::gpu {

enum class KernelName {
    attend,
    attend_fragments,
    attend_prefill,
    copy,
    fence_passed,
    fence_signal,
    fill,
    items,
    kv_write,
    kv_write_any,
    merge,
    move,
    reduce,
    rows,
#define QUIRE_NAME(name, format, dim) decode_##name##_##dim, decode_wide_##name##_##dim,
    QUIRE_DECODE_INSTANCES(QUIRE_NAME)
#undef QUIRE_NAME
};
#define QUIRE_TWO(name, format, dim) +2
constexpr size_t kKernelCount =
    static_cast<size_t>(KernelName::rows) + 1 QUIRE_DECODE_INSTANCES(QUIRE_TWO);
#undef QUIRE_TWO

// Limit on the thread blocks of a launch in each of its two dimensions, on every device.
constexpr uint64_t kMostBlocks = 65535;

struct Kernel {
    Function function = nullptr;
    uint32_t threads = 0;
    uint32_t shared_bytes = 0;  // requested per launch, in addition to what the code declares
};

// Size of the arguments of a launch.
size_t argument_bytes_of(KernelName name);
// Checks that the grid fits the launch limit.
quire_status check_blocks(uint64_t block_count, quire_error *error);

class Kernels {
 public:
    // REQUIRES, for both: the device's context is current.
    quire_status open(const Driver &driver, quire_error *error);
    void close();

    const Kernel &get(KernelName name) const { return kernels_[static_cast<size_t>(name)]; }

 private:
    const Driver *driver_ = nullptr;
    Module module_ = nullptr;
    Kernel kernels_[kKernelCount];
};

}  // namespace quire::gpu
