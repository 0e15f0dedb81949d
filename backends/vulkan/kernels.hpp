// SPDX-License-Identifier: Apache-2.0
//
// kernels: the compute pipelines of a device, made when they are first wanted.
//
// A kernel is a SPIR-V module of kernels/ and its specialisation constants. What a constant leaves
// open (kAnyShape) the kernel reads from its arguments: so one pipeline serves every shape where
// compiling is dear and running is not the point (a processor that poses as a GPU), and each shape
// gets its own on a GPU. Both give the same results.
//
// Threads: any.
#pragma once

#include <volk.h>

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "context.hpp"
#include "quire/plugin/backend.h"

namespace quire::vulkan {

enum class KernelName : uint32_t {
    kv_write,
    move,
    rows,
    attend,
    attend_fragments,        // with an extension's matrices; a build may not have it
    attend_fragments_plain,  // without
    reduce,
    merge,
    count
};

constexpr uint32_t kAnyShape = UINT32_MAX;

// In the order of the constants' ids, from 1 on; 0 is whether addresses may be divided.
struct KernelShape {
    uint32_t k_dim = kAnyShape;
    uint32_t v_dim = kAnyShape;
    uint32_t k_format = kAnyShape;
    uint32_t v_format = kAnyShape;
    uint32_t group = kAnyShape;  // query heads of a KV head
    uint32_t block_tokens = kAnyShape;
    uint32_t options = kAnyShape;
    uint32_t q_format = kAnyShape;

    auto operator<=>(const KernelShape &) const = default;
};

struct KernelKey {
    KernelName name;
    bool is_divided;  // an address of the call may be one of a divided allocation
    KernelShape shape;

    auto operator<=>(const KernelKey &) const = default;
};

struct Kernel {
    VkPipeline pipeline;
    VkPipelineLayout layout;
};

class Kernels {
 public:
    quire_status open(Context &context, quire_error *error);
    void close();

    quire_status get(const KernelKey &key, Kernel *kernel, quire_error *error);
    // Is each shape to have pipelines of its own?
    bool is_specialising() const { return specialises_; }

 private:
    VkResult load(KernelName name);
    VkResult make(const KernelKey &key, VkPipeline *pipeline);
    void keep_cache();

    static constexpr size_t kNames = static_cast<size_t>(KernelName::count);

    std::mutex mutex_;
    Context *context_ = nullptr;
    bool specialises_ = false;
    VkPipelineLayout layout_ = VK_NULL_HANDLE;
    VkPipelineCache cache_ = VK_NULL_HANDLE;
    std::string cache_path_;
    std::array<VkShaderModule, kNames> modules_{};
    std::map<KernelKey, VkPipeline> pipelines_;
};

}  // namespace quire::vulkan
