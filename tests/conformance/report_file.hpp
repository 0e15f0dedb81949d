// SPDX-License-Identifier: Apache-2.0
//
// report_file: a file that is either complete or as it was before.
//
// It is opened before the run, so that a path that cannot be written is reported in the first
// second and not after the last case. It gets its name when it is complete.
//
// Threads: none.
#pragma once

#include <string>

namespace quire::conformance {

class ReportFile {
 public:
    explicit ReportFile(const std::string &path);  // empty: no report is wanted
    ReportFile(const ReportFile &) = delete;
    ReportFile &operator=(const ReportFile &) = delete;
    ~ReportFile();  // without commit(), nothing is left

    bool commit(const std::string &content);
    const std::string &problem() const { return problem_; }  // empty: none

 private:
    std::string path_;
    std::string temporary_;
    std::string problem_;
    int file_ = -1;
};

}  // namespace quire::conformance
