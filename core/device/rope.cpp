// SPDX-License-Identifier: Apache-2.0

#include "core/device/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire {

namespace {

constexpr double kTurn = 2 * std::numbers::pi;

bool is_positive(float value) { return std::isfinite(value) && value > 0; }

float or_default(float value, float otherwise) { return value != 0 ? value : otherwise; }

// The description with its defaults filled in.
void fill_defaults(uint32_t head_dim, quire_rope_desc *desc) {
    if (desc->rotated_dim == 0) desc->rotated_dim = head_dim;
    desc->base = or_default(desc->base, 10000);
    desc->low_freq_factor = or_default(desc->low_freq_factor, 1);
    desc->high_freq_factor = or_default(desc->high_freq_factor, 4);
    desc->beta_fast = or_default(desc->beta_fast, 32);
    desc->beta_slow = or_default(desc->beta_slow, 1);
    bool scaled = desc->scaling != QUIRE_ROPE_PLAIN && desc->frequencies == nullptr;
    if (!scaled) desc->factor = or_default(desc->factor, 1);
    bool grows = desc->scaling == QUIRE_ROPE_YARN && is_positive(desc->factor);
    desc->magnitude = or_default(desc->magnitude, grows ? 0.1f * std::log(desc->factor) + 1 : 1);
}

Status check_rope(const quire_rope_desc &desc, uint32_t head_dim) {
    if (desc.pairing > QUIRE_ROPE_PAIRS) {
        return fail(QUIRE_E_UNSUPPORTED, "rope.pairing {} is not known", desc.pairing);
    }
    if (desc.scaling > QUIRE_ROPE_YARN) {
        return fail(QUIRE_E_UNSUPPORTED, "rope.scaling {} is not known", desc.scaling);
    }
    if (desc.rotated_dim == 0 || desc.rotated_dim % 2 != 0 || desc.rotated_dim > head_dim) {
        return fail(QUIRE_E_ARG, "rope.rotated_dim is {}: must be an even number up to {}",
                    desc.rotated_dim, head_dim);
    }
    if (!is_positive(desc.base) || desc.base <= 1) {
        return fail(QUIRE_E_ARG, "rope.base is not a finite number above 1");
    }
    if (!is_positive(desc.magnitude)) {
        return fail(QUIRE_E_ARG, "rope.magnitude is not a finite number above 0");
    }
    if (!is_positive(desc.factor) || desc.factor < 1) {
        return fail(QUIRE_E_ARG, "rope.factor is not a finite number of 1 or more");
    }
    bool needs_context = desc.scaling >= QUIRE_ROPE_LLAMA3 && desc.frequencies == nullptr;
    if (needs_context && desc.original_context == 0) {
        return fail(QUIRE_E_ARG, "rope.original_context is 0: its scaling needs it");
    }
    if (!is_positive(desc.low_freq_factor) || !(desc.high_freq_factor > desc.low_freq_factor) ||
        !is_positive(desc.high_freq_factor)) {
        return fail(QUIRE_E_ARG, "rope.high_freq_factor is not above low_freq_factor");
    }
    if (!is_positive(desc.beta_slow) || !(desc.beta_fast > desc.beta_slow) ||
        !is_positive(desc.beta_fast)) {
        return fail(QUIRE_E_ARG, "rope.beta_fast is not above beta_slow");
    }
    return Status{};
}

// Refuses a field that the scaling does not read: it was meant for another scaling.
Status check_unused(const quire_rope_desc &desc) {
    bool llama3 = desc.scaling == QUIRE_ROPE_LLAMA3, yarn = desc.scaling == QUIRE_ROPE_YARN;
    struct {
        const char *text;
        bool is_set, is_read;
    } fields[] = {
        {"rope.base is set, but frequencies are given", desc.base != 0,
         desc.frequencies == nullptr},
        {"rope.scaling is set, but frequencies are given", desc.scaling != QUIRE_ROPE_PLAIN,
         desc.frequencies == nullptr},
        {"rope.factor is set, but scaling is QUIRE_ROPE_PLAIN", desc.factor != 0,
         desc.scaling != QUIRE_ROPE_PLAIN},
        {"rope.original_context is set, but the scaling does not use it",
         desc.original_context != 0, llama3 || yarn},
        {"rope.low_freq_factor is set, but scaling is not QUIRE_ROPE_LLAMA3",
         desc.low_freq_factor != 0, llama3},
        {"rope.high_freq_factor is set, but scaling is not QUIRE_ROPE_LLAMA3",
         desc.high_freq_factor != 0, llama3},
        {"rope.beta_fast is set, but scaling is not QUIRE_ROPE_YARN", desc.beta_fast != 0, yarn},
        {"rope.beta_slow is set, but scaling is not QUIRE_ROPE_YARN", desc.beta_slow != 0, yarn},
    };
    for (const auto &field : fields) {
        if (field.is_set && !field.is_read) return fail(QUIRE_E_ARG, field.text);
    }
    return Status{};
}

// Llama 3.1: by wavelength, in shares of the context that the model was first trained on.
double llama3(const quire_rope_desc &desc, double frequency) {
    double turns = desc.original_context * frequency / kTurn;
    double low = static_cast<double>(desc.low_freq_factor);
    double high = static_cast<double>(desc.high_freq_factor);
    double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    return frequency * (kept + (1 - kept) / static_cast<double>(desc.factor));
}

// The index at which this many turns fit into the context.
double yarn_index(const quire_rope_desc &desc, double turns) {
    double base = static_cast<double>(desc.base);
    return desc.rotated_dim * std::log(desc.original_context / (turns * kTurn)) /
           (2 * std::log(base));
}

// YaRN blends by index, between whole indices, as its authors' code does.
double yarn(const quire_rope_desc &desc, uint32_t i, double frequency) {
    double last = desc.rotated_dim - 1;
    double low =
        std::clamp(std::floor(yarn_index(desc, static_cast<double>(desc.beta_fast))), 0.0, last);
    double high =
        std::clamp(std::ceil(yarn_index(desc, static_cast<double>(desc.beta_slow))), 0.0, last);
    double span = high > low ? high - low : 0.001;
    double divided = std::clamp((i - low) / span, 0.0, 1.0);
    return frequency * (1 - divided + divided / static_cast<double>(desc.factor));
}

double frequency_of(const quire_rope_desc &desc, uint32_t i) {
    double frequency = std::pow(static_cast<double>(desc.base), -2.0 * i / desc.rotated_dim);
    switch (desc.scaling) {
        case QUIRE_ROPE_LINEAR:
            return frequency / static_cast<double>(desc.factor);
        case QUIRE_ROPE_LLAMA3:
            return llama3(desc, frequency);
        case QUIRE_ROPE_YARN:
            return yarn(desc, i, frequency);
        default:
            return frequency;
    }
}

}  // namespace

Status compute_rope(const quire_rope_desc &given, uint32_t head_dim, Rope *out) {
    quire_rope_desc desc = given;
    QUIRE_TRY(check_unused(desc));
    fill_defaults(head_dim, &desc);
    QUIRE_TRY(check_rope(desc, head_dim));
    out->rotated_dim = desc.rotated_dim;
    out->magnitude = desc.magnitude;
    if (!out->frequencies.create(desc.rotated_dim / 2)) return no_host_memory();
    for (uint32_t i = 0; i < desc.rotated_dim / 2; ++i) {
        float frequency = desc.frequencies != nullptr ? desc.frequencies[i]
                                                      : static_cast<float>(frequency_of(desc, i));
        if (!std::isfinite(frequency)) {
            return fail(QUIRE_E_ARG, "rope.frequencies[{}] is not finite", i);
        }
        out->frequencies[i] = frequency;
    }
    return Status{};
}

}  // namespace quire
