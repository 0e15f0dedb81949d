// SPDX-License-Identifier: Apache-2.0
//
// agreement: random shapes of one kind against the oracle, counted for the report.
//
// Threads: none.
#pragma once

#include <functional>

#include "attention_case.hpp"

namespace quire::conformance {

// Makes the spec of a seed; false: the backend offers none.
using FindSpec = std::function<bool(Rig &rig, uint64_t seed, AttentionSpec *spec)>;

// Each shape twice, with other poison in all that no query may read: within the bound, and the
// same bits. Skips the case where no shape of `count` is offered.
void expect_random_shapes_agree(uint64_t first_seed, uint32_t count, const FindSpec &find);

// How many shapes a case takes.
uint32_t random_count();

// A spec of the variant: any, or one of the types, dims and blocks of a common shape.
bool find_variant(Rig &rig, Variant variant, uint64_t seed, AttentionSpec *spec);

}  // namespace quire::conformance
