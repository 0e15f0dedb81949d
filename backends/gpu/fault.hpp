// SPDX-License-Identifier: Apache-2.0
//
// fault: describes in words what a kernel found wrong.
//
// Threads: any; stateless.
#pragma once

#include <cstddef>

#include "kernels/calls.hpp"

namespace quire::gpu {

constexpr char kFailedFence[] = "a fence that the queue waited for failed";

void describe_fault(const QueueRecord &record, char *text, size_t text_bytes);

}  // namespace quire::gpu
