// SPDX-License-Identifier: Apache-2.0
//
// count_limits: what a kernel may ask of memory for each KiB of K and V that it serves.
//
// A site counts where it has at least a twentieth of its kernel's sectors, or wavefronts: a single
// number that all lanes read costs little, however it lies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "counters.hpp"

namespace fakegpu {

struct Limits {
    double sectors;       // per sector that the same bytes need, at the worst site
    double wavefronts;    // likewise
    double instructions;  // that the dialect names, of a warp, per KiB of K and V
    double passes;        // wavefronts, per KiB
    double barriers;      // of a warp, per KiB
};

struct Measured : Limits {
    std::string worst_sectors, worst_wavefronts;  // the sites
};

struct Usage {
    double ratio = 0;
    std::string site;
};

// The site where most units are wasted, among those that matter.
inline Usage worst_of(const std::vector<SiteCount> &counts, const char *kernel,
                      bool (*is_meant)(Kind)) {
    uint64_t all = 0;
    Usage worst;
    for (const SiteCount &count : counts) {
        if (is_meant(count.kind) && std::strcmp(count.kernel, kernel) == 0) all += count.units;
    }
    for (const SiteCount &count : counts) {
        bool is_small = count.units * 20 < all || count.least == 0;
        if (!is_meant(count.kind) || std::strcmp(count.kernel, kernel) != 0 || is_small) continue;
        double ratio = static_cast<double>(count.units) / static_cast<double>(count.least);
        if (ratio <= worst.ratio) continue;
        worst = {ratio, std::string(count.file) + ':' + std::to_string(count.line)};
    }
    return worst;
}

inline double sum_of(const std::vector<SiteCount> &counts, const char *kernel,
                     uint64_t SiteCount::*field, bool (*is_meant)(Kind)) {
    uint64_t sum = 0;
    for (const SiteCount &count : counts) {
        if (is_meant(count.kind) && std::strcmp(count.kernel, kernel) == 0) sum += count.*field;
    }
    return static_cast<double>(sum);
}

inline Measured measure(const std::vector<SiteCount> &counts, const char *kernel,
                        uint64_t kv_bytes) {
    Usage sectors = worst_of(counts, kernel, is_global);
    Usage wavefronts = worst_of(counts, kernel, is_shared);
    double kib = static_cast<double>(kv_bytes) / 1024;
    Measured measured;
    measured.sectors = sectors.ratio;
    measured.wavefronts = wavefronts.ratio;
    // A matrix product may be several instructions, which are its units.
    measured.instructions =
        (sum_of(counts, kernel, &SiteCount::requests,
                [](Kind kind) { return is_instruction(kind) && kind != Kind::matrix; }) +
         sum_of(counts, kernel, &SiteCount::units,
                [](Kind kind) { return kind == Kind::matrix; })) /
        kib;
    measured.passes = sum_of(counts, kernel, &SiteCount::units, is_shared) / kib;
    measured.barriers = sum_of(counts, kernel, &SiteCount::requests,
                               [](Kind kind) { return kind == Kind::barrier; }) /
                        kib;
    measured.worst_sectors = sectors.site;
    measured.worst_wavefronts = wavefronts.site;
    return measured;
}

// What exceeds its limit, and which limits have become loose: a limit is at most a tenth above
// what is measured, so that a kernel that became better stays so.
inline std::vector<std::string> judge(const Limits &limits, const Measured &is) {
    std::vector<std::string> problems;
    auto look = [&](const char *name, double limit, double value, const std::string &site) {
        std::string at = site.empty() ? "" : " at " + site;
        if (value > limit) {
            problems.push_back(std::string(name) + ' ' + std::to_string(value) + at +
                               " exceed the limit " + std::to_string(limit));
        } else if (value * 1.1 + 0.01 < limit) {
            problems.push_back(std::string(name) + ' ' + std::to_string(value) +
                               ": lower the limit " + std::to_string(limit));
        }
    };
    look("sectors", limits.sectors, is.sectors, is.worst_sectors);
    look("wavefronts", limits.wavefronts, is.wavefronts, is.worst_wavefronts);
    look("instructions", limits.instructions, is.instructions, "");
    look("passes", limits.passes, is.passes, "");
    look("barriers", limits.barriers, is.barriers, "");
    return problems;
}

}  // namespace fakegpu
