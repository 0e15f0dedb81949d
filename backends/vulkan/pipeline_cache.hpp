// SPDX-License-Identifier: Apache-2.0
//
// pipeline_cache: keeps the driver's compiled kernels on disk from one process to the next.
//
// One file per device, driver and set of kernels, in the user's cache directory:
// $XDG_CACHE_HOME/quire or ~/.cache/quire, or the directory that QUIRE_VULKAN_CACHE names (0:
// none). A file that is incomplete or belongs to another device is ignored. So is anything that is
// not a regular file, because opening a pipe would block. The file is replaced when a device that
// compiled anything is closed. A failed read or write costs time and nothing else.
//
// Format, in this machine's byte order: magic u64, then size_bytes u64 and FNV-1a u64 of the rest;
// the rest is Vulkan's own data, which begins with VkPipelineCacheHeaderVersionOne.
//
// Threads: one.
#pragma once

#include <volk.h>

#include <string>
#include <vector>

#include "context.hpp"

namespace quire::vulkan {

// The file's path; empty: none.
std::string pipeline_cache_path(const Adapter &adapter);
// Vulkan's part of the file; empty: there is no usable one.
std::vector<char> read_pipeline_cache(const std::string &path, const Adapter &adapter);
void write_pipeline_cache(const std::string &path, const std::vector<char> &data);

}  // namespace quire::vulkan
