// SPDX-License-Identifier: Apache-2.0
//
// calibration: what a file of measured magnitudes holds, and several made one; the library reads
// and merges them.
#pragma once

#include <string>
#include <vector>

namespace quire::cli {

struct CalibrationOptions {
    std::vector<std::string> files;
    std::string merged;  // the file to write; empty: none
    bool json = false;
};

void calibration(const CalibrationOptions &options);

}  // namespace quire::cli
