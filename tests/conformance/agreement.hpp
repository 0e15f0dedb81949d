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

// Makes the spec of a seed; false: the backend offers none.
using FindSpec = std::function<bool(Rig &rig, uint64_t seed, AttentionSpec *spec)>;

// Each shape twice, with other poison in all that no query may read: within the bound, and the
// same bits. Skips the case where none of the seeds' shapes is offered.
void expect_random_shapes_agree(const std::vector<uint64_t> &seeds, const FindSpec &find);

// How many shapes a case takes, in a whole run and in a short one: for seeds().
constexpr uint32_t kShapes = 75;
constexpr uint32_t kFewShapes = 12;

// A spec of the variant: any, or one of the types, dims and blocks of a common shape.
bool find_variant(Rig &rig, Variant variant, uint64_t seed, AttentionSpec *spec);

}  // namespace quire::conformance
