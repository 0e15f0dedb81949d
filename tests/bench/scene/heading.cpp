// SPDX-License-Identifier: Apache-2.0

#include "heading.hpp"

#include <cstdio>

namespace quire::bench {

void add_heading(const std::string &device, uint32_t scale, bool is_json,
                 nlohmann::ordered_json *object) {
    nlohmann::ordered_json &machine = (*object)["machine"];
    machine["device"] = device;
    machine["scale"] = scale;
    if (is_json) return;
    std::printf("%s\n", device.c_str());
    if (scale != 1)
        std::printf("sizes are divided by %u: the figures say nothing about full sizes\n", scale);
}

void add_case(const nlohmann::ordered_json &result, bool is_json, nlohmann::ordered_json *cases) {
    if (is_json) std::fprintf(stderr, "%s\n", result.dump().c_str());
    cases->push_back(result);
}

}  // namespace quire::bench
