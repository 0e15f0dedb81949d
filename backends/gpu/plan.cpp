// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "attention.hpp"
#include "device.hpp"
#include "kernels/calls.hpp"
#include "shared/checks.hpp"
#include "shared/instances.hpp"

namespace quire::gpu {

namespace {

// How far a position turns a pair, modulo whole turns, as a fraction of 2^64. An angle is then one
// integer product, exact but for this rounding: at position 2^31 it is wrong by 2^-33 of a turn.
uint64_t fraction_of_turn(float frequency) {
    constexpr long double kTurn = 6.283185307179586476925286766559L;
    long double turns = static_cast<long double>(frequency) / kTurn;
    long double fraction = turns - std::floor(turns);
    long double scaled = std::ldexp(fraction, 64);
    return scaled >= 0x1p64L ? 0 : static_cast<uint64_t>(scaled);
}

// Slopes travel with each launch, whose arguments are no larger than kMostBytes.
constexpr char kManySlopes[] = "ALiBi of more than 512 query heads; divide the heads over devices";
static_assert(kMostSlopes == 512);

bool has_many_slopes(const quire_be_attention_query &query) {
    return (query.flags & QUIRE_BE_ATTENTION_ALIBI) != 0 && query.q_heads > kMostSlopes;
}

}  // namespace

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    if (quire_status status = answer_query(query, answer, error)) return status;
    if (answer->support == QUIRE_BE_NO || !has_many_slopes(*query)) return QUIRE_OK;
    answer->support = QUIRE_BE_NO;
    answer->alignment = 0;
    std::snprintf(answer->reason, sizeof answer->reason, "%s", kManySlopes);
    return QUIRE_OK;
}

quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    auto plan = std::make_unique<quire_be_plan>();
    plan->device = device;
    if (quire_status status = make_plan_options(desc, &plan->options, error)) return status;
    const PlanOptions &options = plan->options;
    if (has_many_slopes(options.shape)) return fail(error, QUIRE_E_UNSUPPORTED, "%s", kManySlopes);
    if (options.has(QUIRE_BE_ATTENTION_ROPE)) {
        plan->turn_count = options.shape.rotated_dim / 2;
        plan->turns = std::make_unique<uint64_t[]>(plan->turn_count);
        for (uint32_t i = 0; i < plan->turn_count; ++i) {
            plan->turns[i] = fraction_of_turn(options.frequencies[i]);
        }
    }
    {
        std::lock_guard lock(device->mutex);
        device->scratch_bytes = std::max(device->scratch_bytes, scratch_bytes_of(*desc));
    }
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *out = plan.release();
    return QUIRE_OK;
}

void plan_destroy(quire_be_plan *plan) {
    if (plan == nullptr) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    delete plan;
}

quire_status check_plan_fits(const quire_be_plan &plan, const quire_be_pool &pool,
                             const quire_be_device *device, quire_error *error) {
    if (plan.device != device) {
        return fail(error, QUIRE_E_ARG, "the plan was made for another device");
    }
    return check_pool_fits(plan.options, pool, error);
}

}  // namespace quire::gpu
