// SPDX-License-Identifier: Apache-2.0
//
// calibration: shows what a file of measured magnitudes holds, and merges several into one. The
// library reads and merges the files.
#pragma once

#include <string>
#include <vector>

namespace quire::cli {

struct CalibrationOptions {
    std::vector<std::string> files;
    std::string merged;  // the file to write; empty: write none
    bool json = false;
};

void calibration(const CalibrationOptions &options);

}  // namespace quire::cli
