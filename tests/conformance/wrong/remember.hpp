// SPDX-License-Identifier: Apache-2.0
//
// remember: what a fault keeps of a call, and what it knows of a plan that a call does not say.
//
// Threads: any; both are behind a lock.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "quire/plugin/backend.h"

namespace quire::wrong {

// What a fault had to copy to change it. Never freed: a queue may still read it.
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

// A copy of `count` values that a queue may read, to be changed.
template <typename T>
T *copy_of(uint64_t address, size_t count) {
    const T *values = host<const T>(address);
    return kept(std::vector<T>(values, values + count));
}

// plan_create() of the right one, and its desc is kept.
quire_status remember_plan(quire_be_device *device, const quire_be_plan_desc *desc,
                           quire_be_plan **out, quire_error *error);
// As remember_plan(), of a plan that is made from `changed`.
quire_status remember_changed_plan(quire_be_device *device, const quire_be_plan_desc *desc,
                                   const quire_be_plan_desc *changed, quire_be_plan **out,
                                   quire_error *error);
// The desc that was given. Pointers in it are dead.
quire_be_plan_desc desc_of(quire_be_plan *plan);

}  // namespace quire::wrong
