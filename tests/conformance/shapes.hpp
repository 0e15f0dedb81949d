// SPDX-License-Identifier: Apache-2.0
//
// shapes: the attention shapes that the backend is asked about, and the one that a plain case uses.
//
// Why not one fixed shape: a backend may offer two head dims and one type and still be complete. So
// a case about something else uses the first common shape that the backend offers.
//
// Threads: any; keeps no state.
#pragma once

#include <string>
#include <vector>

#include "subject.hpp"

namespace quire::conformance {

struct Answer {
    uint32_t support = QUIRE_BE_NO;
    uint64_t workspace_bytes = 0;
    std::string reason;  // of a no
};
// REQUIRES: query_attention is not NULL.
Answer ask(Rig &rig, const quire_be_attention_query &shape);
bool is_offered(Rig &rig, const quire_be_attention_query &shape);

// Causal, without a window, 4 heads over 2. Throws if none of the common shapes is offered.
quire_be_attention_query plain_shape(Rig &rig);
// The shapes that plain_shape() tries, in order.
std::vector<quire_be_attention_query> common_shapes();

// The dimensions of the report's matrix: attention, its options, types, head dims, block sizes.
enum class Kind {
    write,
    causal,
    window,
    not_causal,
    window_with_sinks,
    chunked,
    latent,
    cross,
    soft_cap,
    alibi,
    sink_logits,
    mask,
    rope_halves,
    rope_pairs,
    batch_invariant
};
const char *name_of(Kind kind);
struct SweptShape {
    Kind kind;
    quire_be_attention_query shape;
};
std::vector<SweptShape> swept_shapes();

}  // namespace quire::conformance
