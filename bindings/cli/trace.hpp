// SPDX-License-Identifier: Apache-2.0
//
// trace: requests of a production service, as Mooncake publishes them: one JSON object a line with
// input_length, output_length (tokens) and hash_ids, one id per 512 input tokens; equal ids at
// equal positions mean equal prefixes (kvcache-ai/Mooncake, FAST'25 traces).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire::cli {

constexpr uint32_t kTokensPerHash = 512;

struct Request {
    uint32_t input_length = 0;
    uint32_t output_length = 0;
    uint64_t first_input = 0;   // index into Trace::inputs
    uint32_t first_output = 0;  // token id of its first output token; the others follow it
    std::vector<uint32_t> hash_ids;
};

struct Trace {
    std::vector<Request> requests;
    std::vector<uint32_t> inputs;  // all prompts, one behind another
    uint64_t input_tokens = 0;
    uint64_t output_tokens = 0;
};

// Reads and expands at most `limit` requests (0 = all). Id h becomes the tokens h * 512 + j; output
// tokens get ids from 2^31 on, each used once. Throws Failure that names the file and line.
Trace read_trace(const std::string &path, uint64_t limit);

}  // namespace quire::cli
