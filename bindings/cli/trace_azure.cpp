// SPDX-License-Identifier: Apache-2.0
//
// Parses a line of an Azure trace; trace.hpp describes the format.

#include <charconv>
#include <stdexcept>

#include "trace.hpp"

namespace quire::cli {

namespace {

uint32_t length_of(const char *column, const std::string &text) {
    uint64_t value = 0;
    auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || end != text.data() + text.size() || value > kMaxLength) {
        throw std::runtime_error(std::string(column) + " is '" + text +
                                 "', not a whole number up to 2^24");
    }
    return static_cast<uint32_t>(value);
}

}  // namespace

Request parse_azure(const std::string &line) {
    size_t first = line.find(','), second = line.find(',', first + 1);
    bool three = first != std::string::npos && second != std::string::npos &&
                 line.find(',', second + 1) == std::string::npos;
    if (!three) throw std::runtime_error("it does not have three columns");
    Request request;
    request.input_length = length_of("ContextTokens", line.substr(first + 1, second - first - 1));
    request.output_length = length_of("GeneratedTokens", line.substr(second + 1));
    if (request.input_length == 0) throw std::runtime_error("ContextTokens is 0");
    return request;
}

}  // namespace quire::cli
