// SPDX-License-Identifier: Apache-2.0

#include "trace.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "library.hpp"

namespace quire::cli {

namespace {

constexpr uint32_t kFirstOutput = 0x80000000u;  // input ids lie below
constexpr uint64_t kMaxHashId = kFirstOutput / kTokensPerHash - 1;
constexpr uint64_t kMaxLength = 1u << 24;  // tokens of one request; a longer one is a broken line

uint32_t length_of(const nlohmann::json &line, const char *key) {
    if (!line.at(key).is_number_unsigned()) {
        throw std::runtime_error(std::string(key) + " is not a whole number");
    }
    uint64_t value = line.at(key).get<uint64_t>();
    if (value > kMaxLength) {
        throw std::runtime_error(std::string(key) + " is not a whole number up to 2^24");
    }
    return static_cast<uint32_t>(value);
}

Request parse(const std::string &text) {
    nlohmann::json line = nlohmann::json::parse(text);
    Request request;
    request.input_length = length_of(line, "input_length");
    request.output_length = length_of(line, "output_length");
    if (request.input_length == 0) throw std::runtime_error("input_length is 0");
    for (const auto &id : line.at("hash_ids")) {
        if (!id.is_number_unsigned()) throw std::runtime_error("a hash id is not a whole number");
        uint64_t value = id.get<uint64_t>();
        if (value > kMaxHashId) throw std::runtime_error("a hash id is above 4,194,302");
        request.hash_ids.push_back(static_cast<uint32_t>(value));
    }
    uint64_t wanted = (uint64_t{request.input_length} + kTokensPerHash - 1) / kTokensPerHash;
    if (request.hash_ids.size() < wanted) {
        throw std::runtime_error("hash_ids has " + std::to_string(request.hash_ids.size()) +
                                 " ids, input_length needs " + std::to_string(wanted));
    }
    return request;
}

void expand(Trace *trace) {
    trace->inputs.resize(trace->input_tokens);
    uint64_t at = 0, output = kFirstOutput;
    for (Request &request : trace->requests) {
        request.first_input = at;
        request.first_output = static_cast<uint32_t>(output);
        output += request.output_length;
        if (output >= QUIRE_TOKEN_UNKNOWN) throw Failure("more than 2^31 output tokens", kUsage);
        for (uint32_t i = 0; i < request.input_length; ++i) {
            uint32_t id = request.hash_ids[i / kTokensPerHash];
            trace->inputs[at++] = id * kTokensPerHash + i % kTokensPerHash;
        }
    }
}

}  // namespace

Trace read_trace(const std::string &path, uint64_t limit) {
    std::ifstream file(path);
    if (!file) throw Failure("cannot open " + path + ": " + std::strerror(errno), kUsage);
    Trace trace;
    std::string text;
    uint64_t number = 0;
    while ((limit == 0 || trace.requests.size() < limit) && std::getline(file, text)) {
        ++number;
        if (text.empty()) continue;
        try {
            trace.requests.push_back(parse(text));
        } catch (const std::exception &reason) {
            throw Failure(
                path + ":" + std::to_string(number) + ": not a trace line: " + reason.what(),
                kUsage);
        }
        trace.input_tokens += trace.requests.back().input_length;
        trace.output_tokens += trace.requests.back().output_length;
    }
    if (trace.requests.empty()) throw Failure(path + " holds no request", kUsage);
    expand(&trace);
    return trace;
}

}  // namespace quire::cli
