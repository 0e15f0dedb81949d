// SPDX-License-Identifier: Apache-2.0

#include "kernels.hpp"

#include "context.hpp"

namespace quire::gpu {

namespace {

// In the order of KernelName; a QUIRE_KERNEL of kernels/ each, with its block size.
struct Known {
    const char *name;
    uint32_t threads;
};
constexpr Known kKnown[kKernelCount] = {
    {"quire_attend", 64},      {"quire_attend_fragments", 128},
    {"quire_copy", 128},       {"quire_fence_passed", 1},
    {"quire_fence_signal", 1}, {"quire_fence_wake", 1},
    {"quire_kv_write", 64},    {"quire_merge", 64},
    {"quire_move", 64},        {"quire_reduce", 64},
    {"quire_rows", 64},
};

}  // namespace

quire_status Kernels::open(const Driver &driver, quire_error *error) {
    driver_ = &driver;
    if (Result result = driver.module_load(kCodeObject, &module_)) {
        module_ = nullptr;
        return fail_driver(driver, result, "to load the kernels", error);
    }
    for (size_t i = 0; i < kKernelCount; ++i) {
        kernels_[i].threads = kKnown[i].threads;
        if (Result result =
                driver.module_function(module_, kKnown[i].name, &kernels_[i].function)) {
            return fail_driver(driver, result, kKnown[i].name, error);
        }
    }
    return QUIRE_OK;
}

void Kernels::close() {
    if (module_ != nullptr) driver_->module_unload(module_);
    module_ = nullptr;
}

}  // namespace quire::gpu
