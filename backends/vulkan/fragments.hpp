// SPDX-License-Identifier: Apache-2.0
//
// fragments: which matrix kernel f16 attention calls use, if any.
//
// kernels/attend_fragments.comp is compiled with the cooperative matrices that the build's glslc
// supports: VK_KHR_cooperative_matrix, or its predecessor VK_NV_cooperative_matrix. A device with
// the same extension, products of 16 by 16 f16 matrices with f32 sums in a subgroup, and workgroups
// of 64 made of whole subgroups runs it for the calls that it fits. The plain spelling of the same
// kernel runs anywhere and is for tests.
//
// The choice depends only on the device and the call's shape, so the bits of a row do not depend on
// the batch.
//
// Environment  QUIRE_VULKAN_MATRIX  0: no cooperative matrices; emulate: the plain spelling.
//
// Threads: any; stateless.
#pragma once

#include <volk.h>

#include <cstdint>
#include <vector>

#include "loader.hpp"

namespace quire::vulkan {

// Which of the two extensions; a build has at most one.
enum class MatrixExtension : uint32_t { none, khr, nv };

// A product that a device offers; types are numbers of VkComponentType, which both extensions
// share.
struct MatrixProduct {
    uint32_t m, n, k;
    uint32_t a, b, c, result;
    uint32_t scope;
};

// What a device offers.
struct MatrixOffer {
    MatrixExtension extension = MatrixExtension::none;  // among those that the build may use
    bool has_features = false;    // cooperativeMatrix, shaderFloat16, vulkanMemoryModel
    bool has_subgroups = false;   // subgroupSizeControl, computeFullSubgroups, in compute kernels
    bool has_stage = false;       // cooperative matrices in compute kernels
    uint32_t subgroup_lanes = 0;  // what a kernel gets by default
    uint32_t least_lanes = 0;     // what it may request
    uint32_t most_lanes = 0;
    uint64_t shared_bytes = 0;  // per workgroup
    std::vector<MatrixProduct> products;
};

enum class FragmentKind { none, cooperative, plain };

struct FragmentChoice {
    FragmentKind kind = FragmentKind::none;
    uint32_t subgroup_lanes = 0;  // to request, if the kind is cooperative
};

// The extension that this build's kernel uses, and its name.
MatrixExtension built_extension();
const char *name_of(MatrixExtension extension);

// What `handle` offers of that extension. REQUIRES: the device supports Vulkan 1.3 and has it.
MatrixOffer find_matrix_offer(const Instance &vulkan, VkPhysicalDevice handle,
                              MatrixExtension extension);

// `asked` is the value of QUIRE_VULKAN_MATRIX or NULL, `built` the build's extension.
FragmentChoice choose_fragments(const MatrixOffer &offer, MatrixExtension built, const char *asked);

// The features that a VkDevice needs to run the cooperative kernel: one more link of its chain.
struct MatrixFeatures {
    MatrixFeatures(MatrixExtension extension, void *next);

    VkStructureType type;
    void *next;
    VkBool32 matrix = VK_TRUE;
    VkBool32 robust = VK_FALSE;
};

// The types and sizes of an attention call, as its plan was made for them.
struct FragmentShape {
    uint32_t q_format, k_format, v_format;  // shared/kernel_enums.hpp
    uint32_t k_dim, v_dim;
};
bool fits_fragments(const FragmentShape &shape);

}  // namespace quire::vulkan
