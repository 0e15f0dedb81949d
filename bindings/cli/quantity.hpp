// SPDX-License-Identifier: Apache-2.0
//
// quantity: numbers as people write them (80e9, 80GB, 45GiB, 80us) and as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace quire::cli {

// Parses a non-negative number with an optional unit: K M G T P (powers of 1000) or Ki Mi Gi Ti Pi
// (powers of 1024), each optionally followed by B or B/s. Throws a Failure that names `option`.
double parse_quantity(const std::string &option, const std::string &text);

// The same for a whole number up to 2^63.
uint64_t parse_whole(const std::string &option, const std::string &text);

// Parses a time of 0 or more with its unit: us, ms or s.
double parse_seconds(const std::string &option, const std::string &text);

std::string with_commas(uint64_t value);     // 363,632
std::string gigabytes(double bytes);         // 53.62 GB
std::string readable_bytes(uint64_t bytes);  // 812 bytes, 53.6 kB, 53.6 MB, 53.62 GB
std::string short_seconds(double seconds);   // 5.25 ms

}  // namespace quire::cli
