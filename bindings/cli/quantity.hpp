// SPDX-License-Identifier: Apache-2.0
//
// quantity: numbers as people write them (80e9, 80GB, 45GiB) and as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace quire::cli {

// A number that is not negative, with an optional unit: K M G T P (thousands),
// Ki Mi Gi Ti Pi, each with an optional B or B/s behind. Throws Failure that
// names `option`.
double parse_quantity(const std::string &option, const std::string &text);

// The same as a whole number: at most 2^63.
uint64_t parse_whole(const std::string &option, const std::string &text);

std::string with_commas(uint64_t value);    // 363,632
std::string gigabytes(double bytes);        // 53.62 GB
std::string short_seconds(double seconds);  // 5.25 ms

}  // namespace quire::cli
