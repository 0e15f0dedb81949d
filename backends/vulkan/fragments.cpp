// SPDX-License-Identifier: Apache-2.0

#include "fragments.hpp"

#include <algorithm>
#include <cstring>

#include "shared/kernel_enums.hpp"

namespace quire::vulkan {

namespace {

// As in kernels/attend_fragments.comp: its workgroups, their shared memory, and its fragments.
constexpr uint32_t kLanesOfGroup = 64;
constexpr uint64_t kFragmentSharedBytes = 28 << 10;
constexpr uint32_t kFragmentSize = 16;
constexpr uint32_t kMostDim = 256;

constexpr uint32_t kFloat16 = VK_COMPONENT_TYPE_FLOAT16_NV;
constexpr uint32_t kFloat32 = VK_COMPONENT_TYPE_FLOAT32_NV;
constexpr uint32_t kSubgroup = VK_SCOPE_SUBGROUP_NV;

// VK_KHR_cooperative_matrix is newer than the headers of Debian 12. Its structs have the members of
// the other extension's, except for one more between the types and the scope.
constexpr auto kFeaturesKhr = static_cast<VkStructureType>(1000506000);
constexpr auto kProductKhr = static_cast<VkStructureType>(1000506001);
constexpr auto kPropertiesKhr = static_cast<VkStructureType>(1000506002);

struct ProductKhr {
    VkStructureType type = kProductKhr;
    void *next = nullptr;
    uint32_t m, n, k;
    uint32_t a, b, c, result;
    VkBool32 saturates;
    uint32_t scope;
};
using GetProductsKhr = VkResult(VKAPI_PTR *)(VkPhysicalDevice, uint32_t *, ProductKhr *);

struct Properties {
    VkStructureType type;
    void *next = nullptr;
    VkShaderStageFlags stages = 0;
};
static_assert(sizeof(Properties) == sizeof(VkPhysicalDeviceCooperativeMatrixPropertiesNV));
static_assert(sizeof(MatrixFeatures) == sizeof(VkPhysicalDeviceCooperativeMatrixFeaturesNV));

std::vector<MatrixProduct> products_khr(const Instance &vulkan, VkPhysicalDevice handle) {
    auto get = reinterpret_cast<GetProductsKhr>(
        vulkan.find("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
    uint32_t count = 0;
    if (get == nullptr || get(handle, &count, nullptr) != VK_SUCCESS) return {};
    std::vector<ProductKhr> all(count);
    if (get(handle, &count, all.data()) < 0) return {};
    std::vector<MatrixProduct> products;
    for (const ProductKhr &one : all) {
        if (one.saturates != VK_FALSE) continue;
        products.push_back({one.m, one.n, one.k, one.a, one.b, one.c, one.result, one.scope});
    }
    return products;
}

std::vector<MatrixProduct> products_nv(const Instance &vulkan, VkPhysicalDevice handle) {
    auto get = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV>(
        vulkan.find("vkGetPhysicalDeviceCooperativeMatrixPropertiesNV"));
    uint32_t count = 0;
    if (get == nullptr || get(handle, &count, nullptr) != VK_SUCCESS) return {};
    VkCooperativeMatrixPropertiesNV none{};
    none.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV;
    std::vector<VkCooperativeMatrixPropertiesNV> all(count, none);
    if (get(handle, &count, all.data()) < 0) return {};
    std::vector<MatrixProduct> products;
    for (const auto &one : all) {
        products.push_back({one.MSize, one.NSize, one.KSize, static_cast<uint32_t>(one.AType),
                            static_cast<uint32_t>(one.BType), static_cast<uint32_t>(one.CType),
                            static_cast<uint32_t>(one.DType), static_cast<uint32_t>(one.scope)});
    }
    return products;
}

bool has_product(const MatrixOffer &offer) {
    return std::any_of(offer.products.begin(), offer.products.end(), [](const MatrixProduct &one) {
        return one.m == kFragmentSize && one.n == kFragmentSize && one.k == kFragmentSize &&
               one.a == kFloat16 && one.b == kFloat16 && one.c == kFloat32 &&
               one.result == kFloat32 && one.scope == kSubgroup;
    });
}

bool is(const char *asked, const char *value) {
    return asked != nullptr && std::strcmp(asked, value) == 0;
}

}  // namespace

MatrixExtension built_extension() {
#if defined(QUIRE_FRAGMENTS_KHR)
    return MatrixExtension::khr;
#elif defined(QUIRE_FRAGMENTS_NV)
    return MatrixExtension::nv;
#else
    return MatrixExtension::none;
#endif
}

const char *name_of(MatrixExtension extension) {
    switch (extension) {
        case MatrixExtension::khr:
            return "VK_KHR_cooperative_matrix";
        case MatrixExtension::nv:
            return VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME;
        default:
            return "";
    }
}

MatrixFeatures::MatrixFeatures(MatrixExtension extension, void *behind)
    : type(extension == MatrixExtension::khr
               ? kFeaturesKhr
               : VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV),
      next(behind) {}

MatrixOffer find_matrix_offer(const Instance &vulkan, VkPhysicalDevice handle,
                              MatrixExtension extension) {
    bool is_khr = extension == MatrixExtension::khr;
    MatrixOffer offer;
    offer.extension = extension;
    VkPhysicalDeviceVulkan13Features v13{};
    v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    VkPhysicalDeviceVulkan12Features v12{};
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    v12.pNext = &v13;
    MatrixFeatures matrix(extension, &v12);
    matrix.matrix = VK_FALSE;
    VkPhysicalDeviceFeatures2 features{};
    features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    features.pNext = &matrix;
    vulkan.vkGetPhysicalDeviceFeatures2(handle, &features);
    offer.has_features = matrix.matrix && v12.shaderFloat16 && v12.vulkanMemoryModel;

    Properties stages{is_khr ? kPropertiesKhr
                             : VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_NV};
    VkPhysicalDeviceVulkan13Properties sizes{};
    sizes.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES;
    sizes.pNext = &stages;
    VkPhysicalDeviceVulkan11Properties v11{};
    v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES;
    v11.pNext = &sizes;
    VkPhysicalDeviceProperties2 all{};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    all.pNext = &v11;
    vulkan.vkGetPhysicalDeviceProperties2(handle, &all);
    constexpr VkShaderStageFlags kCompute = VK_SHADER_STAGE_COMPUTE_BIT;
    offer.has_subgroups = v13.subgroupSizeControl && v13.computeFullSubgroups &&
                          (sizes.requiredSubgroupSizeStages & kCompute) != 0;
    offer.has_stage = (stages.stages & kCompute) != 0;
    offer.subgroup_lanes = v11.subgroupSize;
    offer.least_lanes = sizes.minSubgroupSize;
    offer.most_lanes = sizes.maxSubgroupSize;
    offer.products = is_khr ? products_khr(vulkan, handle) : products_nv(vulkan, handle);
    return offer;
}

FragmentChoice choose_fragments(const MatrixOffer &offer, MatrixExtension built,
                                const char *asked) {
    if (is(asked, "0") || offer.shared_bytes < kFragmentSharedBytes) return {};
    if (is(asked, "emulate")) return {FragmentKind::plain, 0};
    bool is_offered = built != MatrixExtension::none && offer.extension == built &&
                      offer.has_features && offer.has_stage && has_product(offer);
    // Whole subgroups, of the size that a kernel gets by default.
    bool has_size = offer.has_subgroups && offer.subgroup_lanes != 0 &&
                    offer.subgroup_lanes >= offer.least_lanes &&
                    offer.subgroup_lanes <= offer.most_lanes &&
                    kLanesOfGroup % offer.subgroup_lanes == 0;
    if (!is_offered || !has_size) return {};
    return {FragmentKind::cooperative, offer.subgroup_lanes};
}

bool fits_fragments(const FragmentShape &shape) {
    auto fits = [](uint32_t dim) { return dim % kFragmentSize == 0 && dim <= kMostDim; };
    return shape.q_format == kF16 && shape.k_format == kF16 && shape.v_format == kF16 &&
           fits(shape.k_dim) && fits(shape.v_dim);
}

}  // namespace quire::vulkan
