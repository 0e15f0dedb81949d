// SPDX-License-Identifier: Apache-2.0
//
// remember: copies of a call's data that a fault keeps, and the plan's desc, which a call lacks.
//
// Threads: any; a lock guards each.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "quire/plugin/backend.h"

namespace quire::wrong {

// Data that a fault had to copy to change it. Never freed: a queue may still read it.
template <typename T>
T *kept(std::vector<T> values) {
    static std::mutex mutex;
    static std::vector<std::unique_ptr<std::vector<T>>> all;
    std::lock_guard lock(mutex);
    all.push_back(std::make_unique<std::vector<T>>(std::move(values)));
    return all.back()->data();
}

template <typename T>
T *host(uint64_t address) {
    return reinterpret_cast<T *>(address);
}

inline uint64_t address_of(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

inline uint32_t bytes_of(uint32_t dtype) { return dtype == QUIRE_DTYPE_F32 ? 4 : 2; }

// A modifiable copy of `count` values, which a queue may read.
template <typename T>
T *copy_of(uint64_t address, size_t count) {
    const T *values = host<const T>(address);
    return kept(std::vector<T>(values, values + count));
}

// plan_create() of the correct backend; keeps the desc.
quire_status remember_plan(quire_be_device *device, const quire_be_plan_desc *desc,
                           quire_be_plan **out, quire_error *error);
// As remember_plan(), but makes the plan from `changed`.
quire_status remember_changed_plan(quire_be_device *device, const quire_be_plan_desc *desc,
                                   const quire_be_plan_desc *changed, quire_be_plan **out,
                                   quire_error *error);
// The original desc. Pointers in it are dangling.
quire_be_plan_desc desc_of(quire_be_plan *plan);

}  // namespace quire::wrong
