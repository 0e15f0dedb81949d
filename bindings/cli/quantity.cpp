// SPDX-License-Identifier: Apache-2.0

#include "quantity.hpp"

#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "library.hpp"

namespace quire::cli {

namespace {

constexpr double kLargestWhole = 9223372036854775808.0;  // 2^63

// The factor of a unit such as "GiB", "T" or "B/s"; 0 if the unit is unknown.
double factor_of(std::string unit) {
    if (unit.ends_with("/s")) unit.resize(unit.size() - 2);
    if (unit == "B") return 1;
    if (unit.ends_with("B")) unit.pop_back();
    if (unit.empty()) return 1;
    size_t power = std::string("KMGTP").find(static_cast<char>(std::toupper(unit[0])));
    if (power == std::string::npos || unit.size() > 2 || (unit.size() == 2 && unit[1] != 'i'))
        return 0;
    return std::pow(unit.size() == 2 ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

// False: the text does not begin with a number that is 0 or more.
bool split_unit(const std::string &text, double *number, std::string *unit) {
    bool begins_well = !text.empty() && text.find_first_of("xX") == std::string::npos &&
                       (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '.');
    if (!begins_well) return false;
    char *end = nullptr;
    *number = std::strtod(text.c_str(), &end);
    *unit = end;
    return end != text.c_str();
}

std::string printed(const char *format, double value) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

}  // namespace

double parse_quantity(const std::string &option, const std::string &text) {
    std::string unit;
    double number = 0;
    double factor = split_unit(text, &number, &unit) ? factor_of(unit) : 0;
    if (factor <= 0 || !std::isfinite(number * factor)) {
        throw Failure(option + " " + text + " is not a quantity: write it like 80e9, 80GB or 45GiB",
                      kUsage);
    }
    return number * factor;
}

uint64_t parse_whole(const std::string &option, const std::string &text) {
    double given = parse_quantity(option, text);
    double value = std::nearbyint(given);  // 8.19G is one ulp away from a whole number
    if (std::fabs(given - value) > value * 1e-12 || value > kLargestWhole)
        throw Failure(option + " " + text + " is not a whole number up to 2^63", kUsage);
    return static_cast<uint64_t>(value);
}

double parse_seconds(const std::string &option, const std::string &text) {
    std::string unit;
    double number = 0;
    bool is_right = split_unit(text, &number, &unit) && std::isfinite(number);
    double factor = unit == "us" ? 1e-6 : unit == "ms" ? 1e-3 : unit == "s" ? 1 : 0;
    if (!is_right || factor == 0)
        throw Failure(option + " " + text + " is not a time: write it like 80us, 2ms or 1s",
                      kUsage);
    return number * factor;
}

std::string with_commas(uint64_t value) {
    const std::string digits = std::to_string(value);
    std::string text;
    for (size_t i = 0; i < digits.size(); ++i) {
        if (i != 0 && (digits.size() - i) % 3 == 0) text += ',';
        text += digits[i];
    }
    return text;
}

std::string gigabytes(double bytes) { return printed("%.2f GB", bytes / 1e9); }

std::string readable_bytes(uint64_t bytes) {
    const auto count = static_cast<double>(bytes);
    if (bytes < 1000) return std::to_string(bytes) + " bytes";
    if (bytes < 1000 * 1000) return printed("%.1f kB", count / 1e3);
    return bytes < 1000 * 1000 * 1000 ? printed("%.1f MB", count / 1e6) : gigabytes(count);
}

std::string short_seconds(double seconds) {
    return seconds < 1e-3 ? printed("%.1f us", seconds * 1e6) : printed("%.2f ms", seconds * 1e3);
}

}  // namespace quire::cli
