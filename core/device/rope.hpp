// SPDX-License-Identifier: Apache-2.0
//
// rope: the frequencies of a rotary embedding, from base and scaling (attention.h).
//
// Why here: every scaling method ends in a list of frequencies and a magnitude, so a backend needs
// to know nothing else, and they are computed once, in double.
//
// Threads: any; nothing is kept.
#pragma once

#include "core/base/host_memory.hpp"
#include "quire/attention.h"

namespace quire {

// Everything that a backend needs to rotate.
struct Rope {
    explicit Rope(const HostAllocator *host) : frequencies(host) {}

    uint32_t rotated_dim = 0;
    float magnitude = 0;
    Array<float> frequencies;  // [rotated_dim / 2] radians per position
};

// head_dim  the most elements that may be rotated, and the default.
Status compute_rope(const quire_rope_desc &desc, uint32_t head_dim, Rope *out);

}  // namespace quire
