// SPDX-License-Identifier: Apache-2.0
//
// engine: an engine's own VkDevice and VkQueues, as it describes them (quire/vulkan.h), checked.
//
// Vulkan cannot be asked what a VkDevice was made with: its features and families are believed, and
// whatever follows from them is looked at. What a handle points to cannot be known either.
//
// Threads: any.
#pragma once

#include "context.hpp"
#include "quire/vulkan.h"

namespace quire::vulkan {

// Opens the context on it. Once.
quire_status adopt_device(const quire_vulkan_device &given, Context *context, quire_error *error);

// The VkQueue that a native object names, one of the context's family.
quire_status find_native_queue(const Context &context, const quire_native &native, VkQueue *queue,
                               quire_error *error);

// What a submission waits for, or signals, of a native object.
quire_status find_native_semaphore(const Context &context, const quire_native *native,
                                   VkSemaphoreSubmitInfo *info, quire_error *error);

}  // namespace quire::vulkan
