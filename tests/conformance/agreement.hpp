// SPDX-License-Identifier: Apache-2.0
//
// agreement: random shapes of one kind against the oracle, counted for the report.
//
// Threads: none.
#pragma once

#include <functional>
#include <vector>

#include "attention_case.hpp"

namespace quire::conformance {

// Makes the spec for a seed; false if the backend offers no such shape.
using FindSpec = std::function<bool(Rig &rig, uint64_t seed, AttentionSpec *spec)>;

// Runs each shape twice, with different poison in everything that no query may read: the result
// must be within the bound, and its bits the same both times. Skips the case if the backend offers
// none of the seeds' shapes.
void expect_random_shapes_agree(const std::vector<uint64_t> &seeds, const FindSpec &find);

// Shapes per case in a full run and in a short one; arguments of seeds().
constexpr uint32_t kShapes = 75;
constexpr uint32_t kFewShapes = 12;

// Finds a spec of the variant that is offered: a random one, or one with the types, dims and block
// size of a common shape.
bool find_variant(Rig &rig, Variant variant, uint64_t seed, AttentionSpec *spec);

}  // namespace quire::conformance
