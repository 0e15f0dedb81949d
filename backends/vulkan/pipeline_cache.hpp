// SPDX-License-Identifier: Apache-2.0
//
// pipeline_cache: what the driver made of kernels, kept on disk from one process to the next.
//
// One file for each device, driver and set of kernels, in the user's cache directory:
// $XDG_CACHE_HOME/quire or ~/.cache/quire, or the directory that QUIRE_VULKAN_CACHE names (0:
// none). A file that is not whole, or of another device, is passed over, and so is what is no file:
// a pipe would keep whoever opens it. It is replaced when a device is closed that has compiled
// anything. What cannot be read or written costs time and nothing else.
//
// Format, in this machine's byte order: magic u64, size_bytes u64 and FNV-1a u64 of what follows,
// and what follows is Vulkan's own, which begins with VkPipelineCacheHeaderVersionOne.
//
// Threads: one.
#pragma once

#include <volk.h>

#include <string>
#include <vector>

#include "context.hpp"

namespace quire::vulkan {

// Where the file is; empty: nowhere.
std::string pipeline_cache_path(const Adapter &adapter);
// Vulkan's part of the file; empty: there is none that can be used.
std::vector<char> read_pipeline_cache(const std::string &path, const Adapter &adapter);
void write_pipeline_cache(const std::string &path, const std::vector<char> &data);

}  // namespace quire::vulkan
