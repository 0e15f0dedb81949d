// SPDX-License-Identifier: Apache-2.0

#include "trace.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "library.hpp"

namespace quire::cli {

namespace {

constexpr uint32_t kFirstUnique = 0x80000000u;  // ids made from hash ids lie below

// Hands out ids that no other token has.
class UniqueTokens {
 public:
    uint32_t take(uint64_t count) {
        uint64_t first = next_;
        next_ += count;
        if (next_ >= QUIRE_TOKEN_UNKNOWN) {
            throw Failure(
                "the trace has more than 2^31 tokens of its own: --limit takes the first "
                "requests only",
                kUsage);
        }
        return static_cast<uint32_t>(first);
    }

 private:
    uint64_t next_ = kFirstUnique;
};

void expand(Trace *trace) {
    trace->inputs.resize(trace->input_tokens);
    UniqueTokens unique;
    uint64_t at = 0;
    for (Request &request : trace->requests) {
        request.first_input = at;
        request.first_output = unique.take(request.output_length);
        bool shares = !request.hash_ids.empty();
        uint32_t own = shares ? 0 : unique.take(request.input_length);
        for (uint32_t i = 0; i < request.input_length; ++i) {
            trace->inputs[at++] =
                shares ? request.hash_ids[i / kTokensPerHash] * kTokensPerHash + i % kTokensPerHash
                       : own + i;
        }
    }
}

// The next line that is not empty, without its line end.
bool next_line(std::ifstream *file, std::string *text, uint64_t *number) {
    while (std::getline(*file, *text)) {
        ++*number;
        if (text->ends_with('\r')) text->pop_back();
        if (!text->empty()) return true;
    }
    return false;
}

}  // namespace

Trace read_trace(const std::string &path, uint64_t limit) {
    std::ifstream file(path);
    if (!file) throw Failure("cannot open " + path + ": " + std::strerror(errno), kUsage);
    Trace trace;
    std::string text;
    uint64_t number = 0;
    bool more = next_line(&file, &text, &number);
    auto *parse = &parse_mooncake;
    if (more && text == kAzureHeader) {
        parse = &parse_azure;
        more = next_line(&file, &text, &number);
    }
    while (more && (limit == 0 || trace.requests.size() < limit)) {
        try {
            trace.requests.push_back(parse(text));
        } catch (const std::runtime_error &reason) {
            throw Failure(
                path + ":" + std::to_string(number) + ": not a trace line: " + reason.what(),
                kUsage);
        }
        trace.input_tokens += trace.requests.back().input_length;
        trace.output_tokens += trace.requests.back().output_length;
        more = next_line(&file, &text, &number);
    }
    if (trace.requests.empty()) throw Failure(path + " holds no request", kUsage);
    expand(&trace);
    return trace;
}

}  // namespace quire::cli
