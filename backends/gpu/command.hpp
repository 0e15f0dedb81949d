// SPDX-License-Identifier: Apache-2.0
//
// command: one thing submitted to a stream: a launch, a fill, driver copies, or a fence's
// signal or wait.
//
// A queue that waits for a value not yet signalled keeps its commands (queue.hpp), which then own
// copies of their arguments.
//
// Threads: none; the device's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels.hpp"

namespace quire::gpu {

struct Fence;

enum class CommandKind { launch, fill, copies, signal, wait };

struct Command {
    CommandKind kind = CommandKind::launch;
    unsigned char byte = 0;                // of a fill
    KernelName kernel = KernelName::copy;  // of a launch, as are the next two
    uint64_t group_count = 0;
    Head *arguments = nullptr;  // the caller's, or `kept`
    Copies copies{};            // likewise
    std::unique_ptr<uint64_t[]> kept;
    uint64_t dst = 0, size_bytes = 0;  // of a fill
    Fence *fence = nullptr;            // of a signal or a wait, as is the value
    uint64_t value = 0;

    // Copies what its pointers refer to. May throw.
    void keep();

 private:
    void keep_arguments();
    void keep_copies();
};

}  // namespace quire::gpu
