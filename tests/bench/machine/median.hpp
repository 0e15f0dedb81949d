// SPDX-License-Identifier: Apache-2.0
//
// median: the middle of some measurements; if their number is even, the mean of the middle two.
#pragma once

#include <algorithm>
#include <vector>

namespace quire::bench {

// values  at least one.
inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace quire::bench
