// SPDX-License-Identifier: Apache-2.0
//
// engine: validates an engine's own VkDevice and VkQueues, as described in quire/vulkan.h.
//
// Vulkan cannot report what a VkDevice was created with: its features and families are trusted, and
// everything that follows from them is checked. What a handle points to cannot be validated either.
//
// Threads: any.
#pragma once

#include "context.hpp"
#include "quire/vulkan.h"

namespace quire::vulkan {

// Opens the context on it. Call once.
quire_status borrow_device(const quire_vulkan_device &given, Context *context, quire_error *error);

// The VkQueue named by a native object, of the context's family.
quire_status find_native_queue(const Context &context, const quire_native &native, VkQueue *queue,
                               quire_error *error);

// The semaphore of a native object, for a submission to wait for or signal.
quire_status find_native_semaphore(const Context &context, const quire_native *native,
                                   VkSemaphoreSubmitInfo *info, quire_error *error);

}  // namespace quire::vulkan
