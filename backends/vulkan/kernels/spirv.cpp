// SPDX-License-Identifier: Apache-2.0

#include "kernels/spirv.hpp"

namespace quire::vulkan {

namespace {

constexpr uint32_t kKvWrite[] = {
#include "kv_write.spv.inc"
};
constexpr uint32_t kMove[] = {
#include "move.spv.inc"
};
constexpr uint32_t kRows[] = {
#include "rows.spv.inc"
};
constexpr uint32_t kAttend[] = {
#include "attend.spv.inc"
};
constexpr uint32_t kReduce[] = {
#include "reduce.spv.inc"
};
constexpr uint32_t kMerge[] = {
#include "merge.spv.inc"
};

// In the order of KernelName.
constexpr Spirv kModules[] = {
    {kKvWrite, sizeof kKvWrite}, {kMove, sizeof kMove},     {kRows, sizeof kRows},
    {kAttend, sizeof kAttend},   {kReduce, sizeof kReduce}, {kMerge, sizeof kMerge},
};
static_assert(sizeof kModules / sizeof *kModules == static_cast<size_t>(KernelName::count));

}  // namespace

Spirv spirv_of(KernelName name) { return kModules[static_cast<size_t>(name)]; }

}  // namespace quire::vulkan
