// SPDX-License-Identifier: Apache-2.0
//
// report: the results of a run, as a table for a person or as JSON for a program.
//
// The JSON keys are the lines of the table; Quire's counts keep their names in quire_cache_stats.

#pragma once

#include "comparison.hpp"
#include "migrations.hpp"
#include "scheduler.hpp"

#include "quire/cache.h"

#include <cstddef>
#include <ostream>
#include <vector>

namespace engine {

struct Report {
    size_t request_count = 0;
    size_t text_count = 0;
    double seconds = 0.0;
    size_t pool_blocks = 0;  // including the null block
    size_t block_tokens = 0;
    size_t max_text_tokens = 0;
    Totals totals;
    quire_cache_stats stats{};
    std::span<const MigrationRecord> migrations;
    const Comparison *comparison = nullptr;  // NULL: not compared
};

void print_table(std::ostream &out, const Report &report);
void print_json(std::ostream &out, const Report &report);

// The value below which `fraction` of `values` lie, nearest rank; 0 for no values.
double percentile(std::vector<double> values, double fraction);

}  // namespace engine
