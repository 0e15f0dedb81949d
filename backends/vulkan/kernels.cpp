// SPDX-License-Identifier: Apache-2.0

#include "kernels.hpp"

#include <cstring>
#include <vector>

#include "kernels/spirv.hpp"
#include "loader.hpp"
#include "pipeline_cache.hpp"
#include "shared/checks.hpp"

namespace quire::vulkan {

namespace {

// A processor compiles slowly and gains little from it.
bool shall_specialise(const Adapter &adapter) {
    const char *given = environment("QUIRE_VULKAN_SPECIALISE");
    if (given != nullptr) return std::strcmp(given, "0") != 0;
    return adapter.properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU;
}

}  // namespace

quire_status Kernels::open(Context &context, quire_error *error) {
    context_ = &context;
    specialises_ = shall_specialise(context.adapter);
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushBytes};
    VkPipelineLayoutCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
    info.pushConstantRangeCount = 1;
    info.pPushConstantRanges = &range;
    VkResult result = context.vk.vkCreatePipelineLayout(context.handle, &info, nullptr, &layout_);
    if (result != VK_SUCCESS) return fail_vulkan(error, result, "a pipeline layout");
    cache_path_ = pipeline_cache_path(context.adapter);
    std::vector<char> kept = read_pipeline_cache(cache_path_, context.adapter);
    VkPipelineCacheCreateInfo cache{};
    cache.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
    cache.initialDataSize = kept.size();
    cache.pInitialData = kept.data();
    DriverThreads threads;
    result = context.vk.vkCreatePipelineCache(context.handle, &cache, nullptr, &cache_);
    if (result != VK_SUCCESS) return fail_vulkan(error, result, "a pipeline cache");
    return QUIRE_OK;
}

void Kernels::close() {
    if (context_ == nullptr) return;
    const VolkDeviceTable &vk = context_->vk;
    VkDevice device = context_->handle;
    if (!pipelines_.empty()) keep_cache();
    for (const auto &[key, pipeline] : pipelines_) {
        vk.vkDestroyPipeline(device, pipeline, nullptr);
    }
    for (VkShaderModule module : modules_) vk.vkDestroyShaderModule(device, module, nullptr);
    vk.vkDestroyPipelineCache(device, cache_, nullptr);
    vk.vkDestroyPipelineLayout(device, layout_, nullptr);
    pipelines_.clear();
    context_ = nullptr;
}

void Kernels::keep_cache() {
    const VolkDeviceTable &vk = context_->vk;
    size_t size_bytes = 0;
    if (vk.vkGetPipelineCacheData(context_->handle, cache_, &size_bytes, nullptr) != VK_SUCCESS) {
        return;
    }
    std::vector<char> data(size_bytes);
    VkResult result = vk.vkGetPipelineCacheData(context_->handle, cache_, &size_bytes, data.data());
    if (result != VK_SUCCESS || size_bytes != data.size()) return;
    if (data == read_pipeline_cache(cache_path_, context_->adapter)) return;
    write_pipeline_cache(cache_path_, data);
}

VkResult Kernels::load(KernelName name) {
    VkShaderModule &module = modules_[static_cast<size_t>(name)];
    if (module != VK_NULL_HANDLE) return VK_SUCCESS;
    Spirv code = spirv_of(name);
    VkShaderModuleCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    info.codeSize = code.size_bytes;
    info.pCode = code.words;
    return context_->vk.vkCreateShaderModule(context_->handle, &info, nullptr, &module);
}

VkResult Kernels::make(const KernelKey &key, VkPipeline *pipeline) {
    if (VkResult result = load(key.name)) return result;
    struct Constants {
        uint32_t is_divided;
        KernelShape shape;
    } constants = {key.is_divided ? 1u : 0u, key.shape};
    constexpr uint32_t kCount = sizeof constants / sizeof(uint32_t);
    VkSpecializationMapEntry entries[kCount];
    for (uint32_t i = 0; i < kCount; ++i) {
        entries[i] = {i, i * static_cast<uint32_t>(sizeof(uint32_t)), sizeof(uint32_t)};
    }
    VkSpecializationInfo special = {kCount, entries, sizeof constants, &constants};
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = modules_[static_cast<size_t>(key.name)];
    info.stage.pName = "main";
    info.stage.pSpecializationInfo = &special;
    info.layout = layout_;
    // Workgroups of whole subgroups, of a size that the device supports for its matrices.
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{};
    subgroup.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO;
    subgroup.requiredSubgroupSize = context_->fragments.subgroup_lanes;
    if (key.name == KernelName::attend_fragments) {
        info.stage.pNext = &subgroup;
        info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
    DriverThreads threads;
    return context_->vk.vkCreateComputePipelines(context_->handle, cache_, 1, &info, nullptr,
                                                 pipeline);
}

quire_status Kernels::get(const KernelKey &key, Kernel *kernel, quire_error *error) {
    std::lock_guard lock(mutex_);
    auto found = pipelines_.find(key);
    if (found == pipelines_.end()) {
        VkPipeline pipeline = VK_NULL_HANDLE;
        VkResult result = make(key, &pipeline);
        if (result != VK_SUCCESS) return fail_vulkan(error, result, "to compile a kernel");
        found = pipelines_.emplace(key, pipeline).first;
    }
    *kernel = {found->second, layout_};
    return QUIRE_OK;
}

}  // namespace quire::vulkan
