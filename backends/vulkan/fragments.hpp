// SPDX-License-Identifier: Apache-2.0
//
// fragments: with which kernel attention calls of f16 multiply matrices, if with any.
//
// kernels/attend_fragments.comp is compiled with the cooperative matrices that the build's glslc
// knows: those of VK_KHR_cooperative_matrix, or those of VK_NV_cooperative_matrix before it. A
// device that has the same extension, products of 16 by 16 f16 matrices with f32 sums in a
// subgroup, and workgroups of 64 made of whole subgroups, runs it for the calls that it fits. The
// plain spelling of the same kernel runs anywhere and is for tests.
//
// What is chosen depends on the device and the call's shape alone, so the bits of a row do not
// depend on the batch.
//
// Environment  QUIRE_VULKAN_MATRIX  0: no cooperative matrices; emulate: the plain spelling.
//
// Threads: any; nothing is kept.
#pragma once

#include <volk.h>

#include <cstdint>
#include <vector>

#include "loader.hpp"

namespace quire::vulkan {

// Which of the two extensions. A build has one of them or none.
enum class MatrixExtension : uint32_t { none, khr, nv };

// A product that a device offers; types are VkComponentType's numbers, which both extensions share.
struct MatrixProduct {
    uint32_t m, n, k;
    uint32_t a, b, c, result;
    uint32_t scope;
};

// What a device has of all this.
struct MatrixOffer {
    MatrixExtension extension = MatrixExtension::none;  // of those that the build may use
    bool has_features = false;    // cooperativeMatrix, shaderFloat16, vulkanMemoryModel
    bool has_subgroups = false;   // subgroupSizeControl, computeFullSubgroups, in compute kernels
    bool has_stage = false;       // cooperative matrices in compute kernels
    uint32_t subgroup_lanes = 0;  // what a kernel gets that does not ask
    uint32_t least_lanes = 0;     // what it may ask for
    uint32_t most_lanes = 0;
    uint64_t shared_bytes = 0;  // of a workgroup
    std::vector<MatrixProduct> products;
};

enum class FragmentKind { none, cooperative, plain };

struct FragmentChoice {
    FragmentKind kind = FragmentKind::none;
    uint32_t subgroup_lanes = 0;  // to be asked for, where the kind is cooperative
};

// The extension that this build's kernel is for, and its name.
MatrixExtension built_extension();
const char *name_of(MatrixExtension extension);

// What `handle` has of that extension. REQUIRES: the device is one of Vulkan 1.3 and has it.
MatrixOffer find_matrix_offer(const Instance &vulkan, VkPhysicalDevice handle,
                              MatrixExtension extension);

// `asked` is QUIRE_VULKAN_MATRIX or NULL, `built` what the build has.
FragmentChoice choose_fragments(const MatrixOffer &offer, MatrixExtension built, const char *asked);

// What a VkDevice must be made with to run the cooperative kernel: one more link of its chain.
struct MatrixFeatures {
    MatrixFeatures(MatrixExtension extension, void *next);

    VkStructureType type;
    void *next;
    VkBool32 matrix = VK_TRUE;
    VkBool32 robust = VK_FALSE;
};

// Of an attention call, by the types and sizes that its plan was made for.
struct FragmentShape {
    uint32_t q_format, k_format, v_format;  // shared/kernel_enums.hpp
    uint32_t k_dim, v_dim;
};
bool fits_fragments(const FragmentShape &shape);

}  // namespace quire::vulkan
