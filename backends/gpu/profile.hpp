// SPDX-License-Identifier: Apache-2.0
//
// profile: a device's borders between kernel and driver copies, measured when the process first
// opens the device.
//
// On the device's own urgent stream 1 MiB is copied to the device, from it and within it, by one
// launch and by the driver in copies of 16 to 512 KiB. The driver's events measure how long each
// takes, including submission. The shortest of up to three rounds counts; no round begins later
// than 5 ms after the first. Copies below 16 KiB always use the kernel, because nothing smaller is
// measured.
//
// Environment (ignored in a privileged process)
//   QUIRE_GPU_DMA_BYTES   the border of all ways; nothing is measured then. 0 gives the driver all
//                         copies except host-to-host ones, 2^64 - 1 none
//
// The buffers stay allocated until the device is closed: freeing them would wait for everything
// that runs on the GPU, including an engine's streams, which may wait for the thread that opens.
//
// Threads: any; one device at a time is measured, and other openers wait meanwhile.
#pragma once

#include "border.hpp"
#include "driver.hpp"

namespace quire::gpu {

struct ProfileMemory {
    uint64_t address = 0;  // in device memory
    void *host = nullptr;
    uint64_t host_address = 0;

    // REQUIRES: the context is current, and no running work uses it.
    void close(const Driver &driver);
};

// If measuring fails for a transient reason, such as lack of memory, the borders are guessed, and
// the next opener of the device measures.
//
// Errors   QUIRE_E_ARG           the environment variable is no valid border.
//          QUIRE_E_DEVICE_LOST   the driver reported it.
// REQUIRES: the device's context is current, its service queue exists, and the device is not yet
// shared.
quire_status find_borders(quire_be_device *device, Borders *out, quire_error *error);

}  // namespace quire::gpu
