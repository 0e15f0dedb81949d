// SPDX-License-Identifier: Apache-2.0
//
// Parses a line of a Mooncake trace; trace.hpp describes the format.

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "trace.hpp"

namespace quire::cli {

namespace {

constexpr uint64_t kMaxHashId = (uint64_t{1} << 31) / kTokensPerHash - 1;

constexpr double kMostMs = 366.0 * 86'400'000;

uint32_t length_of(const nlohmann::json &line, const char *key) {
    auto found = line.find(key);
    if (found == line.end()) throw std::runtime_error(std::string("it has no ") + key);
    uint64_t value = found->is_number_unsigned() ? found->get<uint64_t>() : UINT64_MAX;
    if (value > kMaxLength)
        throw std::runtime_error(std::string(key) + " is not a whole number up to 2^24");
    return static_cast<uint32_t>(value);
}

// Milliseconds; 0: the line does not say.
uint64_t time_of(const nlohmann::json &line) {
    auto found = line.find("timestamp");
    if (found == line.end()) return 0;
    const double value = found->is_number() ? found->get<double>() : -1;
    if (!(value >= 0 && value <= kMostMs))
        throw std::runtime_error("timestamp is not a number of milliseconds up to a year");
    return static_cast<uint64_t>(value);
}

std::vector<uint32_t> ids_of(const nlohmann::json &line) {
    auto found = line.find("hash_ids");
    if (found == line.end() || !found->is_array())
        throw std::runtime_error("it has no hash_ids list");
    std::vector<uint32_t> ids;
    for (const auto &id : *found) {
        uint64_t value = id.is_number_unsigned() ? id.get<uint64_t>() : UINT64_MAX;
        if (value > kMaxHashId) {
            throw std::runtime_error("a hash id is not a whole number up to " +
                                     std::to_string(kMaxHashId));
        }
        ids.push_back(static_cast<uint32_t>(value));
    }
    return ids;
}

}  // namespace

Request parse_mooncake(const std::string &text) {
    nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
    if (!line.is_object()) {
        throw std::runtime_error(
            std::string("it is not a JSON object, and the file does not begin with ") +
            kAzureHeader);
    }
    Request request;
    request.input_length = length_of(line, "input_length");
    request.output_length = length_of(line, "output_length");
    if (request.input_length == 0) throw std::runtime_error("input_length is 0");
    request.hash_ids = ids_of(line);
    request.time_ms = time_of(line);
    uint64_t wanted = (uint64_t{request.input_length} + kTokensPerHash - 1) / kTokensPerHash;
    if (request.hash_ids.size() < wanted) {
        throw std::runtime_error("hash_ids has " + std::to_string(request.hash_ids.size()) +
                                 " ids, input_length needs " + std::to_string(wanted));
    }
    return request;
}

}  // namespace quire::cli
