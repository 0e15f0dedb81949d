// SPDX-License-Identifier: Apache-2.0

#include "plan.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "decode.hpp"
#include "device.hpp"
#include "kernels/calls.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "rounds.hpp"
#include "shared/kernel_arguments.hpp"
#include "work_shape.hpp"

namespace quire::gpu {

namespace {

// Each launch carries the slopes, and its arguments are no larger than kMostBytes.
constexpr char kManySlopes[] =
    "ALiBi supports at most 512 query heads; divide the heads over devices";
static_assert(kMostSlopes == 512);

// True if the kernels of kernels/decode.cu serve the shape: rows of q's own type or of 8-bit codes,
// and all heads of a KV head in one unit. Other options, and plans that may have masks, stay with
// the kernels that serve every shape. The size of blocks has no say, because it may not change a
// bit.
bool serves_decode(const quire_be_attention_query &shape) {
    constexpr uint32_t kServed = QUIRE_ATTENTION_BATCH_INVARIANT | QUIRE_ATTENTION_SINK_LOGITS |
                                 QUIRE_BE_ATTENTION_SOFT_CAP | QUIRE_BE_ATTENTION_ROPE |
                                 QUIRE_BE_ATTENTION_AMAX;
    bool is_group = shape.group_kind == QUIRE_GROUP_FULL || shape.group_kind == QUIRE_GROUP_WINDOW;
    bool is_16_bit = shape.q_dtype == QUIRE_DTYPE_F16 || shape.q_dtype == QUIRE_DTYPE_BF16;
    bool is_type = shape.k_dtype == shape.q_dtype || format_of(shape.k_dtype) >= kI8;
    return is_group && (shape.flags & ~kServed) == 0 && is_16_bit && is_type &&
           shape.k_dtype == shape.v_dtype && shape.k_head_dim == shape.v_head_dim &&
           has_decode_instance(format_of(shape.k_dtype), shape.k_head_dim) && shape.kv_heads != 0 &&
           shape.q_heads / shape.kv_heads <= kFragmentQueries;
}

}  // namespace

const char *missing_kernel(const Device &, const quire_be_attention_query &shape) {
    bool has_alibi = (shape.flags & QUIRE_BE_ATTENTION_ALIBI) != 0;
    return has_alibi && shape.q_heads > kMostSlopes ? kManySlopes : nullptr;
}

quire_status make_plan(Device &device, const quire_be_plan_desc &desc, PlanOptions options,
                       quire_be_plan **out, quire_error *) {
    auto plan = std::make_unique<quire_be_plan>();
    static std::atomic<uint64_t> plans{0};
    plan->device = &device;
    plan->serial = plans.fetch_add(1, std::memory_order_relaxed) + 1;
    plan->options = std::move(options);
    plan->decodes = device.decodes && serves_decode(plan->options.shape);
    plan->turns = rope_turns(plan->options);
    {
        std::lock_guard lock(device.mutex);
        uint64_t bytes = plan->decodes ? decode_scratch_bytes_of(desc) : scratch_bytes_of(desc);
        device.scratch_bytes = std::max(device.scratch_bytes, bytes);
    }
    *out = plan.release();
    return QUIRE_OK;
}

void release_plan(quire_be_plan *plan) { delete plan; }

}  // namespace quire::gpu
