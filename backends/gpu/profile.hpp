// SPDX-License-Identifier: Apache-2.0
//
// profile: a device's borders between copies by the kernel and by the driver, measured when the
// process opens it first.
//
// On the device's own urgent stream 1 MiB is copied each way, to the device, from it and within it,
// by one launch and by the driver in copies of 16 to 512 KiB; the driver's events say how long it
// took, what giving the copies to the stream takes included. Of up to three rounds the shortest
// time counts; none begins later than 5 ms after the first. Below 16 KiB all copies are the
// kernel's, for nothing smaller is measured.
//
// Environment (not believed in a privileged process)
//   QUIRE_GPU_DMA_BYTES   the border of all ways, and nothing is measured: 0 gives the driver all
//                         that is not between memories of the host, 2^64 - 1 nothing
//
// The memory that was copied stays until the device is closed: freeing it would wait for all that
// runs on the GPU, an engine's streams too, which may wait for the thread that opens.
//
// Threads: any; one device at a time is measured, and who opens it meanwhile waits.
#pragma once

#include "border.hpp"
#include "driver.hpp"

namespace quire::gpu {

struct ProfileMemory {
    uint64_t address = 0;  // of the device
    void *host = nullptr;
    uint64_t host_address = 0;

    // REQUIRES: the context is current, and nothing that runs uses it.
    void close(const Driver &driver);
};

// Where measuring fails for a while, as when no memory is left, the borders are guessed, and the
// next who opens the device measures.
//
// Errors   QUIRE_E_ARG           the environment names no border.
//          QUIRE_E_DEVICE_LOST   the driver said so.
// REQUIRES: the device's context is current, its service queue is made, and nobody knows it yet.
quire_status find_borders(quire_be_device *device, Borders *out, quire_error *error);

}  // namespace quire::gpu
