// SPDX-License-Identifier: Apache-2.0
//
// fault: what a kernel found wrong, in words.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstddef>

#include "kernels/calls.hpp"

namespace quire::gpu {

constexpr char kFailedFence[] = "it waited for a fence that failed";

void describe_fault(const QueueRecord &record, char *text, size_t text_bytes);

}  // namespace quire::gpu
