// SPDX-License-Identifier: Apache-2.0
//
// answers: a backend whose answers come from an input: status codes, counts, sizes, alignments,
// flags, values of fences, objects that are missing, and what the table says of itself.
//
// Without an input, and after its end, the backend is honest: work is done when it is enqueued, so
// a library that goes on gets to the end. Addresses that are given out with success are memory that
// can be read and written, except where they are ranges that no machine has: a library cannot tell
// a wrong address from a right one, but it can tell what is NULL, not aligned or beyond 2^64.
//
// Threads: one at a time.
#pragma once

#include "bytes.hpp"
#include "quire/plugin/backend.h"

namespace quire::fuzz {

// The table, spoiled as the input says; may be NULL. Answers come from `input` until it is NULL.
const quire_backend_api *hostile_table(Bytes *input);
// The honest one; its answers are honest.
const quire_backend_api *honest_table();

// Objects and memory that were given out with success and not given back. Exact only as long as
// no answer contradicted itself.
int64_t live_objects();
bool contradicted();

}  // namespace quire::fuzz
