// SPDX-License-Identifier: Apache-2.0

#include "report_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::conformance {

ReportFile::ReportFile(const std::string &path) : path_(path) {
    if (path.empty()) return;
    struct stat there{};
    if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
        problem_ = path + " is not a regular file, so a report cannot replace it";
        return;
    }
    // Checked before the run and created after it: a run that is stopped leaves nothing behind.
    size_t slash = path.rfind('/');
    std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    if (access(folder.c_str(), W_OK | X_OK) != 0)
        problem_ = "the report " + path + " cannot be written: " + std::strerror(errno);
}

ReportFile::~ReportFile() {
    if (file_ >= 0) close(file_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
}

bool ReportFile::commit(const std::string &content) {
    temporary_ = path_ + ".XXXXXX";
    file_ = mkostemp(temporary_.data(), O_CLOEXEC);
    if (file_ < 0) temporary_.clear();
    size_t written = 0;
    while (file_ >= 0 && written < content.size()) {
        ssize_t count = write(file_, content.data() + written, content.size() - written);
        if (count < 0) break;
        written += static_cast<size_t>(count);
    }
    // mkostemp makes it readable only by its owner; a report is for others.
    bool is_whole = written == content.size() && fchmod(file_, 0644) == 0 && fsync(file_) == 0 &&
                    rename(temporary_.c_str(), path_.c_str()) == 0;
    if (is_whole) {
        temporary_.clear();
    } else {
        problem_ = "the report " + path_ + " was not written: " + std::strerror(errno);
    }
    return is_whole;
}

}  // namespace quire::conformance
