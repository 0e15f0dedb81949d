// SPDX-License-Identifier: Apache-2.0

#include "report.hpp"

#include <cstdio>

namespace quire::cli {

void print_report(const nlohmann::ordered_json &report, bool as_json) {
    if (as_json) {
        std::printf("%s\n", report.dump().c_str());
        return;
    }
    for (const auto &[key, value] : report.items()) {
        std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        if (value.is_number_float()) {
            char digits[32];
            std::snprintf(digits, sizeof digits, "%.5f", value.get<double>());
            text = digits;
        }
        std::string label = key;
        for (char &c : label) c = c == '_' ? ' ' : c;
        std::printf("%-24s %16s\n", label.c_str(), text.c_str());
    }
}

}  // namespace quire::cli
