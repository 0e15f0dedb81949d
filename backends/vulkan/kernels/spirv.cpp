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
#if defined(QUIRE_FRAGMENTS_KHR) || defined(QUIRE_FRAGMENTS_NV)
constexpr uint32_t kAttendFragments[] = {
#include "attend_fragments.spv.inc"
};
constexpr Spirv kFragments = {kAttendFragments, sizeof kAttendFragments};
#else
constexpr Spirv kFragments = {nullptr, 0};
#endif
constexpr uint32_t kAttendFragmentsPlain[] = {
#include "attend_fragments_plain.spv.inc"
};
constexpr uint32_t kReduce[] = {
#include "reduce.spv.inc"
};
constexpr uint32_t kMerge[] = {
#include "merge.spv.inc"
};

// In the order of KernelName.
constexpr Spirv kModules[] = {
    {kKvWrite, sizeof kKvWrite},
    {kMove, sizeof kMove},
    {kRows, sizeof kRows},
    {kAttend, sizeof kAttend},
    kFragments,
    {kAttendFragmentsPlain, sizeof kAttendFragmentsPlain},
    {kReduce, sizeof kReduce},
    {kMerge, sizeof kMerge},
};
static_assert(sizeof kModules / sizeof *kModules == static_cast<size_t>(KernelName::count));

}  // namespace

Spirv spirv_of(KernelName name) { return kModules[static_cast<size_t>(name)]; }

}  // namespace quire::vulkan
