// SPDX-License-Identifier: Apache-2.0
//
// kernels: the compute pipelines of a device, created at first use.
//
// A kernel is a SPIR-V module of kernels/ and its specialisation constants. The kernel reads
// parameters without a constant (kAnyShape) from its arguments. So one pipeline serves every shape
// where compiling is expensive and speed does not matter (a processor that poses as a GPU), and
// each shape gets its own on a GPU. Both give the same results.
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
    attend_fragments,        // with an extension's matrices; some builds lack it
    attend_fragments_plain,  // without an extension
    reduce,
    merge,
    count
};

constexpr uint32_t kAnyShape = UINT32_MAX;

// In the order of the constants' ids, from 1 on; id 0 says whether addresses may be divided.
struct KernelShape {
    uint32_t k_dim = kAnyShape;
    uint32_t v_dim = kAnyShape;
    uint32_t k_format = kAnyShape;
    uint32_t v_format = kAnyShape;
    uint32_t heads_per_kv = kAnyShape;  // query heads per KV head
    uint32_t block_tokens = kAnyShape;
    uint32_t options = kAnyShape;
    uint32_t q_format = kAnyShape;

    auto operator<=>(const KernelShape &) const = default;
};

struct KernelKey {
    KernelName name;
    bool is_divided;  // an address of the call may belong to a divided allocation
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
    // True if each shape gets pipelines of its own.
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
