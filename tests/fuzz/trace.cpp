// SPDX-License-Identifier: Apache-2.0
//
// trace: any text as the requests of a service, in either of the formats that `quire replay` reads,
// and as the quantities of its options. A refusal is a Failure; any other exception is a finding.
//
// The first byte: bit 0 reads a quantity in place of a trace; the other bits limit the requests.
// A trace of more than a million tokens is only parsed line by line, because it would be expanded.
//
// Threads: none.

#include <stdexcept>
#include <string>

#include "bindings/cli/library.hpp"
#include "bindings/cli/quantity.hpp"
#include "bindings/cli/trace.hpp"
#include "bytes.hpp"
#include "in_memory.hpp"

namespace {

using namespace quire::fuzz;
using quire::cli::Request;

constexpr uint64_t kMostTokens = 1'000'000;

void read_quantity(const std::string &text) {
    try {
        double value = quire::cli::parse_quantity("--option", text);
        require(value >= 0, "a quantity is not negative");
        quire::cli::parse_whole("--option", text);
    } catch (const quire::cli::Failure &failure) {
        require(failure.what()[0] != 0, "a refusal says why");
    }
}

// The tokens that all lines name, in either format.
uint64_t tokens_of(const std::string &text) {
    uint64_t tokens = 0;
    for (size_t at = 0; at < text.size();) {
        size_t end = std::min(text.find('\n', at), text.size());
        std::string line = text.substr(at, end - at);
        at = end + 1;
        for (auto *parse : {&quire::cli::parse_mooncake, &quire::cli::parse_azure}) {
            try {
                Request request = parse(line);
                require(request.input_length != 0, "an accepted request has input");
                tokens += uint64_t{request.input_length} + request.output_length;
            } catch (const std::runtime_error &failure) {
                require(failure.what()[0] != 0, "a refusal says why");
            }
        }
    }
    return tokens;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    Bytes input(data, size_bytes);
    uint8_t how = input.byte();
    std::vector<uint8_t> rest = input.rest();
    std::string text(rest.begin(), rest.end());
    if (how & 1) {
        read_quantity(text);
        return 0;
    }
    if (tokens_of(text) > kMostTokens) return 0;
    InMemory file(text.data(), text.size());
    try {
        quire::cli::Trace trace = quire::cli::read_trace(file.path(), how >> 1);
        require(trace.inputs.size() == trace.input_tokens, "every input token has an id");
    } catch (const quire::cli::Failure &failure) {
        require(failure.what()[0] != 0, "a refusal says why");
    }
    return 0;
}
