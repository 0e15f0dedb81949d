// SPDX-License-Identifier: Apache-2.0
//
// reference_plan: the needs of an item, worked out before anything is changed.
#pragma once

#include <vector>

#include "reference.hpp"

namespace quire::model {

struct Reference::Plan {
    int slot = 0;
    int position = 0;
    int compute = 0;
    int known = 0;
    bool admission = false;
    bool swapped = false;
    bool reuses = false;       // short: it reuses what its first position has passed
    std::vector<int> matched;  // nodes whose blocks are shared
    std::vector<int> length, fresh, from_cached;
    std::vector<bool> copy_tail;
    std::vector<std::vector<int>> passed;  // entries that it gives back, per group
};

}  // namespace quire::model
