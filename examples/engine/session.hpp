// SPDX-License-Identifier: Apache-2.0
//
// session: a text that one run leaves in a file, and another takes up: the names that go with it,
// and its tokens.
//
// Quire keeps K, V and the tokens that were computed. The token that was sampled last is not among
// them, and neither are its logits: a run that goes on computes the last token once more, which
// gives them.

#pragma once

#include "model.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace engine {

using Fingerprint = std::array<uint8_t, 32>;

// Names everything that decides K and V: the sizes and each weight.
Fingerprint fingerprint_of(const Model &model);

// The tokens in a session's file, at the place that docs/session-format.md names: the engine needs
// them before it has a cache that checks the file.
//
// Errors  throws Failure if this is no session, or its tokens are not the model's.
std::vector<uint32_t> session_tokens(const std::string &path, size_t vocab_size);

}  // namespace engine
