// SPDX-License-Identifier: Apache-2.0
//
// fault: describes in words what a kernel found wrong.
//
// Threads: any; stateless.
#pragma once

#include <cstddef>

#include "queue.hpp"

namespace quire::vulkan {

void describe_fault(const FaultRecord &record, char *text, size_t text_bytes);

}  // namespace quire::vulkan
