// SPDX-License-Identifier: Apache-2.0
//
// fixtures: files for the loaders: damaged ones, made here, and the trained model if available.
//
// The model is in the folder that QUIRE_WEIGHTS names, else in shared/weights beside the source
// tree. It is not part of the project, so without it a test that needs it is skipped and says so.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/place.hpp"

namespace engine::testing {

inline std::filesystem::path weights_folder() {
    const char *folder = std::getenv("QUIRE_WEIGHTS");
    return folder != nullptr && folder[0] != '\0' ? std::string(folder)
                                                  : quire::tests::place(QUIRE_WEIGHTS_FALLBACK);
}

#define QUIRE_NEEDS_WEIGHTS()                                                            \
    if (!std::filesystem::exists(engine::testing::weights_folder() / "stories260K.bin")) \
    GTEST_SKIP() << "no stories260K.bin in " << engine::testing::weights_folder()        \
                 << "; name its folder with QUIRE_WEIGHTS"

inline std::string read_bytes(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A file that is deleted when the test ends.
class ScratchFile {
 public:
    explicit ScratchFile(const std::string &bytes) {
        const auto *test = ::testing::UnitTest::GetInstance()->current_test_info();
        path_ = std::filesystem::path(::testing::TempDir()) /
                ("quire_" + std::string(test->name()) + "_" + std::to_string(bytes.size()));
        std::ofstream(path_, std::ios::binary) << bytes;
    }
    ~ScratchFile() {
        std::error_code error;
        std::filesystem::remove(path_, error);
    }
    ScratchFile(const ScratchFile &) = delete;
    ScratchFile &operator=(const ScratchFile &) = delete;

    std::string path() const { return path_.string(); }

 private:
    std::filesystem::path path_;
};

template <typename T>
std::string bytes_of(const std::vector<T> &numbers) {
    return {reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(T)};
}

// The message of the exception that `action` throws; empty if it throws none.
template <typename Action>
std::string failure_of(Action action) {
    try {
        action();
    } catch (const std::exception &failure) {
        return failure.what();
    }
    return "";
}

}  // namespace engine::testing
