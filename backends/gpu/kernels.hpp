// SPDX-License-Identifier: Apache-2.0
//
// kernels: the code object, loaded, and its functions.
//
// All functions are looked up when a device is opened: a driver that loads kernels only when they
// are first launched may have to wait for the whole device then, and a queue may be held back.
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
    kv_write,
    merge,
    move,
    reduce,
    rows
};
constexpr size_t kKernelCount = 12;

// Blocks of threads that a launch has in each of its two dimensions, on every device.
constexpr uint64_t kMostBlocks = 65535;

struct Kernel {
    Function function = nullptr;
    uint32_t threads = 0;
    uint32_t shared_bytes = 0;  // that a launch asks for, beside what its code declares
};

// Of what a launch of it is given.
size_t argument_bytes_of(KernelName name);
// Has a launch so many blocks?
quire_status check_blocks(uint64_t block_count, quire_error *error);

class Kernels {
 public:
    // REQUIRES, of both: the device's context is current.
    quire_status open(const Driver &driver, quire_error *error);
    void close();

    const Kernel &get(KernelName name) const { return kernels_[static_cast<size_t>(name)]; }

 private:
    const Driver *driver_ = nullptr;
    Module module_ = nullptr;
    Kernel kernels_[kKernelCount];
};

}  // namespace quire::gpu
