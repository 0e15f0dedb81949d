// SPDX-License-Identifier: Apache-2.0

#include "shared/kernel_arguments.hpp"

#include <cmath>

namespace quire {

namespace {

uint32_t scale_option(uint32_t kind, uint32_t of_calibration, uint32_t of_rows) {
    if (kind == QUIRE_SCALE_NONE) return 0;
    return kind == QUIRE_SCALE_TOKEN_HEAD ? of_rows : of_calibration;
}

uint64_t fraction_of_turn(float frequency) {
    constexpr long double kTurn = 6.283185307179586476925286766559L;
    long double turns = static_cast<long double>(frequency) / kTurn;
    long double fraction = turns - std::floor(turns);
    long double scaled = std::ldexp(fraction, 64);
    return scaled >= 0x1p64L ? 0 : static_cast<uint64_t>(scaled);
}

}  // namespace

Format format_of(uint32_t dtype) {
    switch (dtype) {
        case QUIRE_DTYPE_F16:
            return kF16;
        case QUIRE_DTYPE_BF16:
            return kBf16;
        case QUIRE_DTYPE_I8:
            return kI8;
        case QUIRE_DTYPE_I4:
            return kI4;
        case QUIRE_DTYPE_F8_E4M3FN:
            return kE4m3;
        case QUIRE_DTYPE_F8_E5M2:
            return kE5m2;
        default:
            return kF32;
    }
}

uint32_t attend_options(const PlanOptions &plan, const quire_be_attention &args) {
    const quire_be_attention_query &shape = plan.shape;
    uint32_t options = scale_option(shape.k_scale_kind, kStaticKScale, kOwnKScale) |
                       scale_option(shape.v_scale_kind, kStaticVScale, kOwnVScale);
    if (plan.has(QUIRE_ATTENTION_NOT_CAUSAL)) options |= kNotCausal;
    if (shape.group_kind == QUIRE_GROUP_WINDOW) options |= kWindow;
    if (shape.group_kind == QUIRE_GROUP_CHUNKED) options |= kChunked;
    if (shape.group_kind == QUIRE_GROUP_LATENT) options |= kLatent;
    if (plan.has(QUIRE_ATTENTION_SINK_LOGITS)) options |= kSinkLogits;
    if (plan.soft_cap != 0.0f) options |= kSoftCap;
    if (plan.slopes != nullptr) options |= kAlibi;
    if (args.mask != 0) options |= kMask;
    return options;
}

std::vector<uint64_t> rope_turns(const PlanOptions &options) {
    if (!options.has(QUIRE_BE_ATTENTION_ROPE)) return {};
    std::vector<uint64_t> turns(options.shape.rotated_dim / 2);
    std::transform(options.frequencies.get(), options.frequencies.get() + turns.size(),
                   turns.begin(), fraction_of_turn);
    return turns;
}

uint64_t at_layer(uint64_t address, const quire_be_pool &pool, uint32_t layer) {
    return address == 0 ? 0 : address + uint64_t{layer} * 2 * pool.kv_heads * sizeof(float);
}

int32_t capped_tokens(uint32_t tokens) {
    return static_cast<int32_t>(std::min<uint32_t>(tokens, INT32_MAX));
}

}  // namespace quire
