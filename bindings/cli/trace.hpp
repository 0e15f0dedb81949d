// SPDX-License-Identifier: Apache-2.0
//
// trace: the requests of a production service, in either of two published formats, which the first
// line of the file tells apart.
//
//   Mooncake  one JSON object per line with input_length, output_length (tokens) and hash_ids, one
//             id per 512 input tokens; equal ids at equal positions mean equal prefixes
//             (kvcache-ai/Mooncake, FAST'25 traces).
//   Azure     comma-separated values under the header TIMESTAMP,ContextTokens,GeneratedTokens, with
//             or without carriage returns; lengths only, so no two prompts share anything
//             (Azure/AzurePublicDataset, LLM inference traces of 2023 and 2024).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire::cli {

constexpr uint32_t kTokensPerHash = 512;

struct Request {
    uint32_t input_length = 0;
    uint32_t output_length = 0;
    uint64_t first_input = 0;        // index into Trace::inputs
    uint32_t first_output = 0;       // token id of its first output token; the others count up
    uint64_t time_ms = 0;            // of arrival; 0: the trace does not say
    std::vector<uint32_t> hash_ids;  // empty: its tokens equal no other request's
};

struct Trace {
    std::vector<Request> requests;
    std::vector<uint32_t> inputs;  // all prompts, one after another
    uint64_t input_tokens = 0;
    uint64_t output_tokens = 0;
};

// Reads and expands at most `limit` requests (0 = all). Hash id h becomes the tokens h * 512 + j.
// Output tokens, and the inputs of requests without hash ids, get ids from 2^31 on, each used once.
// Throws a Failure that names the file and line.
Trace read_trace(const std::string &path, uint64_t limit);
// The same without tokens: `inputs` stays empty.
Trace read_requests(const std::string &path, uint64_t limit);

// Parse one line of each format, without expansion. Throw std::runtime_error with what is wrong.
Request parse_mooncake(const std::string &line);
Request parse_azure(const std::string &line);
constexpr char kAzureHeader[] = "TIMESTAMP,ContextTokens,GeneratedTokens";

constexpr uint64_t kMaxLength = 1u << 24;  // tokens of one request; a longer one is a broken line

}  // namespace quire::cli
