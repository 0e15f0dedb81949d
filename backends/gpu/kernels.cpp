// SPDX-License-Identifier: Apache-2.0

#include "kernels.hpp"

#include <cinttypes>

#include "context.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

// In the order of KernelName; one per QUIRE_KERNEL of kernels/, with its block size.
struct Known {
    const char *name;
    uint32_t threads;  // of one team, if a block has several
    size_t argument_bytes;
    bool has_teams = false;
    uint32_t shared_bytes = 0;  // requested per launch, where code cannot declare it
};
constexpr Known kKnown[kKernelCount] = {
    {"quire_attend", 64, sizeof(AttendCall)},
    {"quire_attend_fragments", 128, sizeof(AttendCall)},
    {"quire_attend_prefill", 128, sizeof(AttendCall), true, kPrefillSharedBytes},
    {"quire_copy", 128, sizeof(PieceCall)},
    {"quire_fence_passed", 1, sizeof(FenceCall)},
    {"quire_fence_signal", 1, sizeof(FenceCall)},
    {"quire_fill", 128, sizeof(PieceCall)},
    {"quire_items", 64, sizeof(AttendCall)},
    {"quire_kv_write", 64, sizeof(KvWriteCall)},
    {"quire_kv_write_any", 64, sizeof(KvWriteCall)},
    {"quire_merge", 128, sizeof(MergeCall)},
    {"quire_move", 64, sizeof(MoveCall)},
    {"quire_reduce", 64, sizeof(AttendCall)},
    {"quire_rows", 64, sizeof(AttendCall)},
#define QUIRE_KNOWN(name, format, dim)                                        \
    {"quire_decode_" #name "_" #dim, 128, sizeof(AttendCall), false,          \
     kDecodeSharedBytes<format, dim>},                                        \
        {"quire_decode_wide_" #name "_" #dim, 128, sizeof(AttendCall), false, \
         kDecodeSharedBytes<format, dim>},
    QUIRE_DECODE_INSTANCES(QUIRE_KNOWN)
#undef QUIRE_KNOWN
};

}  // namespace

size_t argument_bytes_of(KernelName name) {
    return kKnown[static_cast<size_t>(name)].argument_bytes;
}

quire_status check_blocks(uint64_t block_count, quire_error *error) {
    constexpr uint64_t kMost = kMostBlocks * kMostBlocks;
    if (block_count <= kMost) return QUIRE_OK;
    return fail(error, QUIRE_E_UNSUPPORTED,
                "the call needs %" PRIu64 " thread blocks, and a launch has at most %" PRIu64
                "; split the call",
                block_count, kMost);
}

quire_status Kernels::open(const Driver &driver, quire_error *error) {
    driver_ = &driver;
    if (Result result = driver.module_load(kCodeObject, &module_)) {
        module_ = nullptr;
        return fail_driver(driver, result, "to load the kernels", error);
    }
    for (size_t i = 0; i < kKernelCount; ++i) {
        const Known &known = kKnown[i];
        Kernel &kernel = kernels_[i];
        kernel.threads = known.threads * (known.has_teams ? driver.teams_of_prefill : 1);
        if (Result result = driver.module_function(module_, known.name, &kernel.function)) {
            return fail_driver(driver, result, known.name, error);
        }
        if (driver.function_load != nullptr) {
            if (Result result = driver.function_load(kernel.function)) {
                return fail_driver(driver, result, known.name, error);
            }
        }
        if (known.shared_bytes == 0 || driver.function_allow_shared == nullptr) continue;
        kernel.shared_bytes = known.shared_bytes;
        if (Result result = driver.function_allow_shared(kernel.function, kernel.shared_bytes)) {
            return fail_driver(driver, result, "shared memory for a kernel", error);
        }
    }
    return QUIRE_OK;
}

void Kernels::close() {
    if (module_ != nullptr) driver_->module_unload(module_);
    module_ = nullptr;
}

}  // namespace quire::gpu
