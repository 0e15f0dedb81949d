// SPDX-License-Identifier: Apache-2.0
//
// workload: the built-in traffic: chats that arrive over time and share a few system prompts.
//
// Why built in: the engine must show sharing, forks and preemption on a machine that has neither a
// model nor a trace. The same seed gives the same chats everywhere.

#pragma once

#include "request.hpp"
#include "tokenizer.hpp"

#include <cstdint>
#include <vector>

namespace engine {

constexpr uint32_t kChatCount = 36;

// The first `count` chats in order of arrival. No chat has more than `seq_len` tokens, prompt and
// text together.
std::vector<Request> chat_workload(const Tokenizer &tokenizer, size_t seq_len, uint64_t seed,
                                   uint32_t count = kChatCount);

}  // namespace engine
