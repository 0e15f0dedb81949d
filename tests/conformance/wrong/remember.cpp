// SPDX-License-Identifier: Apache-2.0

#include "remember.hpp"

#include <map>

#include "faults.hpp"

namespace quire::wrong {

namespace {

std::mutex plans_mutex;
std::map<quire_be_plan *, quire_be_plan_desc> plans;

}  // namespace

quire_status remember_changed_plan(quire_be_device *device, const quire_be_plan_desc *desc,
                                   const quire_be_plan_desc *changed, quire_be_plan **out,
                                   quire_error *error) {
    quire_status status = right().plan_create(device, changed, out, error);
    if (status != QUIRE_OK) return status;
    std::lock_guard lock(plans_mutex);
    plans[*out] = *desc;
    return status;
}

quire_status remember_plan(quire_be_device *device, const quire_be_plan_desc *desc,
                           quire_be_plan **out, quire_error *error) {
    return remember_changed_plan(device, desc, desc, out, error);
}

quire_be_plan_desc desc_of(quire_be_plan *plan) {
    std::lock_guard lock(plans_mutex);
    return plans[plan];
}

}  // namespace quire::wrong
